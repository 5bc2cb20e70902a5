package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/era/streamable"
	"github.com/holdfast-mcp/holdfast/internal/httpclient"
	"github.com/holdfast-mcp/holdfast/internal/sse"
)

// eventStream is the one stream of HTTP+SSE, over all its connections. Guarded
// by the link's mu.
type eventStream struct {
	endpoint *url.URL      // where messages are posted to; nil while there is no stream
	ready    chan struct{} // closed once endpoint is there
	last     string        // the latest endpoint, which the handshake was made at
	cut      context.CancelCauseFunc
}

// errEndpoint: the stream names no place to post to, or none that can be used.
var errEndpoint = errors.New("remote: no usable endpoint event")

// openEvents opens the event stream, and returns once it has named its endpoint.
// It is held open from then on.
func (l *Link) openEvents() error {
	l.mu.Lock()
	if l.events != nil { // another handshake on the same stream
		l.mu.Unlock()
		return nil
	}
	es := &eventStream{ready: make(chan struct{})}
	l.mu.Unlock()
	first := make(chan error, 1)
	l.wg.Go(func() { l.holdEvents(es, first) }) // ends with l.ctx, or if first gets an error
	if err := <-first; err != nil {
		l.o.Memory.setEvents(l.name, false)
		return err
	}
	l.o.Memory.setEvents(l.name, true)
	l.log.Info("the server speaks HTTP+SSE")
	return nil
}

// holdEvents opens the stream again and again. first is told how it went the
// first time.
func (l *Link) holdEvents(es *eventStream, first chan<- error) {
	cur := &cursor{}
	var p pace
	down := time.Now()
	told := false
	for {
		named := false
		err := l.connectEvents(es, cur, func() {
			named = true
			if !told {
				told = true
				l.mu.Lock()
				l.events = es
				l.mu.Unlock()
				first <- nil
			}
		})
		if !told {
			first <- err
			return
		}
		l.downEvents(es)
		if named {
			down = time.Now()
			if cur.good() {
				p.reset()
			}
		}
		l.log.Debug("the event stream ended", "why", err)
		wait := p.next(max(cur.base(), l.o.RetryMin), l.o.RetryMax)
		if g, ok := errors.AsType[*getError](err); ok {
			wait = max(wait, g.after)
		}
		if left := time.Until(down.Add(l.o.ReconnectWait)); left > 0 && left < wait {
			pause(l.ctx, left)
			wait -= left
		}
		if time.Since(down) >= l.o.ReconnectWait {
			l.failAll(failure{outcome: unknown, text: fmt.Sprintf("the event stream was lost before the answer: %v", err)})
		}
		if !pause(l.ctx, wait) {
			return
		}
	}
}

// downEvents notes that there is no stream.
func (l *Link) downEvents(es *eventStream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	es.cut = nil
	if es.endpoint != nil {
		es.endpoint, es.ready = nil, make(chan struct{})
	}
}

// breakEvents ends the connection of a stream whose endpoint is gone.
func (l *Link) breakEvents(end *url.URL) {
	l.mu.Lock()
	es := l.events
	var cut context.CancelCauseFunc
	if es != nil && es.endpoint == end {
		cut = es.cut
		es.endpoint, es.ready = nil, make(chan struct{})
	}
	l.mu.Unlock()
	if cut != nil {
		cut(errors.New("remote: the server does not know the stream's session any more"))
	}
}

// connectEvents opens the stream and reads it to its end. arrived is called
// once it has an endpoint.
func (l *Link) connectEvents(es *eventStream, cur *cursor, arrived func()) error {
	ctx, cancel := context.WithCancelCause(l.ctx)
	defer cancel(nil)
	h := http.Header{"Accept": {"text/event-stream"}}
	streamable.SetLast(h, cur.last)
	late := time.AfterFunc(2*l.o.ConnectTimeout, func() { cancel(fmt.Errorf("%w within %s", errEndpoint, 2*l.o.ConnectTimeout)) })
	defer late.Stop()
	resp, err := l.client.Do(ctx, httpclient.Request{Method: http.MethodGet, URL: l.url, Header: h})
	if err != nil {
		return &getError{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.Status != http.StatusOK || !isEvents(resp.Header) {
		if resp.Status/100 == 4 { // it may be the event that it does not know
			cur.last = ""
		}
		g := &getError{status: resp.Status, err: fmt.Errorf("HTTP %d with Content-Type %.60q in place of an event stream", resp.Status, resp.Header.Get("Content-Type"))}
		g.after, _ = retryAfter(resp.Header)
		return g
	}
	take := l.messages(cur, nil)
	named := false
	err = l.readStream(resp.Body, cur, false, cancel, func(ev sse.Event) error {
		if ev.Type() != "endpoint" {
			return take(ev)
		}
		if named { // the first one stays
			return nil
		}
		end, err := endpoint(resp.URL, string(ev.Data))
		if err != nil {
			return err
		}
		named = true
		late.Stop()
		arrived()
		l.atEndpoint(ctx, es, end, cancel)
		return nil
	})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if !named && err == io.ErrUnexpectedEOF {
		return errEndpoint
	}
	return err
}

// atEndpoint lets messages be posted to a stream's endpoint. One that the
// handshake was not made at is a new session, where it is made again first.
func (l *Link) atEndpoint(ctx context.Context, es *eventStream, end *url.URL, cut context.CancelCauseFunc) {
	l.mu.Lock()
	es.cut = cut
	again := es.last != "" && es.last != end.String() && l.hello != nil
	if !again {
		es.last = end.String()
		l.readyLocked(es, end)
	}
	l.mu.Unlock()
	if !again {
		return
	}
	l.failAll(failure{outcome: unknown, text: "the event stream was lost before the answer, and the server has no memory of its session"})
	l.log.Info("the server has lost the session; another one is opened")
	l.wg.Go(func() { // bounded by the times of its requests
		fresh, err := l.greet(&route{url: end, end: end})
		if ctx.Err() != nil { // the next stream makes it again
			return
		}
		if err != nil {
			cut(err)
			if errors.Is(err, ErrRefused) || errors.Is(err, ErrChanged) {
				l.giveUp(err)
			}
			return
		}
		l.mu.Lock()
		l.session = fresh
		es.last = end.String()
		l.readyLocked(es, end)
		l.mu.Unlock()
		l.up.renewed()
	})
}

func (l *Link) readyLocked(es *eventStream, end *url.URL) {
	if es.endpoint == nil {
		close(es.ready)
	}
	es.endpoint = end
}

// awaitEvent sees to the answer to a request that was posted to an endpoint:
// it comes over the event stream.
func (l *Link) awaitEvent(msg *message, resp *httpclient.Response, r *refusal, err error) {
	var late <-chan time.Time
	_, final := errors.AsType[*failure](err)
	switch {
	case r != nil:
		l.refused(msg, r, "")
	case err != nil && (final || failureOf(err).outcome == notExecuted):
		l.fail(msg, failureOf(err))
	case err != nil: // the answer may come all the same
		t := time.NewTimer(l.o.ReconnectWait)
		defer t.Stop()
		late = t.C
	default:
		discard(resp)
	}
	select {
	case <-msg.settled:
	case <-late:
		l.fail(msg, failureOf(err))
	case <-msg.ctx.Done():
		l.fail(msg, &failure{outcome: unknown, text: "the link was closed"})
	}
}
