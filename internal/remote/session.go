package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/era/streamable"
	"github.com/holdfast-mcp/holdfast/internal/httpclient"
	"github.com/holdfast-mcp/holdfast/internal/stdio"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// session is what an initialize led to. It is replaced, never changed.
type session struct {
	streamable.Session
	ctx    context.Context // of its standing stream
	cancel context.CancelFunc
}

// flight is a renewal of the session, for all who find it gone.
type flight struct {
	done chan struct{}
	err  error // once done is closed
}

// newSession must be followed by its cancel.
func (l *Link) newSession(id string, result []byte) *session {
	var version era.Version
	_ = json.Unmarshal(jsonrpc.Get(result, "protocolVersion"), &version)
	if strings.ContainsFunc(string(version), func(r rune) bool { return r < 0x21 || r > 0x7e }) {
		version = "" // no header can carry it
	}
	s := &session{Session: streamable.Session{ID: id, Version: version}}
	s.ctx, s.cancel = context.WithCancel(l.ctx)
	return s
}

// openedLocked notes how initialize was answered, before anybody knows.
func (l *Link) openedLocked(msg *message, m *jsonrpc.Message) {
	if l.session != nil {
		l.session.cancel()
	}
	l.promise = bytes.Clone(m.Raw(jsonrpc.Result))
	l.session = l.newSession(msg.given, l.promise)
	l.hello, l.greeted = bytes.Clone(msg.m.Bytes()), nil
}

// open sends the initialize that opens a session. Which of the two transports of
// the handshake era the server speaks shows in how it takes that (2025-11-25
// basic/transports, "Backwards Compatibility").
func (l *Link) open(msg *message) {
	defer msg.cancel(nil)
	ctx, cancel := context.WithCancelCause(msg.ctx)
	defer cancel(nil)
	l.mu.Lock()
	events := l.events
	l.mu.Unlock()
	known := events != nil || l.o.Memory.isEvents(l.name)
	if known && l.openEvents() == nil {
		l.request(msg)
		return
	}
	resp, r, to, err := l.post(ctx, msg)
	switch {
	case err != nil:
		l.fail(msg, failureOf(err))
	case r == nil:
		l.o.Memory.setEvents(l.name, false)
		l.read(msg, resp, to, cancel)
	case !r.modern() && (r.status == http.StatusBadRequest || r.status == http.StatusNotFound || r.status == http.StatusMethodNotAllowed):
		if err := l.openEvents(); err != nil {
			l.refused(msg, r, "and no HTTP+SSE: "+err.Error())
			return
		}
		l.request(msg)
	default:
		l.refused(msg, r, "")
	}
}

// standingWait is how long what comes after the handshake waits for the server's
// standing stream to begin. Some servers put their questions there, and forget
// those that they have while there is none.
const standingWait = time.Second

// initialized delivers the end of the handshake, and then opens the standing
// stream, before anything that comes after it.
func (l *Link) initialized(msg *message) {
	l.mu.Lock()
	l.greeted = bytes.Clone(msg.m.Bytes())
	l.mu.Unlock()
	l.errand(msg)
	l.mu.Lock()
	sess, events := l.session, l.events
	l.mu.Unlock()
	if sess != nil && events == nil {
		tried := make(chan struct{})
		l.wg.Go(func() { l.listen(sess, sync.OnceFunc(func() { close(tried) })) }) // ends with the session
		late := time.NewTimer(standingWait)
		defer late.Stop()
		select {
		case <-tried:
		case <-late.C:
		case <-l.ctx.Done():
		}
	}
}

// listen holds the stream of what belongs to no request. A server need not have
// one. tried is called once it is known whether it is there.
func (l *Link) listen(sess *session, tried func()) {
	defer tried()
	cur := &cursor{}
	var p pace
	to := &route{url: l.url, sess: sess}
	for sess.ctx.Err() == nil && !l.streamless() {
		resp, cancel, err := l.get(sess.ctx, sess, cur.last)
		tried()
		wait := cur.base()
		if err != nil {
			g, _ := errors.AsType[*getError](err)
			switch {
			case g.lost:
				if err := l.renew(sess.ctx, to); err == nil || errors.Is(err, ErrRefused) {
					return // the new session has a stream of its own
				}
			case !g.passing():
				l.log.Debug("the server has no stream for what belongs to no request", "why", err)
				l.mu.Lock()
				l.noStream = true
				l.mu.Unlock()
				return
			default:
				l.log.Debug("the server's stream cannot be opened", "why", err)
			}
			wait = max(wait, g.after)
		} else {
			var silent atomic.Bool
			err = l.readStream(resp.Body, cur, true, func(err error) { silent.Store(true); cancel(err) }, l.messages(cur, nil))
			cancel(nil)
			_ = resp.Body.Close()
			if silent.Load() { // it may be as it should be: nothing is missed for long
				p.reset()
				continue
			}
			if cur.good() {
				p.reset()
			}
			l.log.Debug("the server's stream ended", "why", err)
		}
		pause(sess.ctx, p.next(max(wait, l.o.RetryMin), l.o.RetryMax))
	}
}

func (l *Link) streamless() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.noStream
}

// lost reports whether a refusal says that the server knows the session no
// more. An answer to a question of that session is of no use to another one.
func (l *Link) lost(msg *message, r *refusal, to *route) bool {
	switch {
	case msg.modern || msg.own || msg.handshake() || msg.m.Kind() == jsonrpc.Response:
		return false
	case to.end != nil:
		return streamable.Session{ID: "of the stream"}.Lost(r.status, r.body)
	}
	return to.sess != nil && to.sess.Lost(r.status, r.body)
}

// renew returns once the session of a route is replaced: by one flight for all
// who find it gone.
func (l *Link) renew(ctx context.Context, to *route) error {
	if to.end != nil {
		l.breakEvents(to.end)
		return nil // whoever needs the stream waits for it
	}
	l.mu.Lock()
	if err := l.err; err != nil || l.session != to.sess {
		l.mu.Unlock()
		return err
	}
	f := l.flight
	if f == nil {
		f = &flight{done: make(chan struct{})}
		l.flight = f
		l.wg.Go(func() { // bounded by the times of its requests
			f.err = l.reopen(to.sess)
			over := errors.Is(f.err, ErrRefused) || errors.Is(f.err, ErrChanged)
			l.mu.Lock()
			l.flight = nil
			if over && l.err == nil { // together: nobody may start another flight
				l.err = fmt.Errorf("%w: %w", stdio.ErrClosed, f.err)
			}
			l.mu.Unlock()
			close(f.done)
			if over {
				l.giveUp(f.err)
			}
		})
	}
	l.mu.Unlock()
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// reopenLimit bounds the answer to an initialize of the link's own.
const reopenLimit = time.Minute

// reopen makes a new session with what the client said for the old one.
func (l *Link) reopen(old *session) error {
	old.cancel()
	l.log.Info("the server has lost the session; another one is opened")
	fresh, err := l.greet(&route{url: l.url})
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.session = fresh
	greeted := l.greeted != nil
	l.mu.Unlock()
	if greeted {
		l.wg.Go(func() { l.listen(fresh, func() {}) }) // ends with the session
	}
	l.up.renewed()
	return nil
}

// greet repeats the handshake on a route.
func (l *Link) greet(to *route) (*session, error) {
	l.mu.Lock()
	hello, promise, greeted := l.hello, l.promise, l.greeted
	l.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(l.ctx, reopenLimit, errors.New("no answer to initialize"))
	defer cancel()
	m, err := jsonrpc.Parse(hello)
	if err != nil {
		return nil, fmt.Errorf("remote: kept initialize: %w", err)
	}
	id := l.ownID("renew")
	answer, msg, err := l.ask(ctx, m.Append(nil, jsonrpc.Edit{Field: jsonrpc.ID, With: []byte(id)}), to)
	switch {
	case err != nil:
		return nil, err
	case !answer.Has(jsonrpc.Result):
		fault := answer.Raw(jsonrpc.Error)
		if status := string(jsonrpc.Get(jsonrpc.Get(fault, "data"), "status")); status >= "5" || status == "429" || status == "" && msg.failed {
			return nil, fmt.Errorf("remote: initialize: %.500s", fault) // it is not there
		}
		return nil, fmt.Errorf("%w: %.500s", ErrRefused, fault)
	case !era.KeepsPromise(promise, answer.Raw(jsonrpc.Result)):
		return nil, ErrChanged
	}
	fresh := l.newSession(msg.given, answer.Raw(jsonrpc.Result))
	if greeted == nil {
		return fresh, nil
	}
	to = &route{url: to.url, end: to.end, sess: fresh, header: http.Header{}}
	fresh.SetHeaders(to.header)
	note, err := l.newMessage(greeted)
	if err != nil {
		return nil, fmt.Errorf("remote: kept initialized: %w", err)
	}
	note.own, note.fixed = true, to
	l.errand(note)
	return fresh, nil
}

// opening returns the initialize that the server has not answered, nil for none,
// once the server has begun to, or for StopTimeout. It may have opened a session
// already, which nobody else would end: the message has its id when all
// goroutines have ended.
func (l *Link) opening() *message {
	l.mu.Lock()
	var opening *message
	for _, msg := range l.pending {
		if msg.handshake() && msg.posted {
			opening = msg
		}
	}
	l.mu.Unlock()
	if opening == nil {
		return nil
	}
	late := time.NewTimer(l.o.StopTimeout)
	defer late.Stop()
	select {
	case <-opening.begun:
	case <-late.C:
	case <-l.ctx.Done():
	}
	return opening
}

// end tells the server that the session is over, if it has any.
func (l *Link) end(sess *session) {
	if sess == nil || sess.ID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.o.StopTimeout)
	defer cancel()
	h := http.Header{}
	sess.SetHeaders(h)
	resp, err := l.client.Do(ctx, httpclient.Request{Method: http.MethodDelete, URL: l.url, Header: h})
	if err != nil {
		l.log.Debug("the session could not be ended", "why", err)
		return
	}
	_ = resp.Body.Close()
}
