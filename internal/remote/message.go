package remote

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/holdfast-mcp/holdfast/internal/stdio"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// maxPending bounds the requests without an answer.
const maxPending = 4096

// message is one message on its way to the server.
type message struct {
	m      *jsonrpc.Message
	method string
	modern bool   // of the stateless era
	own    bool   // of the link itself: its answer goes to inner
	fixed  *route // where it goes, whatever the link knows; nil: as all do

	// Of a request.
	id       string // as spelled
	inner    chan *jsonrpc.Message
	ctx      context.Context
	cancel   context.CancelCauseFunc
	wrote    chan struct{} // closed once it is written, or over
	wroteOne sync.Once
	begun    chan struct{} // closed once the response has begun, or there is none
	begunOne sync.Once
	settled  chan struct{} // closed once it is answered, or not waited for any more
	given    string        // the session id that came with the answer to initialize

	// Guarded by the link's mu.
	dispatched bool
	posted     bool     // it may have reached the server
	posting    bool     // that will be known in a moment
	owed       *failure // what it then ends with, if it has
	released   bool     // it does not count as waiting any more
	failed     bool     // its answer is an error of the link's own
}

func (msg *message) request() bool { return msg.m.Kind() == jsonrpc.Request }

// handshake reports whether the message opens a session.
func (msg *message) handshake() bool {
	return !msg.modern && msg.request() && msg.method == "initialize"
}

func (msg *message) isSettled() bool {
	select {
	case <-msg.settled:
		return true
	default:
		return false
	}
}

func (msg *message) markWrote() { msg.wroteOne.Do(func() { close(msg.wrote) }) }

// safe reports whether the request changes nothing, so that it may be sent
// again although it may have been executed.
func (msg *message) safe() bool {
	if !msg.request() {
		return false
	}
	switch msg.method {
	case "initialize", "ping", "server/discover", "resources/read", "subscriptions/listen":
		return true
	}
	return strings.HasSuffix(msg.method, "/list")
}

func (l *Link) newMessage(line []byte) (*message, error) {
	m, err := jsonrpc.Parse(line)
	if err != nil {
		return nil, err
	}
	msg := &message{m: m, method: string(m.Text(jsonrpc.Method)), modern: m.Has(jsonrpc.MetaVersion), wrote: make(chan struct{}), begun: make(chan struct{})}
	if msg.request() {
		msg.id = string(m.Raw(jsonrpc.ID))
		msg.settled = make(chan struct{})
		msg.ctx, msg.cancel = context.WithCancelCause(l.ctx)
	}
	return msg, nil
}

// enqueue takes a message whose bytes are the link's.
func (l *Link) enqueue(line []byte) error {
	msg, err := l.newMessage(line)
	if err != nil {
		return fmt.Errorf("remote: send: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
		return fmt.Errorf("remote: send: %w", l.err)
	case l.waiting > 0 && l.waiting+len(line) > l.o.MaxQueue, msg.request() && len(l.pending) >= maxPending:
		return fmt.Errorf("remote: send: %w", stdio.ErrBusy)
	case msg.request() && l.pending[msg.id] != nil:
		return fmt.Errorf("remote: send: the id %.100s is in use", msg.id)
	}
	if msg.method == "notifications/cancelled" && l.dropLocked(string(msg.m.Raw(jsonrpc.RequestID))) {
		return nil
	}
	if msg.request() {
		l.pending[msg.id] = msg
	} else {
		l.errands++
	}
	l.waiting += len(line)
	l.queue = append(l.queue, msg)
	select {
	case l.queued <- struct{}{}:
	default:
	}
	return nil
}

// dropLocked takes a request back that is still in the queue.
func (l *Link) dropLocked(id string) bool {
	for i, msg := range l.queue {
		if msg.request() && msg.id == id {
			l.queue = append(l.queue[:i], l.queue[i+1:]...)
			l.takeLocked(msg)
			l.releaseLocked(msg)
			msg.cancel(errCancelled)
			return true
		}
	}
	return false
}

// next waits for a message. It returns nil once the link is over.
func (l *Link) next() *message {
	for {
		l.mu.Lock()
		if len(l.queue) > 0 {
			msg := l.queue[0]
			l.queue[0] = nil
			l.queue = l.queue[1:]
			msg.dispatched = true
			l.mu.Unlock()
			return msg
		}
		l.mu.Unlock()
		select {
		case <-l.queued:
		case <-l.ctx.Done():
			return nil
		}
	}
}

// dispatch starts the sending of messages, in order. Requests overtake each
// other only on their own connections. Nothing overtakes a handshake, and of
// notifications each waits for the one before.
func (l *Link) dispatch() {
	before := make(chan struct{})
	close(before)
	for {
		msg := l.next()
		switch {
		case msg == nil:
			return
		case msg.handshake():
			l.wg.Go(func() { l.open(msg) }) // ends with its answer
			select {
			case <-msg.settled:
			case <-l.ctx.Done():
			}
		case msg.request():
			l.wg.Go(func() { l.request(msg) }) // ends with its answer
		case msg.method == "notifications/initialized" && !msg.modern:
			l.initialized(msg)
		case msg.method == "notifications/cancelled":
			l.wg.Go(func() { l.cancelled(msg) }) // bounded by PostTimeout and ReconnectWait
		case msg.m.Kind() == jsonrpc.Response:
			l.wg.Go(func() { l.errand(msg) }) // likewise
		default:
			previous, done := before, make(chan struct{})
			before = done
			l.wg.Go(func() { // likewise
				defer close(done)
				select {
				case <-previous:
				case <-l.ctx.Done():
				}
				l.errand(msg)
			})
		}
	}
}

// release says that the server has taken a message, or never will.
func (l *Link) release(msg *message) {
	msg.markWrote()
	msg.begunOne.Do(func() { close(msg.begun) })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.releaseLocked(msg)
}

func (l *Link) releaseLocked(msg *message) {
	if msg.released || msg.own {
		return
	}
	msg.released = true
	l.waiting -= len(msg.m.Bytes())
	if msg.request() {
		return
	}
	if l.errands--; l.errands == 0 && l.flushed != nil {
		close(l.flushed)
		l.flushed = nil
	}
}

// take ends the waiting for an answer. It reports false if that was over
// before: whoever gets true gives the one answer.
func (l *Link) take(msg *message) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.takeLocked(msg)
}

func (l *Link) takeLocked(msg *message) bool {
	if l.pending[msg.id] != msg {
		return false
	}
	delete(l.pending, msg.id)
	close(msg.settled)
	return true
}
