package session

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/calls"
	"github.com/holdfast-mcp/holdfast/internal/conversation"
	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/observe"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// What the status of a task can be. The last three are ends.
const (
	taskWorking   = "working"
	taskAsks      = "input_required"
	taskCompleted = "completed"
	taskFailed    = "failed"
	taskCancelled = "cancelled"
)

// task is one call that is executed as a task.
type task struct {
	sess    *Session
	ttl     time.Duration
	created time.Time

	// Set before anybody can find it.
	id   string
	n    int    // in the order of making
	name string // what the execution is called, in the log, too
	run  *call  // the execution

	// Guarded by the session's mu.
	timer     *time.Timer // the end of its time
	status    string
	message   string // statusMessage
	updated   time.Time
	gone      bool
	answer    []byte // once it has ended: what the call was answered with
	fetched   bool   // the client was given it, or will not want it
	questions []*question
	waiters   []*call   // for the result
	told      []*Stream // that hold the result, maybe unread
}

// newTask returns a task for a tools/call, which is yet to be admitted.
func newTask(s *Session, ttl time.Duration, m *jsonrpc.Message) *task {
	now := time.Now()
	t := &task{sess: s, ttl: ttl, status: taskWorking, created: now, updated: now}
	r := &call{sess: s, st: &s.general, began: now, keep: true, task: t}
	r.Peer, r.Data, r.Token = s, r, bytes.Clone(token(m))
	if r.Of(m); r.Token == nil {
		r.quiet, r.Token = true, quietToken
	}
	t.run = r
	return t
}

// start calls the server. m is the client's request.
func (t *task) start(conv Conversation, m *jsonrpc.Message) error {
	s, r := t.sess, t.run
	ordinary := jsonrpc.AppendWithout(nil, m.Raw(jsonrpc.Params), "task")
	m, err := jsonrpc.Parse(m.Append(nil, jsonrpc.Edit{Field: jsonrpc.ID, With: r.ID}, jsonrpc.Edit{Field: jsonrpc.Params, With: ordinary}))
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.ended != nil || t.endedLocked() { // somebody has found it in the list, and cancelled it
		s.mu.Unlock()
		return nil
	}
	s.calls[string(r.ID)] = r
	s.mu.Unlock()
	if err := conv.Call(&r.Call, m); err != nil {
		s.remove(r)
		return err
	}
	s.mu.Lock()
	over := t.status == taskCancelled || t.gone
	s.mu.Unlock()
	if over { // just now
		r.giveUp(conversation.Cancelled("the task was cancelled"))
	}
	return nil
}

func (t *task) endedLocked() bool { return t.status != taskWorking && t.status != taskAsks }

// state returns the Task as the client is told of it.
func (t *task) state() []byte {
	t.sess.mu.Lock()
	defer t.sess.mu.Unlock()
	return t.stateLocked()
}

func (t *task) stateLocked() []byte {
	state := calls.TaskState{ID: t.id, Status: t.status, Message: t.message, Created: t.created, Updated: t.updated}
	return jsonrpc.AppendObject(nil, nil, nil, append(state.Members(),
		jsonrpc.Member{Key: "ttl", Value: strconv.AppendInt(nil, t.ttl.Milliseconds(), 10)},
		jsonrpc.Member{Key: "pollInterval", Value: calls.PollInterval(time.Since(t.created))})...)
}

// moveLocked gives a task that has not ended another status.
func (t *task) moveLocked(status, message string) {
	if t.endedLocked() || t.status == status {
		return
	}
	t.status, t.message, t.updated = status, message, time.Now()
	t.announceLocked()
}

// conclude takes the answer to the execution.
func (t *task) conclude(msg []byte) {
	m, err := jsonrpc.Parse(msg)
	if err != nil {
		return
	}
	if m.Has(jsonrpc.Error) {
		t.end(taskFailed, jsonrpc.Unquote(jsonrpc.Get(m.Raw(jsonrpc.Error), "message")), msg)
		return
	}
	result := m.Raw(jsonrpc.Result)
	meta := jsonrpc.AppendWith(nil, jsonrpc.Get(result, "_meta"), era.MetaRelatedTask, t.related())
	answer := m.Append(nil, jsonrpc.Edit{Field: jsonrpc.Result, With: jsonrpc.AppendWith(nil, result, "_meta", meta)})
	if string(jsonrpc.Get(result, "isError")) == "true" {
		t.end(taskFailed, cmp.Or(firstText(result), "the tool reports an error"), answer)
		return
	}
	t.end(taskCompleted, "", answer)
}

// firstText is the first text that a tool's result says.
func firstText(result []byte) (text string) {
	jsonrpc.AppendEach(nil, jsonrpc.Get(result, "content"), func(part []byte) []byte {
		text = cmp.Or(text, jsonrpc.Unquote(jsonrpc.Get(part, "text")))
		return nil
	})
	return text
}

// related is what tells of a message that it is about this task.
func (t *task) related() []byte {
	return append(jsonrpc.AppendString([]byte(`{"taskId":`), t.id), '}')
}

// end ends a task, and answers all that wait for it. It reports false if it had
// ended already.
func (t *task) end(status, message string, answer []byte) bool {
	s := t.sess
	s.mu.Lock()
	if t.endedLocked() || t.gone {
		s.mu.Unlock()
		return false
	}
	t.moveLocked(status, calls.StatusMessage(message))
	waiters := t.waiters
	t.answer, t.questions, t.waiters = answer, nil, nil
	t.fetched = status == taskCancelled
	for _, w := range waiters {
		t.fetched = t.fetched || s.single || w.st.readLocked()
		t.tellLocked(w.st)
	}
	s.mu.Unlock()
	for _, w := range waiters {
		s.finish(w, withID(answer, w.ID))
	}
	for _, old := range s.o.Tasks.shelf.Finished(t.id, len(answer)) {
		s.o.Log.Warn("a task was given up with its result: too many are kept", "task", old.name)
		old.drop("")
	}
	return true
}

func withID(answer, id []byte) []byte {
	m, err := jsonrpc.Parse(answer)
	if err != nil { // it was parsed before
		return jsonrpc.AppendError(nil, id, jsonrpc.CodeInternal, "the answer is no message", nil)
	}
	return m.Append(nil, jsonrpc.Edit{Field: jsonrpc.ID, With: id})
}

// maxLost bounds the requests for one result whose streams nobody reads: their
// client may come back to them, but it also asks anew.
const maxLost = 4

// tellLocked notes that a stream gets the result.
func (t *task) tellLocked(st *Stream) {
	var freed []*Stream
	lost := 0
	for _, old := range slices.Backward(t.told) {
		if old.readLocked() {
			continue
		}
		if lost++; lost > maxLost && old.dropLocked() {
			freed = append(freed, old)
		}
	}
	t.told = append(slices.DeleteFunc(t.told, func(old *Stream) bool { return old == st || slices.Contains(freed, old) }), st)
}

// lostLocked takes out the waiters, the oldest first, that nobody reads and are
// too many.
func (t *task) lostLocked() (before []*call) {
	lost := 0
	for _, w := range slices.Backward(t.waiters) {
		if t.sess.single || w.st.readLocked() {
			continue
		}
		if lost++; lost > maxLost {
			before = append(before, w)
		}
	}
	t.waiters = slices.DeleteFunc(t.waiters, func(w *call) bool { return slices.Contains(before, w) })
	return before
}

// await answers who asks for the result, or makes it wait: then it returns nil.
func (t *task) await(c *call) []byte {
	s := t.sess
	s.mu.Lock()
	if t.gone {
		s.mu.Unlock()
		return jsonrpc.AppendError(nil, c.ID, jsonrpc.CodeInvalidParams, "no such task any more", nil)
	}
	if t.endedLocked() {
		answer := t.answer
		t.fetched = true
		t.tellLocked(c.st)
		s.mu.Unlock()
		return withID(answer, c.ID)
	}
	before := t.lostLocked()
	if s.calls[string(c.ID)] == c { // not given up meanwhile
		t.waiters = append(t.waiters, c)
		c.awaits = t
		t.placeLocked(true)
		s.placeStrayLocked(c.st)
	}
	s.mu.Unlock()
	for _, w := range before {
		s.finish(w, jsonrpc.AppendError(nil, w.ID, CodeCancelled, "a later tasks/result has taken the place of this one", nil))
		s.drop(w.st)
	}
	return nil
}

// forsakeLocked is told that who asked for the result gave up.
func (t *task) forsakeLocked(c *call) {
	t.waiters = slices.DeleteFunc(t.waiters, func(w *call) bool { return w == c })
}

// cancel ends a task for its client: first the task, then what is left of its
// execution. ok is false if it had ended, and status is how.
func (t *task) cancel() (status string, ok bool) {
	s := t.sess
	if !t.end(taskCancelled, "The client cancelled the task.",
		jsonrpc.AppendError(nil, t.run.ID, CodeCancelled, "the client cancelled the task", []byte(`{"outcome":"cancelled"}`))) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return t.status, false
	}
	t.stop("the client cancelled the task")
	s.log(t.run, "task cancelled", observe.ClientCancelled)
	return "", true
}

// stop ends the execution, if it runs.
func (t *task) stop(reason string) {
	if t.sess.remove(t.run) {
		t.run.giveUp(conversation.Cancelled(reason))
	}
}

// drop forgets a task. If it runs, that is for the reason given; who waits for
// it is told.
func (t *task) drop(reason string) {
	s := t.sess
	s.mu.Lock()
	if t.gone {
		s.mu.Unlock()
		return
	}
	running := !t.endedLocked()
	t.gone = true
	t.timer.Stop()
	waiters := t.waiters
	t.waiters, t.questions = nil, nil
	for _, st := range t.told {
		if !st.readLocked() {
			st.dropLocked()
		}
	}
	s.desk.tasks = slices.DeleteFunc(s.desk.tasks, func(o *task) bool { return o == t })
	s.mu.Unlock()
	s.o.Tasks.shelf.Forget(t.id)
	if running {
		s.o.Log.Info("task given up", "session", Short(s.ID), "task", t.name, "why", reason)
		t.stop(reason)
	}
	for _, w := range waiters {
		s.finish(w, jsonrpc.AppendError(nil, w.ID, jsonrpc.CodeInvalidParams, "no such task any more: "+reason, []byte(`{"outcome":"cancelled"}`)))
	}
}
