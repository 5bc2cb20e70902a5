package exchange

import (
	"bytes"
	"slices"
	"sync"

	"github.com/holdfast-mcp/holdfast/internal/calls"
	"github.com/holdfast-mcp/holdfast/internal/ledger"
	"github.com/holdfast-mcp/holdfast/internal/observe"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// A call of the stateless era ends with its stream, unless its client gave it a
// key, or its tool is configured to let it linger. Then it is held: executed
// under nobody's name, with whoever asks for it waiting.

// Receipt tells the Host what became of a request's connection and answer. Give
// a new one with each request that may be held; the zero Receipt is ready.
type Receipt struct {
	held *held
	by   *caller
	job  *job
}

// Held reports whether the request is one that may outlive its connection.
func (r *Receipt) Held() bool { return r.held != nil }

// Delivered says that the answer was written without an error.
func (r *Receipt) Delivered() {
	if r.held != nil && (r.job == nil || !r.job.isTask()) {
		r.held.h.book.Deliver(r.held)
	}
}

// Arrived implements wire.Told.
func (r *Receipt) Arrived(ok bool) {
	if ok {
		r.Delivered()
	} else {
		r.Lost()
	}
}

// Lost says that the connection has gone, before the answer was delivered. It
// reports whether the call goes on nevertheless: else cancel it.
func (r *Receipt) Lost() bool {
	if r.job != nil && r.job.left() {
		return true // it is a task
	}
	if r.held == nil {
		return false
	}
	r.held.lose(r.by)
	return true
}

// held is one such execution.
type held struct {
	place  calls.Place
	claim  ledger.Claim
	h      *Host
	method string
	stop   func(reason string) // ends the execution; set before anything can call it

	mu      sync.Mutex // guards the fields below
	said    [][]byte   // notifications so far
	size    int        // of said, in bytes
	callers []*caller
	final   []byte
	over    bool
}

// caller is one request that waits for a held execution.
type caller struct {
	id, token []byte
	emit      func(msg []byte, final bool)
	joined    bool // not the one that began it
}

// What is kept of notifications, for who asks again.
const (
	maxSaid      = 1024
	maxSaidBytes = 1 << 20
)

// heldToken is under which an execution reports its progress.
var heldToken = []byte(`"held"`)

// hold serves a request that may outlive its connection. ok is false if this
// one does not.
func (h *Host) hold(req Request, a *asked) (cancel func(reason string), fail *Failure, ok bool) {
	if req.Receipt == nil || h.book == nil || !calls.Adoptable(a.method) {
		return nil, nil, false
	}
	key, err := calls.Key(req.Key, a.message)
	rules := h.o.Rules(string(a.message.Text(jsonrpc.Name)))
	plain := key == "" && rules.OnDisconnect != calls.Linger && rules.OnDisconnect != calls.Keep || rules.Adopt == ledger.Never
	switch {
	case err == nil && plain, jsonrpc.Get(a.message.Raw(jsonrpc.Params), "requestState") != nil:
		return nil, nil, false
	case err != nil:
		return nil, &Failure{Code: jsonrpc.CodeInvalidParams, Text: err.Error(), Data: []byte(`{"outcome":"not_executed"}`)}, true
	}
	w := &caller{id: a.id, token: a.token, emit: a.emit}
	hd := &held{h: h, method: a.method}
	who := ""
	if req.Caller != nil {
		who = req.Caller()
	}
	claim := ledger.Claim{Principal: who, Key: key, KeyPrincipal: a.principal, Print: calls.Print(a.message), Policy: rules.Policy(key != "")}
	hd.claim = claim
	hd.mu.Lock() // nobody may join before it runs
	out, of, answer := h.book.Enter(claim, calls.Like(who, a.message), hd)
	switch out {
	case ledger.Conflict:
		hd.mu.Unlock()
		return nil, &Failure{Code: jsonrpc.CodeInvalidRequest, Text: calls.ErrKey.Error(), Data: []byte(`{"outcome":"not_executed"}`)}, true
	case ledger.Fresh:
		hd.callers = []*caller{w}
		a.emit, a.id, a.token, a.shared = hd.emit, bytes.Clone(a.id), heldToken, true
		req.take(hd, w, a.job)
		hd.mu.Unlock()
		hd.run(a)
	default:
		hd.mu.Unlock()
		w.joined = true
		if req.Begun != nil {
			req.Begun()
		}
		hd = of
		req.take(hd, w, a.job)
		hd.join(w, answer)
	}
	return func(reason string) { hd.cancel(w, reason) }, nil, true
}

// take says which execution the request waits for.
func (r *Request) take(hd *held, w *caller, j *job) {
	r.Receipt.held, r.Receipt.by = hd, w
	if j != nil {
		j.held, j.by = hd, w
	}
}

// Place implements calls.Owner.
func (hd *held) Place() *calls.Place { return &hd.place }

// Claim implements calls.Owner.
func (hd *held) Claim() ledger.Claim { return hd.claim }

// Answer implements calls.Owner.
func (hd *held) Answer() []byte { return hd.final }

// run begins the execution.
func (hd *held) run(a *asked) {
	ready := make(chan struct{})
	var stop func(string)
	hd.stop = func(reason string) { <-ready; stop(reason) }
	stop = hd.h.execute(a)
	close(ready)
}

// join makes a request wait for the execution: it gets what was said so far, and
// the answer if there is one.
func (hd *held) join(w *caller, answer []byte) {
	hd.h.tell("call joined the execution of an earlier equal one", hd.method, observe.Adopted)
	hd.mu.Lock()
	defer hd.mu.Unlock()
	for _, msg := range hd.said {
		w.note(msg)
	}
	if answer == nil {
		answer = hd.final
	}
	if answer != nil {
		w.emit(calls.Readdress(answer, w.id), true)
		return
	}
	hd.callers = append(hd.callers, w)
}

// note gives a request a notification.
func (w *caller) note(msg []byte) {
	m, err := jsonrpc.Parse(msg)
	if err != nil {
		return
	}
	if m.Is("notifications/progress") {
		if w.token == nil {
			return
		}
		msg = m.Append(nil, jsonrpc.Edit{Field: jsonrpc.Token, With: w.token})
	}
	w.emit(msg, false)
}

// emit takes what the execution says.
func (hd *held) emit(msg []byte, final bool) {
	hd.mu.Lock()
	defer hd.mu.Unlock()
	if !final {
		if len(hd.said) < maxSaid && hd.size+len(msg) <= maxSaidBytes {
			hd.said = append(hd.said, msg)
			hd.size += len(msg)
		}
		for _, w := range hd.callers {
			w.note(msg)
		}
		return
	}
	hd.over, hd.final, hd.said = true, msg, nil
	state := ledger.Answered
	if m, err := jsonrpc.Parse(msg); err == nil && m.Has(jsonrpc.Error) {
		switch string(jsonrpc.Get(jsonrpc.Get(m.Raw(jsonrpc.Error), "data"), "outcome")) {
		case `"unknown"`:
			state = ledger.Lost
		case `"not_executed"`:
			state = ledger.Cancelled // its key may be used again
		}
	}
	hd.h.book.End(hd, state)
	for _, w := range hd.callers {
		if w.joined {
			w.emit(calls.Readdress(msg, w.id), true)
		} else {
			w.emit(withID(msg, w.id), true)
		}
	}
	hd.callers = nil
}

// drop takes a request out, and reports whether it waited, and whether anybody
// does now.
func (hd *held) drop(w *caller) (waited, left bool) {
	hd.mu.Lock()
	defer hd.mu.Unlock()
	before := len(hd.callers)
	hd.callers = slices.DeleteFunc(hd.callers, func(x *caller) bool { return x == w })
	return len(hd.callers) < before, len(hd.callers) > 0
}

// lose is told that the connection of a request has gone.
func (hd *held) lose(w *caller) {
	if _, left := hd.drop(w); !left {
		hd.h.book.Lose(hd)
	}
}

// cancel is told that the client gave the request up.
func (hd *held) cancel(w *caller, reason string) {
	if waited, left := hd.drop(w); waited && !left {
		hd.abort(reason)
	}
}

// abort ends the execution without an answer.
func (hd *held) abort(reason string) {
	hd.mu.Lock()
	over := hd.over
	hd.over = true
	hd.mu.Unlock()
	if over {
		return
	}
	hd.stop(reason)
	hd.h.book.End(hd, ledger.Cancelled)
}

// orphaned cancels an execution that nobody has asked for during its grace.
func (hd *held) orphaned() {
	hd.h.tell("call cancelled", hd.method, observe.OrphanGrace)
	hd.abort("nobody came back for the call within the orphan grace")
}

// tell tells of a call.
func (h *Host) tell(what, method string, cause observe.Cause) {
	if h.o.Observe != nil {
		e := observe.Ended(observe.Call, cause)
		e.Text, e.Method = what, method
		h.o.Observe(e)
	}
}
