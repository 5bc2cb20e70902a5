package exchange

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/conversation"
	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// run is one execution on a handshake-era server. It may span several requests
// of the client, one for each round of questions.
type run struct {
	h      *Host
	id     string
	method string
	digest [32]byte // of the request, for requestState
	lane   *lane
	call   *conversation.Call

	mu      sync.Mutex // guards the fields below
	asked   *asked     // who waits now; nil while the client is being asked
	open    []question // that the client has not answered
	count   int        // questions so far
	round   int
	gather  *time.Timer        // until further questions are no longer waited for
	expiry  *time.Timer        // while suspended
	final   []byte             // the answer, while nobody waits
	refused []byte             // the server's error that wants URLs opened, while it is not known that they are
	kept    []*jsonrpc.Message // notifications, likewise
	ended   bool
	posed   bool // who waits is a task, and has the questions
}

// question is one that the server asked.
type question struct {
	key    string
	id     []byte // that the answer goes back under; nil: it was asked by an error
	method string
	params []byte
}

// gatherTime is how long further questions are waited for after the first: a
// server may ask several at once.
const gatherTime = 15 * time.Millisecond

// bridge serves a stateless request by a handshake-era server.
func (h *Host) bridge(t *errand) {
	a := t.call
	if refuseTasks(a) {
		return
	}
	if sealed := jsonrpc.Get(a.message.Raw(jsonrpc.Params), "requestState"); sealed != nil && era.MayAsk(a.method) {
		h.resume(t, sealed)
		return
	}
	g, err := h.group(a)
	if err != nil {
		a.fail(jsonrpc.CodeInternal, err.Error(), `{"outcome":"not_executed"}`)
		return
	}
	defer h.leave(g)
	r := &run{h: h, id: rand.Text(), method: a.method, asked: a}
	var alone *run
	if g.canAsk && era.MayAsk(a.method) {
		alone = r
		r.digest = digest(a)
	}
	l, err := g.acquire(t, alone)
	if err != nil {
		a.fail(jsonrpc.CodeInternal, err.Error(), `{"outcome":"not_executed"}`)
		return
	}
	r.lane = l
	if t.gone() {
		l.release(r)
		return
	}
	switch a.method {
	case "server/discover":
		a.answer(jsonrpc.AppendResult(nil, a.id, discovery(l.hello, h.o.Tasks != nil)))
		l.release(nil)
	case "subscriptions/listen":
		t.begun(g.listen(a, l))
		a.sent()
		l.release(nil)
	default:
		r.start(t, alone)
	}
}

// start sends the request.
func (r *run) start(t *errand, alone *run) {
	a, l := r.asked, r.lane
	l.g.mu.Lock()
	l.runs[r] = true
	l.g.mu.Unlock()
	if a.level != "" && jsonrpc.Get(jsonrpc.Get(l.hello, "capabilities"), "logging") != nil {
		l.lower(a.level)
	}
	r.execute(t, a)
}

// execute has the server execute the request.
func (r *run) execute(t *errand, a *asked) {
	params := a.message.Raw(jsonrpc.Params)
	if r.method == "tools/call" && jsonrpc.Get(params, "task") != nil {
		// That of 2025-11-25 means nothing here (SEP-2663, "Backward
		// Compatibility"), and this server may know it.
		params = jsonrpc.AppendObject(nil, params, []string{"task"})
	}
	m, err := jsonrpc.Parse(a.message.Append(nil, jsonrpc.Edit{Field: jsonrpc.Params, With: era.FromStateless(params)}))
	r.call = &conversation.Call{Peer: r.lane, ID: a.id, Token: a.token, Data: r}
	if err == nil {
		err = r.lane.conv.Call(r.call, m)
	}
	if err != nil {
		r.answer(jsonrpc.AppendError(nil, a.id, jsonrpc.CodeInternal, err.Error(), []byte(`{"outcome":"not_executed"}`)))
		return
	}
	t.begun(r.cancel)
	a.sent()
}

// lower makes the server send log messages of the level, if it does not yet.
func (l *lane) lower(level string) {
	l.g.mu.Lock()
	need := l.level == "" || slices.Index(levels, level) < slices.Index(levels, l.level)
	if need {
		l.level = level
	}
	l.g.mu.Unlock()
	if need {
		answered := l.send("logging/setLevel", jsonrpc.AppendObject(nil, nil, nil, jsonrpc.Member{Key: "level", Value: jsonrpc.AppendString(nil, level)}))
		limit := time.NewTimer(levelTime)
		defer limit.Stop()
		select {
		case <-answered:
		case <-limit.C:
		}
	}
}

// levelTime is how long a call waits for the answer to logging/setLevel.
const levelTime = 2 * time.Second

// cancel gives the execution up: its client has gone.
func (r *run) cancel(reason string) {
	r.mu.Lock()
	if r.ended || r.asked == nil { // while the client is asked, no stream of its is open
		r.mu.Unlock()
		return
	}
	r.endLocked()
	r.mu.Unlock()
	r.lane.conv.Cancel(r.call, conversation.Cancelled(reason))
	r.drop("the call was cancelled")
}

// endLocked marks the end and stops the clocks.
func (r *run) endLocked() {
	r.ended = true
	for _, t := range []*time.Timer{r.gather, r.expiry} {
		if t != nil {
			t.Stop()
		}
	}
}

// drop refuses what is still open, and frees the lane of a cancelled call.
func (r *run) drop(why string) {
	r.mu.Lock()
	open := r.open
	r.open = nil
	r.mu.Unlock()
	for _, q := range open {
		if q.id != nil {
			r.lane.refuse(q.id, why)
		}
	}
	r.lane.settle(r)
}

// settleTime is how long a lane waits for the server to show that it has read a
// cancellation.
const settleTime = 2 * time.Second

// settle gives a lane back once the server has read that its call is cancelled:
// what it asked before must not be put to the client as the next call's.
func (l *lane) settle(r *run) {
	l.g.mu.Lock()
	alone := l.busy == r
	l.g.mu.Unlock()
	if !alone {
		l.release(r)
		return
	}
	release := sync.OnceFunc(func() { l.release(r) })
	limit := time.AfterFunc(settleTime, release)
	l.request("ping", []byte("{}"), func([]byte) { limit.Stop(); release() })
}

// message takes what the server sends while it executes.
func (r *run) message(m *jsonrpc.Message) {
	if m.Kind() == jsonrpc.Request {
		r.question(m)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.Is("notifications/cancelled") { // the server gave a question up
		r.open = slices.DeleteFunc(r.open, func(q question) bool { return q.id != nil && bytes.Equal(q.id, m.Raw(jsonrpc.RequestID)) })
		r.poseLocked()
		return
	}
	switch {
	case r.ended:
	case r.asked != nil:
		r.noteLocked(m)
	case len(r.kept) < maxKept && len(m.Bytes()) <= maxKeptBytes: // its client is being asked, and has no stream
		r.kept = append(r.kept, m.Clone())
	}
}

// How many notifications are kept for a client that is being asked, and how
// long each may be, in bytes.
const (
	maxKept      = 256
	maxKeptBytes = 4 << 10
)

// noteLocked passes on a notification that the waiting request wants.
func (r *run) noteLocked(m *jsonrpc.Message) {
	switch string(m.Text(jsonrpc.Method)) {
	case "notifications/progress":
		if r.asked.token != nil {
			r.asked.note(m.Append(nil, jsonrpc.Edit{Field: jsonrpc.Token, With: r.asked.token}))
		}
	case "notifications/message":
		level := slices.Index(levels, string(m.Text(jsonrpc.Level)))
		if r.asked.level != "" && level >= slices.Index(levels, r.asked.level) {
			r.asked.note(m.Append(nil))
		}
	}
}

// question takes a request of the server.
func (r *run) question(m *jsonrpc.Message) {
	method := string(m.Text(jsonrpc.Method))
	id := bytes.Clone(m.Raw(jsonrpc.ID))
	if why := refuses(r.lane.g.capabilities, method, m.Raw(jsonrpc.Params)); why != "" {
		r.lane.refuse(id, why)
		return
	}
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		r.lane.refuse(id, "the call that it belongs to is over")
		return
	}
	defer r.mu.Unlock()
	r.count++
	params := bytes.Clone(m.Raw(jsonrpc.Params))
	if method == "elicitation/create" { // the retry tells the outcome, in this era
		params = jsonrpc.AppendObject(nil, params, []string{"elicitationId"})
	}
	r.open = append(r.open, question{"q" + strconv.Itoa(r.count), id, method, params})
	r.askLocked(gatherTime)
}

// answeredBy are the questions, and the capabilities that answer them.
var answeredBy = map[string]string{"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}

// refuses says why a question cannot be put to a client with these capabilities,
// "" if it can: only what it declared may be asked (2026-07-28
// basic/patterns/mrtr, "Server Requirements").
func refuses(capabilities []byte, method string, params []byte) string {
	capability, known := answeredBy[method]
	declared := jsonrpc.Get(capabilities, capability)
	switch {
	case !known:
		return fmt.Sprintf("%.60q cannot be put to a client of the stateless era", method)
	case declared == nil:
		return "the client did not declare that it answers " + method
	case capability == "elicitation" && string(jsonrpc.Get(params, "mode")) == `"url"` && jsonrpc.Get(declared, "url") == nil:
		return "the client did not declare that it opens URLs"
	}
	return ""
}

// askLocked puts the open questions to the client in a moment.
func (r *run) askLocked(in time.Duration) {
	if r.asked != nil && r.gather == nil {
		r.gather = time.AfterFunc(in, r.ask)
	}
}

// ask ends the client's present request with the open questions.
func (r *run) ask() {
	r.mu.Lock()
	r.gather = nil
	if r.ended || r.asked == nil || len(r.open) == 0 {
		r.mu.Unlock()
		return
	}
	a := r.asked
	r.round++
	if r.posed = a.job != nil && a.job.pose(r.requestsLocked(), r.respond); r.posed {
		r.mu.Unlock()
		return
	}
	r.asked = nil
	r.expiry = time.AfterFunc(r.h.o.QuestionTimeout, func() { r.expire("nobody answered the server's question in time (--question-timeout)") })
	result := r.inputRequiredLocked(a)
	r.mu.Unlock()
	r.h.suspend(r)
	a.answer(jsonrpc.AppendResult(nil, a.id, result))
}

// poseLocked tells the client of a task what is still open.
func (r *run) poseLocked() {
	if r.posed && r.asked != nil {
		r.asked.job.pose(r.requestsLocked(), r.respond)
	}
}

// requestsLocked are the open questions.
func (r *run) requestsLocked() []jsonrpc.Member {
	requests := make([]jsonrpc.Member, 0, len(r.open))
	for _, q := range r.open {
		params := q.params
		if params == nil { // optional for roots/list, but go-sdk 1.8.0 cannot read a question without
			params = []byte("{}")
		}
		set := []jsonrpc.Member{{Key: "method", Value: jsonrpc.AppendString(nil, q.method)}, {Key: "params", Value: params}}
		requests = append(requests, jsonrpc.Member{Key: q.key, Value: jsonrpc.AppendObject(nil, nil, nil, set...)})
	}
	return requests
}

// inputRequiredLocked is the result that asks.
func (r *run) inputRequiredLocked(a *asked) []byte {
	requests, state := r.requestsLocked(), r.h.seal(r, a)
	return era.ToStateless("", jsonrpc.AppendObject(nil, nil, nil, // not of the method: it must not be cached
		jsonrpc.Member{Key: "resultType", Value: []byte(`"input_required"`)},
		jsonrpc.Member{Key: "inputRequests", Value: jsonrpc.AppendObject(nil, nil, nil, requests...)},
		jsonrpc.Member{Key: "requestState", Value: jsonrpc.AppendString(nil, state)}), jsonrpc.Get(r.lane.hello, "serverInfo"))
}

func (h *Host) suspend(r *run) {
	h.mu.Lock()
	if !h.closed {
		h.runs[r.id] = r
	}
	h.mu.Unlock()
}

// expire gives a suspended execution up.
func (r *run) expire(why string) {
	r.h.mu.Lock()
	delete(r.h.runs, r.id)
	r.h.mu.Unlock()
	r.mu.Lock()
	if r.asked != nil || r.ended && r.final == nil {
		r.mu.Unlock()
		return
	}
	running := !r.ended
	r.endLocked()
	r.final = nil
	r.mu.Unlock()
	if running {
		r.h.o.Log.Warn("call given up", "server", r.h.o.Name, "method", r.method, "cause", why)
		r.lane.conv.Cancel(r.call, conversation.Cancelled(why))
		r.drop(why)
	}
}

// answer takes the server's answer.
func (r *run) answer(msg []byte) {
	if !r.elicitURLs(msg) {
		r.finish(msg)
	}
}

// finish ends the execution with an answer of the server.
func (r *run) finish(msg []byte) {
	out := translate(r.method, msg, r.lane.hello)
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return
	}
	a := r.asked
	if a == nil { // the client is answering a question that the server no longer has
		r.final = out
		r.ended = true
	} else {
		r.endLocked()
	}
	r.mu.Unlock()
	r.lane.release(r)
	if a != nil {
		a.answer(withID(out, a.id))
	}
}

// withID puts the id of the present request into an answer.
func withID(msg, id []byte) []byte {
	m, err := jsonrpc.Parse(msg)
	if err != nil || bytes.Equal(m.Raw(jsonrpc.ID), id) {
		return msg
	}
	return m.Append(nil, jsonrpc.Edit{Field: jsonrpc.ID, With: id})
}
