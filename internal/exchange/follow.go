package exchange

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/conversation"
	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/observe"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// A server's own task that the gateway follows may ask something. Where the
// client has a task of the gateway's, the question stands there; any other is
// asked by an input_required result, and its retry goes on with the task. All
// that takes is in the requestState, so that nothing is lost with this process.

// pursuit is what such a requestState says.
type pursuit struct {
	Task      string        `json:"t"` // raw JSON
	Interval  time.Duration `json:"i"`
	Answered  []string      `json:"k"`
	Round     int           `json:"n"`
	Principal string        `json:"p"`
	Digest    []byte        `json:"d"`
	Expires   time.Time     `json:"e"`
}

// pursuitLabel keeps these apart from the requestState of runs.
var pursuitLabel = []byte("task")

// errPursuit: as errState, of a call whose server has made a task of it.
var errPursuit = errors.New("requestState is expired, or belongs to another request: call again without it")

// prepare says of a tool call what is to become of a task that the server may
// make of it. The pursuit is that of a retry, nil if there is none.
func (d *direct) prepare(call *conversation.Call, a *asked) (p *pursuit, err error) {
	if a.method != "tools/call" {
		return nil, nil
	}
	if d.tasks { // else there will be none, or one that nothing can be done for but to wait
		a.keep()
		p, err = d.h.pursued(a)
	}
	call.Follow = a.follows()
	call.Ask = func(t conversation.Task, questions []jsonrpc.Member) bool { return d.ask(call, a, p, t, questions) }
	return p, err
}

// pursued opens the requestState of a retry. It is nil if there is none, or it is
// the server's.
func (h *Host) pursued(a *asked) (*pursuit, error) {
	raw := jsonrpc.Get(a.message.Raw(jsonrpc.Params), "requestState")
	if raw == nil {
		return nil, nil
	}
	plain, err := h.reveal(raw, pursuitLabel)
	if err != nil {
		return nil, nil
	}
	var p pursuit
	want := digest(a)
	if json.Unmarshal(plain, &p) != nil || p.Principal != a.principal || string(p.Digest) != string(want[:]) || time.Now().After(p.Expires) {
		return nil, errPursuit
	}
	return &p, nil
}

// again sends a call once more that the server executes as a task only, for a
// client that cannot take tasks: the gateway can. It has not been executed
// (SEP-2663, "Capability Negotiation"). It reports whether it did so.
func (d *direct) again(call *conversation.Call, a *asked, msg []byte) bool {
	if !d.tasks || call.Follow == nil || a.declared || era.TakesTasks(a.capabilities) {
		return false
	}
	m, err := jsonrpc.Parse(msg)
	if err != nil || !era.WantsTasks(m.Raw(jsonrpc.Error)) {
		return false
	}
	a.declared = true
	m, err = jsonrpc.Parse(a.message.Append(nil, jsonrpc.Edit{Field: jsonrpc.MetaCapabilities, With: era.WithTasks(a.capabilities)}))
	if err != nil || a.ended.Load() || d.conv.Call(call, m) != nil {
		return false
	}
	if a.ended.Load() { // cancelled meanwhile
		d.conv.Cancel(call, conversation.Cancelled("the call was cancelled"))
	}
	return true
}

// pursue goes on with the task of a retry.
func (d *direct) pursue(call *conversation.Call, a *asked, p *pursuit) error {
	d.mu.Lock()
	if t := d.waits[p.Task]; t != nil {
		t.Stop()
		delete(d.waits, p.Task)
	}
	d.mu.Unlock()
	return d.conv.Resume(call, a.message, conversation.Task{ID: []byte(p.Task), Interval: p.Interval, Answered: p.Answered})
}

// ask sees to what the task asks that is followed for a call. p is nil in the
// first round.
func (d *direct) ask(call *conversation.Call, a *asked, p *pursuit, t conversation.Task, questions []jsonrpc.Member) bool {
	if a.job != nil && a.job.pose(questions, func(responses []byte) { d.respond(call, a, questions, responses) }) {
		return true
	}
	switch {
	case len(questions) == 0, a.ended.Load(): // whoever has ended it cancels it
		return true
	case !a.kept:
		return d.give(call, a, jsonrpc.AppendError(nil, a.id, era.CodeMissingCapability,
			"the server's task asks something, and this client takes no tasks", era.NeedsTasks()))
	}
	round := 1
	if p != nil {
		round += p.Round
	}
	refusal := ""
	for _, q := range questions {
		method := quoted(jsonrpc.Get(q.Value, "method"))
		if why := refuses(a.capabilities, method, jsonrpc.Get(q.Value, "params")); why != "" {
			refusal = "the server's task asks what cannot be answered: " + why
			if capability := answeredBy[method]; capability != "" {
				return d.give(call, a, jsonrpc.AppendError(nil, a.id, era.CodeMissingCapability, refusal,
					[]byte(`{"requiredCapabilities":{"`+capability+`":{}},"outcome":"cancelled"}`)))
			}
		}
	}
	if round > maxPauses {
		refusal = "the server asks and asks"
	}
	if refusal != "" {
		return d.give(call, a, jsonrpc.AppendError(nil, a.id, jsonrpc.CodeInternal, refusal, []byte(`{"outcome":"cancelled"}`)))
	}
	if !a.over() {
		return true
	}
	d.wait(t)
	sum := digest(a)
	plain, _ := json.Marshal(pursuit{string(t.ID), t.Interval, t.Answered, round, a.principal, sum[:], time.Now().Add(d.h.o.QuestionTimeout)})
	a.emit(jsonrpc.AppendResult(nil, a.id, jsonrpc.AppendObject(nil, nil, nil,
		jsonrpc.Member{Key: "resultType", Value: []byte(`"input_required"`)},
		jsonrpc.Member{Key: "inputRequests", Value: jsonrpc.AppendObject(nil, nil, nil, questions...)},
		jsonrpc.Member{Key: "requestState", Value: jsonrpc.AppendString(nil, d.h.conceal(plain, pursuitLabel))})), true)
	return false
}

// give ends a call and its task with an error.
func (d *direct) give(call *conversation.Call, a *asked, msg []byte) bool {
	d.conv.Cancel(call, conversation.Cancelled("the server's task cannot go on"))
	a.answer(msg)
	return false
}

// respond brings the answers of a task of the gateway's to that of the server.
func (d *direct) respond(call *conversation.Call, a *asked, questions []jsonrpc.Member, responses []byte) {
	d.conv.Respond(call, responses)
	open := slices.DeleteFunc(slices.Clone(questions), func(q jsonrpc.Member) bool { return jsonrpc.Get(responses, q.Key) != nil })
	a.job.pose(open, func(more []byte) { d.respond(call, a, open, more) })
}

// wait cancels a task that waits for an answer, unless that comes in time.
func (d *direct) wait(t conversation.Task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := string(t.ID)
	if len(d.waits) >= maxTasks || d.waits[key] != nil {
		return
	}
	d.waits[key] = time.AfterFunc(d.h.o.QuestionTimeout, func() {
		d.mu.Lock()
		_, waits := d.waits[key]
		delete(d.waits, key)
		d.mu.Unlock()
		if waits {
			d.h.tell("task cancelled", "tools/call", observe.QuestionTimeout)
			d.conv.Abandon(t)
		}
	})
}

// rest stops all clocks.
func (d *direct) rest() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, t := range d.waits {
		t.Stop()
		delete(d.waits, key)
	}
}
