package conversation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// A server may answer a call with a task of its own (SEP-2663). Where the client
// cannot take it, the gateway follows it: it polls, no faster than the server
// wants, and answers the call with what comes of it. Meanwhile the call's clocks
// run as those of any other.

// Task is a server's own task, as far as it was followed.
type Task struct {
	ID       []byte        // raw JSON
	Interval time.Duration // between two looks, as the server wants it; 0: it has not said
	Answered []string      // the keys of the questions that were answered
}

// followed is the task of one call.
type followed struct {
	task     []byte // its id, raw JSON
	interval time.Duration
	timer    *time.Timer
	polls    int
	asked    map[string]bool // questions that the client need not be asked any more
	waits    time.Time       // since when Call.Ask has open questions; zero: it has none
}

// pollUsual is how often a task is looked at whose server does not say, pollLeast
// the least time between two looks, and pollMost the longest: a call must not
// wait for a slip of the server's.
const (
	pollUsual = time.Second
	pollLeast = 100 * time.Millisecond
	pollMost  = time.Hour
)

// isTask reports whether an answer is a task.
func isTask(m *jsonrpc.Message) bool { return string(m.Raw(jsonrpc.ResultType)) == `"task"` }

// follow begins to follow the task that a call was answered with.
func (c *Conversation) follow(call *Call, result []byte) {
	task := jsonrpc.Get(result, "taskId")
	if len(task) == 0 || task[0] != '"' {
		call.Peer.Answer(call, jsonrpc.AppendError(nil, call.ID, jsonrpc.CodeInternal, "the server answered with a task without an id", []byte(`{"outcome":"unknown"}`)))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.peers[call.Peer] == nil { // it has left
		return
	}
	call.follow = &followed{task: bytes.Clone(task), asked: map[string]bool{}}
	c.parkLocked(call)
	c.pollLaterLocked(call, result)
}

// Resume goes on following a task for a call, whose request m may bring answers
// to what the task asks (inputResponses). It is answered as by Call.
func (c *Conversation) Resume(call *Call, m *jsonrpc.Message, t Task) error {
	call.Of(m)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.peers[call.Peer] == nil {
		return c.overErrLocked()
	}
	call.sent = true
	call.follow = &followed{task: bytes.Clone(t.ID), interval: t.Interval, asked: map[string]bool{}}
	for _, key := range t.Answered {
		call.follow.asked[key] = true
	}
	c.parkLocked(call)
	c.watchLocked(call)
	c.respondLocked(call, jsonrpc.Get(m.Raw(jsonrpc.Params), "inputResponses"))
	c.pollLaterLocked(call, nil)
	return nil
}

// Respond brings answers, an object by the keys of the questions, to the task
// that is followed for a call.
func (c *Conversation) Respond(call *Call, responses []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[call.up] == call && call.follow != nil {
		c.respondLocked(call, responses)
	}
}

func (c *Conversation) respondLocked(call *Call, responses []byte) {
	answers := jsonrpc.Members(responses)
	if len(answers) == 0 {
		return
	}
	for _, m := range answers {
		call.follow.asked[m.Key] = true
	}
	c.taskRequestLocked(call.follow.task, "tasks/update", responses, func(*jsonrpc.Message) {})
}

// Abandon gives a task up that was followed, and is not any more.
func (c *Conversation) Abandon(t Task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link != nil && c.state == open {
		c.taskRequestLocked(t.ID, "tasks/cancel", nil, func(*jsonrpc.Message) {})
	}
}

// pollLaterLocked looks at the task when the server wants it to be looked at.
func (c *Conversation) pollLaterLocked(call *Call, state []byte) {
	f := call.follow
	if f.interval == 0 {
		f.interval = pollUsual
	}
	var ms float64
	if json.Unmarshal(jsonrpc.Get(state, "pollIntervalMs"), &ms) == nil && ms > 0 {
		f.interval = pollMost
		if ms < float64(pollMost.Milliseconds()) {
			f.interval = max(pollLeast, time.Duration(ms*float64(time.Millisecond)))
		}
	}
	call.moved = time.Now() // the server has spoken of it
	gen, up := c.gen, call.up
	f.timer = time.AfterFunc(f.interval, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if gen == c.gen && c.calls[up] == call {
			c.taskRequestLocked(call.follow.task, "tasks/get", nil, func(m *jsonrpc.Message) { c.polled(call, m) })
		}
	})
}

// taskRequestLocked sends a request about a server's task, in the gateway's name.
func (c *Conversation) taskRequestLocked(task []byte, method string, responses []byte, answered func(m *jsonrpc.Message)) {
	params := fmt.Appendf(nil, `{"taskId":%s,"_meta":{%q:%q,%q:%s,%q:%s}}`, task, era.MetaVersion, era.V20260728,
		era.MetaClient, c.opts.ClientInfo, era.MetaCapabilities, era.WithTasks(nil))
	if responses != nil {
		params = jsonrpc.AppendObject(nil, params, nil, jsonrpc.Member{Key: "inputResponses", Value: responses})
	}
	m, err := jsonrpc.Parse(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":0,"method":%q,"params":%s}`, method, params))
	if err == nil {
		err = c.sendCallLocked(&Call{method: method, inner: answered}, m, nil)
	}
	if err != nil {
		c.opts.Log.Warn("a request about a server's task could not be sent", "server", c.opts.Name, "method", method, "why", err)
	}
}

// polled takes what a server says of a task that is followed.
func (c *Conversation) polled(call *Call, m *jsonrpc.Message) {
	state := m.Raw(jsonrpc.Result)
	status := string(jsonrpc.Get(state, "status"))
	switch {
	case state == nil:
		c.concluded(call, jsonrpc.AppendError(nil, call.ID, jsonrpc.CodeInternal,
			"the server no longer tells of its task: "+string(jsonrpc.Get(m.Raw(jsonrpc.Error), "message")), []byte(`{"outcome":"unknown"}`)))
	case status == `"completed"`:
		result := jsonrpc.Get(state, "result")
		if len(result) > 0 && c.bridged() {
			result = plain(result)
		}
		c.concluded(call, jsonrpc.AppendResult(nil, call.ID, result))
	case status == `"failed"`:
		c.concluded(call, append(append(append(append([]byte(`{"jsonrpc":"2.0","id":`), call.ID...), `,"error":`...), jsonrpc.Get(state, "error")...), '}'))
	case status == `"cancelled"`:
		c.concluded(call, jsonrpc.AppendError(nil, call.ID, jsonrpc.CodeInternal, "the server cancelled its task", []byte(`{"outcome":"cancelled"}`)))
	case call.Ask != nil && !c.bridged():
		c.askFor(call, state)
	case status == `"input_required"` && c.askOf(call, state):
	default:
		c.stillAt(call, state)
	}
}

// concluded ends a call with what came of its task.
func (c *Conversation) concluded(call *Call, answer []byte) {
	if _, err := jsonrpc.Parse(answer); err != nil {
		answer = jsonrpc.AppendError(nil, call.ID, jsonrpc.CodeInternal, "the server's task has ended without a result", []byte(`{"outcome":"unknown"}`))
	}
	if c.takeOut(call) {
		call.Peer.Answer(call, answer)
	}
}

// stillAt goes on following, and lets the client know that the call goes on.
func (c *Conversation) stillAt(call *Call, state []byte) {
	var note []byte
	c.mu.Lock()
	if c.calls[call.up] != call { // it has ended meanwhile
		c.mu.Unlock()
		return
	}
	call.follow.polls++
	if call.Token != nil {
		note = append([]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`), call.Token...)
		note = strconv.AppendInt(append(note, `,"progress":`...), int64(call.follow.polls), 10)
		if text := jsonrpc.Get(state, "statusMessage"); len(text) > 0 && text[0] == '"' {
			note = append(append(note, `,"message":`...), text...)
		}
		note = append(note, '}', '}')
	}
	c.pollLaterLocked(call, state)
	c.mu.Unlock()
	if note != nil {
		call.Peer.Message(call, note)
	}
}

// askOf puts the questions of a task to its client, those that it was not asked
// yet. It reports false if there are none.
func (c *Conversation) askOf(call *Call, state []byte) bool {
	var fresh []jsonrpc.Member
	c.mu.Lock()
	running := c.calls[call.up] == call
	for _, q := range jsonrpc.Members(jsonrpc.Get(state, "inputRequests")) {
		if running && !call.follow.asked[q.Key] {
			call.follow.asked[q.Key] = true
			fresh = append(fresh, q)
		}
	}
	if len(fresh) == 0 {
		c.mu.Unlock()
		return !running
	}
	delete(c.calls, call.up) // while its client is asked, as any such call
	c.mu.Unlock()
	c.ask(call, jsonrpc.AppendObject(nil, nil, nil, jsonrpc.Member{Key: "inputRequests", Value: jsonrpc.AppendObject(nil, nil, nil, fresh...)}))
	return true
}

// askFor lets Call.Ask see to what a task asks.
func (c *Conversation) askFor(call *Call, state []byte) {
	var open []jsonrpc.Member
	f := call.follow
	c.mu.Lock()
	if c.calls[call.up] != call { // it has ended meanwhile
		c.mu.Unlock()
		return
	}
	t := Task{ID: f.task, Interval: f.interval, Answered: slices.Sorted(maps.Keys(f.asked))}
	for _, q := range jsonrpc.Members(jsonrpc.Get(state, "inputRequests")) {
		if !f.asked[q.Key] && string(jsonrpc.Get(state, "status")) == `"input_required"` {
			open = append(open, jsonrpc.Member{Key: q.Key, Value: bytes.Clone(q.Value)})
		}
	}
	waited := !f.waits.IsZero()
	switch {
	case len(open) == 0:
		f.waits = time.Time{}
	case !waited:
		f.waits = time.Now()
	}
	c.mu.Unlock()
	switch {
	case len(open) == 0 && !waited:
		c.stillAt(call, state)
	case !call.Ask(t, open):
		c.takeOut(call)
	case len(open) > 0: // a question is no progress
		c.mu.Lock()
		if c.calls[call.up] == call {
			c.pollLaterLocked(call, state)
		}
		c.mu.Unlock()
	default:
		c.stillAt(call, state)
	}
}

// updateLocked brings the client's answers to the task, and follows it on.
func (c *Conversation) updateLocked(r *round) {
	c.parkLocked(r.call)
	c.taskRequestLocked(r.call.follow.task, "tasks/update", jsonrpc.AppendObject(nil, nil, nil, r.responses...), func(*jsonrpc.Message) {})
	c.pollLaterLocked(r.call, nil)
}

// abandonLocked gives a task up with its call.
func (c *Conversation) abandonLocked(call *Call) {
	if call.follow.timer != nil {
		call.follow.timer.Stop()
	}
	if c.link != nil && c.state == open {
		c.taskRequestLocked(call.follow.task, "tasks/cancel", nil, func(*jsonrpc.Message) {})
	}
}

// declareLocked sends a call again that a server executes as a task only: it
// has not executed it (2026-07-28 basic, "Error Codes"), and the gateway can
// take tasks.
func (c *Conversation) declareLocked(call *Call) error {
	m, err := jsonrpc.Parse(call.note)
	if err != nil {
		return err
	}
	call.tasks = true
	return c.forwardLocked(call, m, nil)
}
