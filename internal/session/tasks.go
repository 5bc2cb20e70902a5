package session

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/calls"
	"github.com/holdfast-mcp/holdfast/internal/ledger"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Revision 2025-11-25 has tasks as an experiment (basic/utilities/tasks). The
// gateway offers them, for some tools, in the place of a server that has none of
// its own: the server sees an ordinary call. A task is its session's: no other
// one can ask for it, and it ends with it.

// TaskOptions say which tools of a server are offered as tasks.
type TaskOptions struct {
	Offered func(tool string) bool
	Longest func(tool string) time.Duration // bounds the ttl of a task, at least minTTL

	shelf *calls.Shelf[*task] // those of all sessions
}

const (
	minTTL      = time.Second // a ttl below it is raised
	maxOwnTasks = 1024        // of one session, running or kept
	tasksAPage  = 100         // of tasks/list
)

// desk is what a session has of tasks. All fields are guarded by the session's
// mu.
type desk struct {
	mint     string // begins the ids of executions: no client's request has such a one
	made     int
	tasks    []*task     // that are running or kept, oldest first
	stray    []*question // that may be any task's; while they are here, nobody has them
	listened bool        // the general stream was read
}

// declaration is what the gateway adds to the server's capabilities.
var declaration = []byte(`{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`)

// offerTasks adds to two answers of the server that its tools may be called as
// tasks. A server that has tasks itself is left alone with them.
func (s *Session) offerTasks(method string, msg []byte) []byte {
	m, err := jsonrpc.Parse(msg)
	if err != nil || !m.Has(jsonrpc.Result) {
		return msg
	}
	result := m.Raw(jsonrpc.Result)
	if method == "initialize" {
		own := jsonrpc.Get(result, "capabilities")
		if !s.Version().Tasks() || jsonrpc.Get(own, "tools") == nil || jsonrpc.Get(own, "tasks") != nil {
			return msg
		}
		s.mu.Lock()
		s.desk = &desk{mint: "hf-run-" + rand.Text()[:10] + "-"}
		s.mu.Unlock()
		own = jsonrpc.AppendWith(nil, own, "tasks", declaration)
		return m.Append(nil, jsonrpc.Edit{Field: jsonrpc.Result, With: jsonrpc.AppendWith(nil, result, "capabilities", own)})
	}
	if !s.HasTasks() {
		return msg
	}
	tools := jsonrpc.AppendEach(nil, jsonrpc.Get(result, "tools"), func(tool []byte) []byte {
		if !s.o.Tasks.Offered(jsonrpc.Unquote(jsonrpc.Get(tool, "name"))) {
			return tool
		}
		how := jsonrpc.AppendWith(nil, jsonrpc.Get(tool, "execution"), "taskSupport", []byte(`"optional"`))
		return jsonrpc.AppendWith(nil, tool, "execution", how)
	})
	if len(tools) == 0 {
		return msg
	}
	return m.Append(nil, jsonrpc.Edit{Field: jsonrpc.Result, With: jsonrpc.AppendWith(nil, result, "tools", tools)})
}

// HasTasks reports whether the gateway offers tasks in this session.
func (s *Session) HasTasks() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.desk != nil
}

// AboutTasks reports whether the gateway itself answers a request, from what it
// keeps of tasks.
func (s *Session) AboutTasks(m *jsonrpc.Message) bool {
	return s.o.Tasks != nil && s.HasTasks() && taskMethods[string(m.Text(jsonrpc.Method))] != nil
}

// taskMethods answer the requests about tasks.
var taskMethods = map[string]func(s *Session, c *call, m *jsonrpc.Message) []byte{
	"tasks/get": (*Session).taskGet, "tasks/result": (*Session).taskResult, "tasks/cancel": (*Session).taskCancel, "tasks/list": (*Session).taskList,
}

// takeTask serves a request that is about tasks, or is to be executed as one. It
// reports false for any other.
func (s *Session) takeTask(conv Conversation, c *call, m *jsonrpc.Message) bool {
	if !s.HasTasks() {
		return false
	}
	if c.Is("tools/call") {
		wish := wishOf(m)
		if wish != nil {
			s.begin(conv, c, m, wish)
		}
		return wish != nil
	}
	method := taskMethods[c.Method()]
	if method == nil {
		return false
	}
	if answer := method(s, c, m); answer != nil {
		s.finish(c, answer)
	}
	return true
}

// wishOf returns params.task of a tools/call, nil if there is none.
func wishOf(m *jsonrpc.Message) []byte {
	if wish := jsonrpc.Get(m.Raw(jsonrpc.Params), "task"); string(wish) != "null" {
		return wish
	}
	return nil
}

// only is who nobody is but this session.
func (s *Session) only() Who { return Who{"session\x00" + s.ID, "session\x00" + s.ID} }

// wantsTask reports whether a call is to be executed as a task.
func (s *Session) wantsTask(m *jsonrpc.Message) bool {
	return m.Is("tools/call") && s.HasTasks() && wishOf(m) != nil
}

// claimant returns in whose name a call is entered in the book. One that becomes
// a task is not for another session of the same client, which could not ask for
// it.
func (c *call) claimant() Who {
	if c.asTask {
		return c.sess.only()
	}
	return c.sess.who
}

// ttl is how long a task is kept after it was made.
func (o *TaskOptions) ttl(tool string, wish []byte) (time.Duration, error) {
	longest := o.Longest(tool)
	if len(wish) == 0 || wish[0] != '{' {
		return 0, errors.New("params.task must be an object")
	}
	asked := jsonrpc.Get(wish, "ttl")
	if asked == nil || string(asked) == "null" {
		return longest, nil
	}
	var ms float64
	if json.Unmarshal(asked, &ms) != nil || ms < 0 {
		return 0, errors.New("params.task.ttl must be a number of milliseconds")
	}
	if ms >= float64(longest.Milliseconds()) {
		return longest, nil
	}
	return max(minTTL, time.Duration(ms)*time.Millisecond), nil
}

// begin begins a task: the server is called, and the client answered at once.
func (s *Session) begin(conv Conversation, c *call, m *jsonrpc.Message, wish []byte) {
	refuse := func(code int, text string) {
		c.end(ledger.Cancelled, jsonrpc.AppendError(nil, c.ID, code, text, []byte(`{"outcome":"not_executed"}`)))
	}
	tool := string(m.Text(jsonrpc.Name))
	if !s.o.Tasks.Offered(tool) {
		refuse(jsonrpc.CodeMethodNotFound, "tool "+strconv.Quote(tool)+" is not offered as a task: call it without params.task")
		return
	}
	ttl, err := s.o.Tasks.ttl(tool, wish)
	if err != nil {
		refuse(jsonrpc.CodeInvalidParams, err.Error())
		return
	}
	t := newTask(s, ttl, m)
	if err := s.admitTask(t); err != nil {
		refuse(CodeEnded, err.Error())
		return
	}
	created := jsonrpc.AppendResult(nil, c.ID, append(append([]byte(`{"task":`), t.state()...), '}'))
	if err := t.start(conv, m); err != nil {
		t.drop("")
		c.end(ledger.Cancelled, refusal(c.ID, err))
		return
	}
	s.o.Log.Debug("task begun", "session", Short(s.ID), "task", t.name, "tool", tool, "ttl", ttl)
	c.end(ledger.Answered, created)
}

// errManyTasks: as many tasks as may be.
var errManyTasks = errors.New("too many tasks are running or kept (" + strconv.Itoa(maxOwnTasks) + " of a session, " + strconv.Itoa(calls.MaxTasks) +
	" of a server): fetch their results, or ask for a shorter ttl")

// admitTask enters a task. Where there are too many, one whose result was
// fetched makes room.
func (s *Session) admitTask(t *task) error {
	s.mu.Lock()
	var old *task
	if tasks := s.desk.tasks; len(tasks) >= maxOwnTasks {
		for _, o := range tasks {
			if o.fetched {
				old = o
				break
			}
		}
		if old == nil {
			s.mu.Unlock()
			return errManyTasks
		}
	}
	s.mu.Unlock()
	if old != nil {
		old.drop("")
	}
	id, ok := s.o.Tasks.shelf.Enter(s.ID, t)
	if !ok {
		return errManyTasks
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.desk
	switch {
	case s.ended != nil:
		s.o.Tasks.shelf.Forget(id)
		return s.ended
	case len(d.tasks) >= maxOwnTasks:
		s.o.Tasks.shelf.Forget(id)
		return errManyTasks
	}
	d.made++
	t.id, t.n, t.name = id, d.made, d.mint+strconv.Itoa(d.made)
	t.run.ID = jsonrpc.AppendString(nil, t.name)
	d.tasks = append(d.tasks, t)
	t.timer = time.AfterFunc(t.ttl, func() { t.drop("the task's time (ttl) is over") })
	return nil
}

// closeTasks forgets the tasks of a session that is over.
func (s *Session) closeTasks() {
	s.mu.Lock()
	var tasks []*task
	if s.desk != nil {
		tasks = append(tasks, s.desk.tasks...)
	}
	s.mu.Unlock()
	for _, t := range tasks {
		t.drop("the session has ended")
	}
}

// owes reports whether a result is kept that the client has not fetched yet.
func (s *Session) owes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.desk == nil {
		return false
	}
	for _, t := range s.desk.tasks {
		if !t.fetched {
			return true
		}
	}
	return false
}

// unfetched returns how many tasks a gateway that stops had better wait for.
func (s *Session) unfetched() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.desk == nil {
		return 0
	}
	for _, t := range s.desk.tasks {
		if !t.fetched && (!t.endedLocked() || time.Since(t.updated) <= calls.FetchTime) {
			n++
		}
	}
	return n
}

// named returns the task that a request names, or the answer that there is none.
func (s *Session) named(c *call, m *jsonrpc.Message) (*task, []byte) {
	id := jsonrpc.Unquote(jsonrpc.Get(m.Raw(jsonrpc.Params), "taskId"))
	if t, ok := s.o.Tasks.shelf.Find(id, s.ID); ok {
		return t, nil
	}
	switch {
	case id == "":
		return nil, jsonrpc.AppendError(nil, c.ID, jsonrpc.CodeInvalidParams, "params.taskId must be the id of a task", nil)
	case s.o.Tasks.shelf.Earlier(id):
		return nil, jsonrpc.AppendError(nil, c.ID, jsonrpc.CodeInvalidParams, "no such task here: it is another server's, or was made before the gateway was started anew. "+
			"Calls end with the gateway, and whether this one was executed is not known", []byte(`{"outcome":"unknown"}`))
	}
	return nil, jsonrpc.AppendError(nil, c.ID, jsonrpc.CodeInvalidParams, "no such task: it is unknown, its time (ttl) is over, or it is another session's", nil)
}

func (s *Session) taskGet(c *call, m *jsonrpc.Message) []byte {
	t, none := s.named(c, m)
	if t == nil {
		return none
	}
	return jsonrpc.AppendResult(nil, c.ID, t.state())
}

// taskResult answers at once for a task that has ended, else when it ends: then
// it returns nil.
func (s *Session) taskResult(c *call, m *jsonrpc.Message) []byte {
	t, none := s.named(c, m)
	if t == nil {
		return none
	}
	s.o.Log.Debug("result of a task asked for", "session", Short(s.ID), "task", t.name)
	return t.await(c)
}

func (s *Session) taskCancel(c *call, m *jsonrpc.Message) []byte {
	t, none := s.named(c, m)
	if t == nil {
		return none
	}
	if status, ok := t.cancel(); !ok {
		return jsonrpc.AppendError(nil, c.ID, jsonrpc.CodeInvalidParams, "the task cannot be cancelled: it has ended already, its status is "+status, nil)
	}
	return jsonrpc.AppendResult(nil, c.ID, t.state())
}

func (s *Session) taskList(c *call, m *jsonrpc.Message) []byte {
	after := 0
	raw := jsonrpc.Get(m.Raw(jsonrpc.Params), "cursor")
	s.mu.Lock()
	defer s.mu.Unlock()
	if raw != nil && string(raw) != "null" {
		var err error
		if after, err = strconv.Atoi(jsonrpc.Unquote(raw)); err != nil || after < 1 || after > s.desk.made {
			return jsonrpc.AppendError(nil, c.ID, jsonrpc.CodeInvalidParams, "params.cursor is none that tasks/list has returned", nil)
		}
	}
	list, n, more := []byte(`{"tasks":[`), 0, []byte(nil)
	for _, t := range s.desk.tasks {
		if t.n <= after {
			continue
		}
		if n == tasksAPage {
			more = strconv.AppendQuote(nil, strconv.Itoa(after))
			break
		}
		if n > 0 {
			list = append(list, ',')
		}
		list = append(list, t.stateLocked()...)
		after, n = t.n, n+1
	}
	list = append(list, ']')
	if more != nil {
		list = append(append(list, `,"nextCursor":`...), more...)
	}
	return jsonrpc.AppendResult(nil, c.ID, append(list, '}'))
}
