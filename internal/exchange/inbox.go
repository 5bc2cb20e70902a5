package exchange

import (
	"sync"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Inbox takes the stateless messages of one client whose requests share one
// channel, as on stdio and HTTP+SSE: there a request is cancelled by
// notifications/cancelled. Safe for concurrent use.
type Inbox struct {
	Host      *Host
	Principal string
	Emit      func(msg []byte, final bool) // takes what the client is to get; must not block

	mu      sync.Mutex           // guards the fields below
	running map[string]*inFlight // by id, as spelled
	closed  bool
}

// inFlight is one request of an inbox's client. Guarded by the inbox's mu.
type inFlight struct {
	receipt Receipt
	cancel  func(reason string) // nil until it is known
	gone    bool                // given up by the client
}

// Take handles one message, which is not kept.
func (b *Inbox) Take(m *jsonrpc.Message) { b.TakeKeyed(m, "") }

// TakeKeyed is Take for a message whose HTTP request brought an idempotency
// key; "" for none.
func (b *Inbox) TakeKeyed(m *jsonrpc.Message, key string) {
	switch {
	case m.Kind() == jsonrpc.Notification && m.Is("notifications/cancelled"):
		b.cancel(string(m.Raw(jsonrpc.RequestID)))
	case m.Kind() == jsonrpc.Request:
		b.request(m, key)
	}
}

func (b *Inbox) cancel(key string) {
	b.mu.Lock()
	var cancel func(string)
	if f := b.running[key]; f != nil {
		f.gone, cancel = true, f.cancel
		delete(b.running, key)
	}
	b.mu.Unlock()
	if cancel != nil {
		cancel("the client cancelled the request")
	}
}

func (b *Inbox) request(m *jsonrpc.Message, idempotency string) {
	key, f := string(m.Raw(jsonrpc.ID)), &inFlight{}
	b.mu.Lock()
	closed, taken := b.closed, b.running[key] != nil
	if !closed && !taken {
		if b.running == nil {
			b.running = map[string]*inFlight{}
		}
		b.running[key] = f
	}
	b.mu.Unlock()
	switch {
	case closed:
		return
	case taken:
		b.Emit(jsonrpc.AppendError(nil, []byte(key), jsonrpc.CodeInvalidRequest, "id "+key+" is in flight already", nil), true)
		return
	}
	listens := m.Is("subscriptions/listen")
	cancel, fail := b.Host.Serve(Request{Principal: b.Principal, Message: m, Receipt: &f.receipt, Key: idempotency, Emit: func(msg []byte, final bool) {
		if !b.wanted(key, f, final) {
			return
		}
		b.Emit(msg, final)
		if final { // whose channel it is keeps it until it is read
			f.receipt.Delivered()
		}
		if final && listens && ended(msg) {
			b.Emit([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+key+`}}`), false)
		}
	}})
	if fail != nil {
		if b.wanted(key, f, true) {
			b.Emit(fail.Answer([]byte(key)), true)
		}
		return
	}
	b.mu.Lock()
	f.cancel = cancel
	gone := f.gone || b.closed
	b.mu.Unlock()
	if gone { // meanwhile
		cancel("the client has given the request up")
	}
}

// wanted reports whether the client still wants to hear of a request, and
// forgets the request if this is the last there is to hear.
func (b *Inbox) wanted(key string, f *inFlight, final bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if final && b.running[key] == f {
		delete(b.running, key)
	}
	return !f.gone && !b.closed
}

// ended reports whether a subscription's answer is its end in order. Where all
// share a channel, a cancellation must follow it (2026-07-28 basic/patterns/
// cancellation).
func ended(msg []byte) bool {
	m, err := jsonrpc.Parse(msg)
	return err == nil && m.Has(jsonrpc.Result)
}

// InFlight returns how many requests are being served, subscriptions aside.
func (b *Inbox) InFlight() int {
	if b.Host == nil {
		return 0
	}
	return b.Host.InFlight()
}

// Close cancels what is running: the client has gone.
func (b *Inbox) Close() {
	b.mu.Lock()
	b.closed = true
	var cancels []func(string)
	for _, f := range b.running {
		if f.cancel != nil { // else request sees that the inbox is closed
			cancels = append(cancels, func(reason string) {
				if !f.receipt.Lost() {
					f.cancel(reason)
				}
			})
		}
	}
	b.running = nil
	b.mu.Unlock()
	for _, cancel := range cancels {
		cancel("the client has gone")
	}
}
