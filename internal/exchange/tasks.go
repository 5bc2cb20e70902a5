package exchange

import (
	"bytes"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/calls"
	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/observe"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// A call whose client can take tasks (extension io.modelcontextprotocol/tasks,
// SEP-2663) becomes one when it takes long: its request is answered with the
// task's id, and whoever knows that id and is the same principal asks for the
// rest, from any connection. A job is such a call, before and after.

// TaskRule says which calls of a tool become tasks.
type TaskRule struct {
	After    time.Duration // how long a call may take before it is one; 0: it is one from the start; negative: it never is
	Required bool          // who cannot take tasks may not call
}

// maxTasks bounds the tasks of one server.
const maxTasks = calls.MaxTasks

// finished notes how much is kept of a job that has ended, and gives up the
// results of the oldest where that is too much.
func (h *Host) finished(j *job, bytes int) {
	for _, old := range h.jobs.Finished(j.id, bytes) {
		old.shed()
	}
}

// Unfetched returns how many tasks there are whose clients do not know yet how
// they end, less those that ended long ago.
func (h *Host) Unfetched() int { return h.unfetched.Count() }

// closeJobs forgets all tasks.
func (h *Host) closeJobs() {
	for _, j := range h.jobs.Close() {
		j.mu.Lock()
		j.restLocked()
		j.mu.Unlock()
	}
}

// phase is where a job stands.
type phase uint8

const (
	awaited       phase = iota // its client waits for the answer, no task yet
	passed                     // the client has its answer, or has left: it becomes no task
	working                    // from here on it is a task
	inputRequired              // the server waits for the client's answer
	completed                  // from here on it has ended
	failed
	cancelledTask
)

// statuses are what the phases of a task are called.
var statuses = map[phase]string{working: "working", inputRequired: "input_required", completed: "completed", failed: "failed", cancelledTask: "cancelled"}

func (p phase) task() bool  { return p >= working }
func (p phase) ended() bool { return p >= completed }

// job is a call that may become a task, or is one.
type job struct {
	h         *Host
	rule      TaskRule
	principal string
	client    caller // the request that began it
	held      *held  // the execution that it waits for, nil if it is its own
	by        *caller

	mu      sync.Mutex // guards the fields below
	id      string     // once it is a task
	phase   phase
	request *jsonrpc.Message // to be retried with answers; nil once it has ended
	stop    func(reason string)
	timer   *time.Timer // what comes next: the task, the end of patience, or of its time
	created time.Time
	updated time.Time
	message string // statusMessage
	body    []byte // its result or error, raw JSON
	inputs  []jsonrpc.Member
	keys    map[string]bool // under which anything was asked
	answers func(responses []byte)
	rounds  int
	hearers map[*taskHearer]bool
}

// promise makes a job of a call that may become a task, nil if it may not.
func (h *Host) promise(req *Request, a *asked) (*job, *Failure) {
	if h.o.Tasks == nil || a.method != "tools/call" {
		return nil, nil
	}
	rule := h.o.Tasks(string(a.message.Text(jsonrpc.Name)))
	switch takes := era.TakesTasks(a.capabilities); {
	case !takes && rule.Required:
		return nil, missingTasks("the tool is served to clients only that can take tasks")
	case !takes || rule.After < 0:
		return nil, nil
	}
	a.keep()
	j := &job{h: h, rule: rule, principal: a.principal, client: caller{id: a.id, token: a.token, emit: a.emit}, request: a.message, keys: map[string]bool{}}
	a.emit, a.token, a.job = j.emit, heldToken, j
	if req.Receipt != nil {
		req.Receipt.job = j
	}
	return j, nil
}

func missingTasks(why string) *Failure {
	return &Failure{Code: era.CodeMissingCapability, Text: "missing required client capability " + era.ExtensionTasks + ": " + why, Data: era.NeedsTasks()}
}

// begun is told how the execution is cancelled.
func (j *job) begun(stop func(reason string)) {
	j.mu.Lock()
	j.stop = stop
	over := j.phase.ended()
	var answer []byte
	if j.phase == awaited && j.rule.After > 0 {
		j.timer = time.AfterFunc(j.rule.After, j.become)
	} else {
		answer = j.becomeLocked()
	}
	j.mu.Unlock()
	if over { // cancelled meanwhile
		stop("the task was cancelled")
	}
	j.tell(answer)
}

// become makes a task of a call that is still awaited.
func (j *job) become() {
	j.mu.Lock()
	answer := j.becomeLocked()
	j.mu.Unlock()
	j.tell(answer)
}

// becomeLocked does so, and returns the client's answer then; nil if it becomes
// none. It is known before its client can ask for it (SEP-2663, "Task
// Creation").
func (j *job) becomeLocked() []byte {
	if j.phase != awaited {
		return nil
	}
	id, ok := j.h.jobs.Enter(j.principal, j)
	if !ok {
		return nil
	}
	j.id = id
	j.h.unfetched.Began(id)
	j.restLocked()
	j.phase, j.created = working, time.Now()
	j.updated = j.created
	return jsonrpc.AppendResult(nil, j.client.id, jsonrpc.AppendObject(nil, nil, nil,
		append([]jsonrpc.Member{{Key: "resultType", Value: []byte(`"task"`)}}, j.stateLocked()...)...))
}

// tell gives the client the answer that its call is a task now.
func (j *job) tell(answer []byte) {
	if answer != nil {
		j.client.emit(answer, true)
	}
}

// restLocked stops the clock.
func (j *job) restLocked() {
	if j.timer != nil {
		j.timer.Stop()
		j.timer = nil
	}
}

// left is told that the client gave its request up, or is gone. It reports
// whether there is a task, which goes on.
func (j *job) left() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.phase == awaited {
		j.phase = passed
		j.restLocked()
	}
	return j.phase.task()
}

// isTask reports whether the request was answered with a task.
func (j *job) isTask() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.phase.task()
}

// guard is how a client cancels its request: it cannot cancel a task so.
func (j *job) guard(cancel func(reason string)) func(reason string) {
	return func(reason string) {
		if !j.left() {
			cancel(reason)
		}
	}
}

// pass reports whether the client is to get a final answer as it is: it waits
// for one, and the call becomes no task any more.
func (j *job) pass() bool {
	var answer []byte
	j.mu.Lock()
	if j.rule.After == 0 {
		answer = j.becomeLocked()
	}
	if j.phase == awaited {
		j.phase = passed
		j.restLocked()
	}
	pass := j.phase == passed
	j.mu.Unlock()
	j.tell(answer)
	return pass
}

// emit takes what the execution says.
func (j *job) emit(msg []byte, final bool) {
	if !final {
		j.note(msg)
		return
	}
	if j.pass() {
		j.client.emit(msg, true)
		return
	}
	m, err := jsonrpc.Parse(msg)
	switch {
	case err != nil:
		j.end(failed, []byte(`{"code":-32603,"message":"the answer is no message"}`), "")
	case m.Has(jsonrpc.Error):
		fault := m.Raw(jsonrpc.Error)
		j.end(failed, fault, quoted(jsonrpc.Get(fault, "message")))
	case string(m.Raw(jsonrpc.ResultType)) == `"input_required"`:
		j.pause(m.Raw(jsonrpc.Result))
	default:
		j.end(completed, m.Raw(jsonrpc.Result), "")
	}
}

// note takes a notification of the execution. A task has none (SEP-2663, "Task
// Status Notifications"), but may say where it stands.
func (j *job) note(msg []byte) {
	m, err := jsonrpc.Parse(msg)
	if err != nil {
		return
	}
	progress := m.Is("notifications/progress")
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.phase == awaited:
		j.client.note(msg)
	case progress && (j.phase == working || j.phase == inputRequired):
		j.message, j.updated = calls.ProgressMessage(m.Raw(jsonrpc.Params)), time.Now()
	}
}

// end ends a task.
func (j *job) end(p phase, body []byte, message string) {
	j.mu.Lock()
	if j.phase.ended() || !j.phase.task() {
		j.mu.Unlock()
		return
	}
	j.restLocked()
	j.phase, j.body, j.message, j.updated = p, bytes.Clone(body), calls.StatusMessage(message), time.Now()
	j.inputs, j.answers, j.request, j.stop = nil, nil, nil, nil
	j.timer = time.AfterFunc(j.h.o.Ledger.TTL, func() { j.h.jobs.Forget(j.id) })
	j.h.unfetched.Ended(j.id)
	j.announceLocked()
	held := j.held
	j.mu.Unlock()
	if held != nil {
		held.h.book.Deliver(held) // the task keeps the answer now
	}
	j.h.finished(j, len(body))
}

// cancel ends a task for its client.
func (j *job) cancel(reason string) {
	j.mu.Lock()
	stop := j.stop
	j.mu.Unlock()
	j.end(cancelledTask, nil, reason)
	j.h.unfetched.Fetched(j.id)
	if stop != nil {
		stop(reason)
	}
}

// shed gives up the result of a task, for want of room.
func (j *job) shed() {
	j.h.tell("the result of a task was given up: too many are kept", "tools/call", observe.Evicted)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.phase, j.message = failed, "the result was given up: too many are kept"
	j.body = []byte(`{"code":-32603,"message":"the result was given up: too many are kept","data":{"outcome":"executed"}}`)
}
