package remote

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/sse"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// toolPages bounds the pages of tools/list that are read for one call.
const toolPages = 20

// stale reports whether a call was refused for its headers, and would be sent
// with others now: the tools are looked at again (2026-07-28
// basic/transports/streamable-http, "Custom Headers").
func (l *Link) stale(msg *message, r *refusal, to *route) bool {
	if msg.method != "tools/call" || r.fault == nil || to == nil ||
		string(jsonrpc.Get(r.fault.Raw(jsonrpc.Error), "code")) != strconv.Itoa(era.CodeHeaderMismatch) {
		return false
	}
	ctx, cancel := context.WithTimeout(msg.ctx, l.o.PostTimeout)
	defer cancel()
	cursor := []byte(nil)
	for range toolPages {
		params := []jsonrpc.Member{{Key: "_meta", Value: jsonrpc.AppendObject(nil, msg.m.Raw(jsonrpc.Meta), []string{"progressToken"})}}
		if cursor != nil {
			params = append(params, jsonrpc.Member{Key: "cursor", Value: cursor})
		}
		line := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":"tools/list","params":%s}`, l.ownID("tools"), jsonrpc.AppendObject(nil, nil, nil, params...))
		page, _, err := l.ask(ctx, line, nil)
		if err != nil || !page.Has(jsonrpc.Result) {
			break
		}
		cursor = jsonrpc.Get(page.Raw(jsonrpc.Result), "nextCursor")
		if cursor == nil || string(cursor) == "null" {
			break
		}
	}
	h := http.Header{}
	l.mirror.SetHeaders(h, msg.m, "")
	return !maps.EqualFunc(h, mirrored(to.header), slices.Equal)
}

// mirrored returns the headers that do not go with every message.
func mirrored(h http.Header) http.Header {
	h = h.Clone()
	h.Del("Content-Type")
	h.Del("Accept")
	return h
}

// subscribe holds a subscriptions/listen request open. It changes nothing, so
// when its stream is lost it is sent again, under the same id.
func (l *Link) subscribe(msg *message) {
	var p pace
	cur := &cursor{}
	var lost time.Time // since when there is no stream; zero: there was none yet
	for {
		err := l.subscribeOnce(msg, cur, !lost.IsZero())
		switch {
		case msg.isSettled() || msg.ctx.Err() != nil:
			l.fail(msg, &failure{outcome: unknown, text: "the link was closed"})
			return
		case err == nil:
			if cur.good() {
				p.reset()
			}
			lost = time.Now()
		case lost.IsZero() || time.Since(lost) >= l.o.ReconnectWait:
			l.fail(msg, failureOf(err))
			return
		}
		if !pause(msg.ctx, p.next(max(cur.base(), l.o.RetryMin), l.o.RetryMax)) {
			l.fail(msg, &failure{outcome: unknown, text: "the link was closed"})
			return
		}
	}
}

// subscribeOnce sends the request and reads its stream. It returns nil if there
// was one. again: the client has had the acknowledgement.
func (l *Link) subscribeOnce(msg *message, cur *cursor, again bool) error {
	ctx, cancel := context.WithCancelCause(msg.ctx)
	defer cancel(nil)
	resp, r, to, err := l.post(ctx, msg)
	switch {
	case err != nil:
		return err
	case r != nil:
		l.refused(msg, r, "")
		return nil
	case !isEvents(resp.Header):
		l.read(msg, resp, to, cancel)
		return nil
	}
	defer func() { _ = resp.Body.Close() }()
	take := l.messages(cur, msg)
	err = l.readStream(resp.Body, cur, false, cancel, func(ev sse.Event) error {
		if msg.isSettled() {
			return io.EOF
		}
		if again {
			if m, err := jsonrpc.Parse(ev.Data); err == nil && m.Is("notifications/subscriptions/acknowledged") {
				cur.heard = true
				return nil
			}
		}
		return take(ev)
	})
	l.log.Debug("a subscription's stream ended", "why", err)
	return nil
}
