package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/era/streamable"
	"github.com/holdfast-mcp/holdfast/internal/httpclient"
	"github.com/holdfast-mcp/holdfast/internal/sse"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// errSilent: nothing came over a stream for IdleTimeout.
var errSilent = errors.New("remote: no sign of life on the stream")

// cursor is how far a stream was read.
type cursor struct {
	last  string        // event id
	retry time.Duration // what the server asked for; 0: nothing
	heard bool          // a message came since the latest connection
	since time.Time     // when that began
	long  bool          // a message over the limit was skipped
}

// good reports whether the connection that ended was one worth having.
func (c *cursor) good() bool { return c.heard || time.Since(c.since) >= longEnough }

func (c *cursor) base() time.Duration {
	if c.retry > 0 {
		return c.retry
	}
	return defaultRetry
}

// pulse watches a response for silence. Whether silence may end it is looked at
// when it lasts: a stream that cannot be resumed is ended only if its server is
// one that keeps streams alive.
type pulse struct {
	r         io.Reader
	limit     time.Duration
	timer     *time.Timer
	expected  atomic.Bool // silence means something
	keepAlive atomic.Bool // comments came
}

func newPulse(r io.Reader, limit time.Duration, end func(error)) *pulse {
	p := &pulse{r: r, limit: limit}
	p.timer = time.AfterFunc(limit, func() {
		if p.expected.Load() || p.keepAlive.Load() {
			end(errSilent)
		} else {
			p.timer.Reset(limit)
		}
	})
	return p
}

// Read implements io.Reader.
func (p *pulse) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if n > 0 {
		p.timer.Reset(p.limit)
		if b[0] == ':' {
			p.keepAlive.Store(true)
		}
	}
	return n, err
}

// readStream reads a stream to its end and returns why that came. cancel ends
// the response. event is called with each event; it returns an error to stop.
func (l *Link) readStream(body io.Reader, cur *cursor, standing bool, cancel func(error), event func(ev sse.Event) error) error {
	p := newPulse(body, l.o.IdleTimeout, cancel)
	defer p.timer.Stop()
	p.expected.Store(standing)
	d := sse.NewDecoder(p, l.o.MaxMessage)
	d.DeliverUnterminated = true
	cur.heard, cur.since, cur.long = false, time.Now(), false
	for {
		ev, err := d.Next()
		if retry, ok := d.Retry(); ok {
			cur.retry = retry
		}
		switch {
		case errors.Is(err, sse.ErrTooLong):
			cur.long = true
			l.tooLong(d.Head())
		case err == io.EOF:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
		if d.LastID() != "" { // of a complete event
			cur.last = d.LastID()
			p.expected.Store(true)
		}
		if err == nil {
			if err := event(ev); err != nil {
				return err
			}
		}
	}
}

// tooLong tells of a message over the limit.
func (l *Link) tooLong(head []byte) {
	if id, response := jsonrpc.PeekID(head); response {
		l.mu.Lock()
		msg := l.pending[string(id)]
		l.mu.Unlock()
		if msg != nil {
			l.failLong(msg)
			return
		}
	}
	l.up.oversize(head, l.o.MaxMessage+1)
}

// failLong answers a request whose answer is over the limit.
func (l *Link) failLong(msg *message) {
	l.fail(msg, &failure{outcome: executed, code: jsonrpc.CodeInternal,
		text: fmt.Sprintf("the answer is longer than %d bytes (--max-body)", l.o.MaxMessage)})
}

// messages returns what takes the events of a stream as messages: those of type
// message, and of them those that have data. What is named otherwise, or has
// none, is a sign of life.
func (l *Link) messages(cur *cursor, of *message) func(ev sse.Event) error {
	return func(ev sse.Event) error {
		if ev.Type() == "message" && len(ev.Data) > 0 && l.incoming(ev.Data, of) {
			cur.heard = true
		}
		return nil
	}
}

// isEvents reports whether a response is an event stream.
func isEvents(h http.Header) bool {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return kind == "text/event-stream"
}

// request sends a request and sees to its answer.
func (l *Link) request(msg *message) {
	defer msg.cancel(nil)
	if msg.modern && msg.method == "subscriptions/listen" {
		l.subscribe(msg)
		return
	}
	ctx, cancel := context.WithCancelCause(msg.ctx)
	defer cancel(nil)
	resp, r, to, err := l.post(ctx, msg)
	if r != nil && msg.modern && l.stale(msg, r, to) {
		resp, r, to, err = l.post(ctx, msg)
	}
	switch {
	case to != nil && to.end != nil:
		l.awaitEvent(msg, resp, r, err)
	case err != nil:
		l.fail(msg, failureOf(err))
	case r != nil:
		l.refused(msg, r, "")
	default:
		l.read(msg, resp, to, cancel)
	}
}

// read takes the response to a request: one message, or a stream.
func (l *Link) read(msg *message, resp *httpclient.Response, to *route, cancel context.CancelCauseFunc) {
	if msg.handshake() {
		msg.given = streamable.SessionID(resp.Header)
	}
	if isEvents(resp.Header) {
		l.follow(msg, resp, to, cancel)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	p := newPulse(resp.Body, l.o.IdleTimeout, cancel)
	defer p.timer.Stop()
	p.expected.Store(true)
	body, err := io.ReadAll(io.LimitReader(p, int64(l.o.MaxMessage)+1))
	switch {
	case len(body) > l.o.MaxMessage:
		l.failLong(msg)
	case errors.Is(err, httpclient.ErrEncoding):
		l.fail(msg, &failure{outcome: executed, status: resp.Status, text: "the answer cannot be read: " + err.Error()})
	case complete(body): // whatever the length that was announced
		l.incoming(body, msg)
		l.fail(msg, &failure{outcome: unknown, status: resp.Status, text: "the response holds no answer to the request"})
	case err != nil:
		l.fail(msg, &failure{outcome: unknown, status: resp.Status, text: "the connection ended before the answer: " + err.Error()})
	default:
		l.fail(msg, &failure{outcome: unknown, status: resp.Status,
			text: fmt.Sprintf("HTTP %d with Content-Type %.100q holds no JSON-RPC message: is this the URL of an MCP endpoint?", resp.Status, resp.Header.Get("Content-Type"))})
	}
}

// complete reports whether a body is one message, or a batch.
func complete(body []byte) bool {
	_, err := jsonrpc.Parse(body)
	return err == nil || errors.Is(err, jsonrpc.ErrBatch)
}

// linger is how long a stream may go on after its request was answered.
const linger = time.Second

// follow reads the stream that answers a request. A stream of the handshake era
// that breaks is resumed, if its events have ids (2025-11-25 basic/transports,
// "Resumability and Redelivery"); the request is never sent again.
func (l *Link) follow(msg *message, resp *httpclient.Response, to *route, cancel context.CancelCauseFunc) {
	cur := &cursor{}
	var p pace
	take := l.messages(cur, msg)
	for {
		enough, answered := cancel, false
		err := l.readStream(resp.Body, cur, false, cancel, func(ev sse.Event) error {
			_ = take(ev)
			if !answered && msg.isSettled() {
				answered = true
				time.AfterFunc(linger, func() { enough(nil) })
			}
			return nil
		})
		_ = resp.Body.Close()
		cancel(nil)
		switch {
		case msg.isSettled() || msg.ctx.Err() != nil:
			l.fail(msg, &failure{outcome: unknown, text: "the link was closed"})
			return
		case cur.long:
			l.failLong(msg)
			return
		case msg.modern || cur.last == "":
			l.fail(msg, &failure{outcome: unknown, text: fmt.Sprintf("the stream was lost before the answer: %v", err)})
			return
		}
		if cur.good() {
			p.reset()
		}
		if resp, cancel, err = l.resume(msg.ctx, to, cur, &p, err == io.ErrUnexpectedEOF); err != nil {
			l.fail(msg, &failure{outcome: unknown, text: fmt.Sprintf("the stream was lost before the answer, and not resumed: %v", err)})
			return
		}
	}
}

// resume opens a stream again where it ended. It goes on trying as long as the
// server cannot be reached, up to ReconnectWait.
func (l *Link) resume(ctx context.Context, to *route, cur *cursor, p *pace, inOrder bool) (*httpclient.Response, context.CancelCauseFunc, error) {
	lost := time.Now()
	limit := l.o.RetryMax
	if inOrder && cur.retry > 0 { // it wants to be polled
		limit = pollMax
	}
	for {
		if !pause(ctx, p.next(max(cur.base(), l.o.RetryMin), limit)) {
			return nil, nil, context.Cause(ctx)
		}
		resp, cancel, err := l.get(ctx, to.sess, cur.last)
		if err == nil {
			return resp, cancel, nil
		}
		g, _ := errors.AsType[*getError](err)
		if !g.passing() || time.Since(lost) >= l.o.ReconnectWait {
			if g.lost {
				l.wg.Go(func() { _ = l.renew(l.ctx, to) }) // bounded like any renewal
			}
			return nil, nil, err
		}
		limit = l.o.RetryMax
	}
}

// getError is a GET that brought no stream.
type getError struct {
	status int // 0: no response
	lost   bool
	after  time.Duration
	err    error
}

// Error implements error.
func (e *getError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *getError) Unwrap() error { return e.err }

// passing reports whether it is worth trying again.
func (e *getError) passing() bool {
	switch e.status {
	case 0:
		return !final(e.err)
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return e.status >= http.StatusInternalServerError && e.status != http.StatusNotImplemented
}

// get opens an event stream of a session, and returns what ends it: to be
// called in any case. The error is a *getError.
func (l *Link) get(ctx context.Context, sess *session, last string) (*httpclient.Response, context.CancelCauseFunc, error) {
	h := http.Header{"Accept": {"text/event-stream"}}
	if sess != nil {
		sess.SetHeaders(h)
	}
	streamable.SetLast(h, last)
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(l.o.IdleTimeout, func() { cancel(errSilent) })
	defer late.Stop()
	resp, err := l.client.Do(ctx, httpclient.Request{Method: http.MethodGet, URL: l.url, Header: h})
	if err != nil {
		cancel(nil)
		return nil, nil, &getError{err: err}
	}
	if resp.Status == http.StatusOK && isEvents(resp.Header) {
		return resp, cancel, nil
	}
	defer cancel(nil)
	g := &getError{status: resp.Status, err: fmt.Errorf("HTTP %d with Content-Type %.60q in place of an event stream", resp.Status, resp.Header.Get("Content-Type"))}
	g.after, _ = retryAfter(resp.Header)
	if resp.Status/100 != 2 {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
		g.lost = sess != nil && sess.Lost(resp.Status, body)
	}
	_ = resp.Body.Close()
	return nil, nil, g
}
