package exchange

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/conversation"
	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// direct passes requests to a server that speaks the stateless era itself. All
// of them share one process; nothing but ids and tokens changes.
type direct struct {
	h     *Host
	conv  *conversation.Conversation
	tasks bool // the server has tasks of its own

	mu      sync.Mutex // guards the fields below
	listens map[*conversation.Call]bool
	waits   map[string]*time.Timer // until a task of the server's is given up that asks, by its id
}

// knownDirect returns the way to a server that is known to be stateless.
func (h *Host) knownDirect() *direct {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.direct
}

// adopt makes a conversation the way to the server.
func (h *Host) adopt(conv *conversation.Conversation) *direct {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.direct == nil || h.direct.conv != conv {
		d := &direct{h: h, conv: conv, tasks: era.TakesTasks(conv.Capabilities()), listens: map[*conversation.Call]bool{}, waits: map[string]*time.Timer{}}
		if conv.Join(d) == nil {
			h.direct = d
		}
		return d
	}
	return h.direct
}

// retire gives up the process that carries stateless requests, if no request
// and no subscription has needed it since before. It reports whether it did.
func (h *Host) retire(before time.Time, why string) bool {
	h.mu.Lock()
	d := h.direct
	if d == nil || h.present.Load() > 0 || h.used.Load() > before.UnixNano() {
		h.mu.Unlock()
		return false
	}
	gone := make(chan struct{})
	h.direct, h.retiring = nil, gone
	h.mu.Unlock()
	d.conv.Close(fmt.Errorf("%w: %s", conversation.ErrClosed, why))
	close(gone)
	return true
}

// retired waits until the pool knows that a process was given up: else it would
// be handed out once more.
func (h *Host) retired() {
	h.mu.Lock()
	gone := h.retiring
	h.mu.Unlock()
	if gone != nil {
		<-gone
	}
}

func (d *direct) serve(a *asked) func(reason string) {
	call := &conversation.Call{Peer: d, ID: a.id, Token: a.token, Data: a}
	p, err := d.prepare(call, a)
	if err != nil {
		a.fail(jsonrpc.CodeInvalidParams, err.Error(), `{"outcome":"not_executed"}`)
		return func(string) {}
	}
	listens := a.method == "subscriptions/listen"
	if listens {
		d.mu.Lock()
		d.listens[call] = true
		d.mu.Unlock()
	}
	if p != nil {
		err = d.pursue(call, a, p)
	} else {
		err = d.conv.Call(call, a.message)
	}
	if err != nil {
		a.fail(jsonrpc.CodeInternal, err.Error(), `{"outcome":"not_executed"}`)
	} else {
		a.sent()
	}
	return func(reason string) {
		if listens {
			d.forget(call)
		}
		d.conv.Cancel(call, conversation.Cancelled(reason))
	}
}

// follows returns whether a task that the server makes of the call is to be
// followed: its client cannot take one, or has one of the gateway's already.
func (a *asked) follows() func() bool {
	switch j := a.job; {
	case a.shared || !era.TakesTasks(a.capabilities):
		return func() bool { return true }
	case j != nil:
		return func() bool { return !j.pass() }
	}
	return nil
}

// forget reports whether a subscription was still open.
func (d *direct) forget(call *conversation.Call) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	open := d.listens[call]
	delete(d.listens, call)
	return open
}

// close ends the subscriptions in order (2026-07-28 basic/patterns/subscriptions,
// "Graceful Closure").
func (d *direct) close() {
	d.rest()
	d.mu.Lock()
	calls := slices.Collect(maps.Keys(d.listens))
	d.mu.Unlock()
	for _, call := range calls {
		if d.forget(call) && d.conv.Cancel(call, conversation.Cancelled("the gateway is shutting down")) {
			(&listener{a: call.Data.(*asked)}).finish()
		}
	}
}

// Answer implements conversation.Peer.
func (d *direct) Answer(call *conversation.Call, msg []byte) {
	if call.Is("subscriptions/listen") {
		d.forget(call)
	}
	if call.Is("server/discover") {
		if msg = withHandshake(msg); d.h.o.Tasks != nil {
			msg = withTasks(msg)
		}
	}
	a := call.Data.(*asked)
	if !d.again(call, a, msg) {
		a.answer(msg)
	}
}

// withTasks adds to a DiscoverResult that calls may become tasks.
func withTasks(answer []byte) []byte {
	m, err := jsonrpc.Parse(answer)
	if err != nil || !m.Has(jsonrpc.Result) {
		return answer
	}
	result := m.Raw(jsonrpc.Result)
	capabilities := jsonrpc.Get(result, "capabilities")
	if era.TakesTasks(capabilities) {
		return answer
	}
	return m.Append(nil, jsonrpc.Edit{Field: jsonrpc.Result, With: jsonrpc.AppendObject(nil, result, nil,
		jsonrpc.Member{Key: "capabilities", Value: era.WithTasks(capabilities)})})
}

// Message implements conversation.Peer.
func (d *direct) Message(call *conversation.Call, msg []byte) {
	if call == nil {
		return
	}
	a := call.Data.(*asked)
	if a.level == "" {
		// A log message names no call; who did not ask for any is not meant.
		if m, err := jsonrpc.Parse(msg); err != nil || m.Is("notifications/message") {
			return
		}
	}
	a.note(msg)
}

// Gone implements conversation.Peer: the next request looks for another server.
func (d *direct) Gone(error) {
	d.rest()
	d.h.mu.Lock()
	if d.h.direct == d {
		d.h.direct = nil
	}
	d.h.mu.Unlock()
}
