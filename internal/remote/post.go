package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/httpclient"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

var errCancelled = errors.New("remote: cancelled")

// route is where a message goes, and as part of what.
type route struct {
	url    *url.URL
	header http.Header
	sess   *session // of Streamable HTTP; nil for none
	end    *url.URL // of HTTP+SSE: the endpoint
}

// routeOf waits for a way to the server: for a session that is being renewed,
// for an event stream that names an endpoint.
func (l *Link) routeOf(ctx context.Context, msg *message, until time.Time) (*route, error) {
	h := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	if msg.fixed != nil {
		maps.Copy(h, msg.fixed.header)
		return &route{url: msg.fixed.url, header: h, sess: msg.fixed.sess, end: msg.fixed.end}, nil
	}
	late := time.NewTimer(time.Until(until))
	defer late.Stop()
	for {
		l.mu.Lock()
		flight, events, sess, modern := l.flight, l.events, l.session, l.modern
		var wait <-chan struct{}
		to := &route{url: l.url, header: h}
		switch {
		case msg.modern, sess == nil && events == nil && modern != "" && !msg.handshake():
			l.mu.Unlock()
			l.mirror.SetHeaders(h, msg.m, modern)
			return to, nil
		case events != nil && events.endpoint == nil:
			wait = events.ready
		case events != nil:
			to.url, to.end = events.endpoint, events.endpoint
			if sess != nil && sess.Version != "" {
				h.Set(era.HeaderVersion, string(sess.Version))
			}
		case flight != nil && !msg.handshake():
			wait = flight.done
		case sess != nil && !msg.handshake():
			to.sess = sess
			sess.SetHeaders(h)
		}
		l.mu.Unlock()
		if wait == nil {
			return to, nil
		}
		select {
		case <-wait:
		case <-late.C:
			return nil, &failure{outcome: notExecuted, text: fmt.Sprintf("it cannot be reached since %s", l.o.ReconnectWait)}
		case <-ctx.Done():
			return nil, &failure{outcome: notExecuted, text: context.Cause(ctx).Error()}
		}
	}
}

// post sends a message until the server has taken or refused it, or nothing
// more may be tried. What may have been executed is sent again only if it
// changes nothing. ctx bounds the response's body, too. Of response, refusal
// and error one is there.
func (l *Link) post(ctx context.Context, msg *message) (*httpclient.Response, *refusal, *route, error) {
	defer l.release(msg)
	until := time.Now().Add(l.o.ReconnectWait)
	var p pace
	var renewed, authorized bool
	for {
		to, err := l.routeOf(ctx, msg, until)
		if err != nil {
			return nil, nil, nil, err
		}
		credentials := l.client.Header().Get("Authorization")
		l.setPosting(msg)
		resp, err := l.client.Do(ctx, httpclient.Request{Method: http.MethodPost, URL: to.url, Header: to.header, Body: msg.m.Bytes(), Wrote: func() { l.wrote(msg) }})
		if err != nil {
			f, _ := errors.AsType[*httpclient.Failure](err)
			if owed := l.setPosted(msg, f.Sent); owed != nil {
				return nil, nil, to, owed
			}
			if ctx.Err() != nil || final(err) || f.Sent && !msg.safe() || !l.waitFor(ctx, p.next(sendFirst, sendMax), until) {
				return nil, nil, to, err
			}
			continue
		}
		if resp.Status/100 == 2 {
			if owed := l.setPosted(msg, true); owed != nil {
				discard(resp)
				return nil, nil, to, owed
			}
			return resp, nil, to, nil
		}
		r := l.refusalOf(msg, resp)
		switch {
		case r.status == http.StatusUnauthorized && !authorized && l.client.Header().Get("Authorization") != credentials:
			authorized = true // the token was replaced meanwhile
			continue
		case l.lost(msg, r, to) && !renewed:
			_ = l.setPosted(msg, false)
			if err := l.renew(ctx, to); err != nil {
				return nil, nil, to, &failure{outcome: notExecuted, status: r.status, text: fmt.Sprintf("the session is gone: %v", err)}
			}
			renewed = true
			continue
		case l.again(ctx, msg, r, &p, until):
			continue
		}
		_ = l.setPosted(msg, !r.notExecutedStatus()) // the refusal is its end
		return nil, r, to, nil
	}
}

// wrote notes that the server was sent a message.
func (l *Link) wrote(msg *message) {
	l.reached.CompareAndSwap(0, time.Now().UnixNano())
	msg.markWrote()
}

// again waits for another try at a request that was refused for now, if it may
// be sent once more.
func (l *Link) again(ctx context.Context, msg *message, r *refusal, p *pace, until time.Time) bool {
	switch after, said := retryAfter(r.header); {
	case (r.status == http.StatusServiceUnavailable || r.status == http.StatusTooManyRequests) && said:
		return l.waitFor(ctx, max(after, p.next(sendFirst, sendMax)), until)
	case r.status == http.StatusBadGateway, r.status == http.StatusServiceUnavailable, r.status == http.StatusGatewayTimeout:
		return msg.safe() && l.waitFor(ctx, p.next(sendFirst, sendMax), until)
	}
	return false
}

// retryAfter reads the header (RFC 9110 section 10.2.3).
func retryAfter(h http.Header) (time.Duration, bool) {
	v := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, time.Until(at)), true
	}
	return 0, false
}

// waitFor waits, unless that takes too long.
func (l *Link) waitFor(ctx context.Context, d time.Duration, until time.Time) bool {
	return !time.Now().Add(d).After(until) && pause(ctx, d)
}

// final reports whether trying again cannot help.
func final(err error) bool {
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	return certificate || errors.Is(err, httpclient.ErrOrigin) || errors.Is(err, httpclient.ErrRedirect)
}

func (l *Link) isPosted(msg *message) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return msg.posted
}

// setPosting says that the message is on its way, and may have arrived.
func (l *Link) setPosting(msg *message) {
	l.mu.Lock()
	msg.posted, msg.posting, msg.owed = true, true, nil
	l.mu.Unlock()
}

// setPosted says whether it may have arrived. If it has, and what it went to is
// lost meanwhile, the failure is returned that it ends with.
func (l *Link) setPosted(msg *message, posted bool) (owed error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if posted && msg.owed != nil {
		owed = msg.owed
	}
	msg.posted, msg.posting, msg.owed = posted, false, nil
	return owed
}

// errand sends what has no answer: any success is good, and whatever stands in
// the response.
func (l *Link) errand(msg *message) {
	ctx, cancel := context.WithTimeout(l.ctx, l.o.PostTimeout+l.o.ReconnectWait)
	defer cancel()
	resp, r, _, err := l.post(ctx, msg)
	switch {
	case err != nil && l.ctx.Err() == nil:
		l.log.Warn("a message is lost", "method", msg.method, "why", err)
	case r != nil:
		l.log.Warn("the server refused a message", "method", msg.method, "status", r.status)
	case resp != nil:
		discard(resp)
	}
}

// discard reads what nobody wants, if that is soon done, so that the connection
// can be used again.
func discard(resp *httpclient.Response) {
	late := time.AfterFunc(linger, func() { _ = resp.Body.Close() })
	defer late.Stop()
	if !isEvents(resp.Header) {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxRefusal))
	}
	_ = resp.Body.Close()
}

// cancelGrace is how long a server may still answer a request that it was told
// to cancel, before its response is closed.
const cancelGrace = 5 * time.Second

// overtaking is how long a request that is written may take to arrive before
// its cancellation, which goes over another connection.
const overtaking = 50 * time.Millisecond

// cancelled passes on that a request is given up. In the stateless era the end
// of its response says that (2026-07-28 basic/transports/streamable-http,
// "Cancellation"), in the other one a notification.
func (l *Link) cancelled(msg *message) {
	l.mu.Lock()
	target := l.pending[string(msg.m.Raw(jsonrpc.RequestID))]
	legacy := l.session != nil || l.events != nil
	posted := false
	if target != nil {
		l.takeLocked(target)
		posted = target.posted
	}
	l.mu.Unlock()
	if target == nil && legacy && !msg.modern {
		l.errand(msg)
		return
	}
	if target == nil || target.modern {
		l.release(msg)
		if target != nil {
			target.cancel(errCancelled)
		}
		return
	}
	if !posted { // it never left
		l.release(msg)
		target.cancel(errCancelled)
		return
	}
	select { // the cancellation must not overtake what it cancels
	case <-target.wrote:
		late := time.NewTimer(overtaking)
		select {
		case <-target.begun:
		case <-late.C:
		}
		late.Stop()
		l.errand(msg)
		pause(target.ctx, cancelGrace)
	case <-l.ctx.Done():
	}
	target.cancel(errCancelled)
}

// ask sends a request of the link's own over a route and returns the answer.
func (l *Link) ask(ctx context.Context, line []byte, to *route) (*jsonrpc.Message, *message, error) {
	msg, err := l.newMessage(line)
	if err != nil {
		return nil, nil, fmt.Errorf("remote: %w", err)
	}
	msg.own, msg.dispatched, msg.fixed, msg.inner = true, true, to, make(chan *jsonrpc.Message, 1)
	l.mu.Lock()
	l.pending[msg.id] = msg
	l.mu.Unlock()
	defer l.take(msg)
	defer msg.cancel(nil)
	stop := context.AfterFunc(ctx, func() { msg.cancel(context.Cause(ctx)) })
	defer stop()
	if to == nil || to.end == nil {
		l.request(msg) // ends with its answer
	} else {
		l.wg.Go(func() { l.request(msg) }) // ends with msg.ctx
	}
	select {
	case m := <-msg.inner:
		return m, msg, nil
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
}

// ownID returns an id for a request of the link's own, as spelled.
func (l *Link) ownID(what string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ownCount++
	return strconv.Quote("hf-" + what + "-" + strconv.Itoa(l.ownCount))
}
