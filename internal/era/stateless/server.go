// Package stateless serves Streamable HTTP of the stateless era: revision 2026-07-28.
//
// Each request is a POST of its own, whole in itself. Its answer is one JSON
// body or a stream that ends with it; closing the stream cancels the request.
package stateless

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/holdfast-mcp/holdfast/eventlog"
	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/exchange"
	"github.com/holdfast-mcp/holdfast/internal/httpstream"
	"github.com/holdfast-mcp/holdfast/internal/observe"
	"github.com/holdfast-mcp/holdfast/internal/route"
	"github.com/holdfast-mcp/holdfast/internal/sse"
	"github.com/holdfast-mcp/holdfast/internal/wire"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Options of the binding. All fields are needed.
type Options struct {
	Host        *exchange.Host
	Limits      wire.Limits
	Retained    eventlog.Limits // of what waits to be written on one stream
	Stream      *httpstream.Options
	Routes      *route.Routes // what is known of the ways to clients
	Heartbeat   time.Duration // how long a response may wait for its server without a byte
	AnswerGrace time.Duration // an answer within it, once the server has the request, goes back as JSON
	// Caller tells whose call that lingers a request may join without a key; ""
	// for nobody's. Nil: nobody's.
	Caller   func(r *http.Request, m *jsonrpc.Message) string
	Draining func() bool
	Go       func(func()) // runs a goroutine that the gateway waits for
	Log      *slog.Logger
}

// Server answers the stateless requests of one MCP endpoint. Safe for
// concurrent use.
type Server struct {
	o       Options
	schemas schemas
	timers  wire.Timers // for the answer grace
}

// New returns a Server.
func New(o Options) *Server {
	return &Server{o: o}
}

// Serve answers the POST of one message, which is not kept.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, m *jsonrpc.Message) {
	if m.Kind() != jsonrpc.Request {
		// No notification is defined for this transport; responses are not allowed.
		if m.Kind() == jsonrpc.Response {
			wire.Refuse(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, nil, "revision %s has no responses of clients: retry the request with inputResponses", era.V20260728)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		return
	}
	began := time.Now()
	principal := wire.Principal(r)
	json, events := wire.Accepts(r)
	var refusal *wire.Refusal
	switch {
	case !json && !events:
		refusal = &wire.Refusal{Status: http.StatusNotAcceptable, Code: jsonrpc.CodeInvalidRequest, Text: "Accept must contain application/json and text/event-stream"}
	case s.o.Draining() && !era.OfTask(string(m.Text(jsonrpc.Method))): // what has come of a task can still be fetched
		refusal = &wire.Refusal{Status: http.StatusServiceUnavailable, Code: jsonrpc.CodeInternal, Retry: 1, Text: "the gateway is shutting down"}
	default:
		refusal = s.check(r, m, principal)
	}
	if refusal != nil {
		refusal.ID = m.LegalID()
		refusal.Write(w)
		return
	}
	x := &exchanged{s: s, w: w, r: r, began: began, json: json, events: events, listening: m.Is("subscriptions/listen"), begun: make(chan struct{})}
	x.log.SetLimits(s.o.Retained)
	req := exchange.Request{Principal: principal, Message: m, Emit: x.emit, Begun: func() { close(x.begun) },
		Receipt: &x.receipt, Key: r.Header.Get(wire.HeaderKey)}
	if s.o.Caller != nil {
		req.Caller = func() string { return s.o.Caller(r, m) }
	}
	cancel, fail := s.o.Host.Serve(req)
	if fail != nil {
		x.fail(m.LegalID(), fail)
		return
	}
	x.cancel = cancel
	x.answer()
}

// exchanged is one request on its way.
type exchanged struct {
	s            *Server
	w            http.ResponseWriter
	r            *http.Request
	began        time.Time
	json, events bool
	listening    bool
	begun        chan struct{} // closed when a server has the request
	log          eventlog.Memory
	cancel       func(reason string)
	receipt      exchange.Receipt
}

func (x *exchanged) emit(msg []byte, final bool) {
	if final {
		x.log.Finish(msg)
	} else {
		x.log.Append(msg, false)
	}
}

func (x *exchanged) fail(id []byte, f *exchange.Failure) {
	status := http.StatusBadRequest
	if f.NotHere {
		status = http.StatusNotFound
	}
	_ = x.writeJSON(status, f.Answer(id))
}

// writeJSON answers with one JSON body.
func (x *exchanged) writeJSON(status int, body []byte) error {
	if status == http.StatusOK {
		return wire.WriteJSON(x.w, body, x.s.o.Limits)
	}
	x.w.Header().Set("Content-Type", "application/json")
	x.w.Header().Set("Cache-Control", "no-store")
	x.w.WriteHeader(status)
	_, err := x.w.Write(body)
	return err
}

// statusOf is the HTTP status that goes with an answer (2026-07-28
// basic/transports/streamable-http, "Protocol Version Header", "Server
// Validation"; basic, "_meta").
func statusOf(answer []byte) int {
	if !jsonrpc.IsError(answer) {
		return http.StatusOK
	}
	m, err := jsonrpc.Parse(answer)
	if err != nil || !m.Has(jsonrpc.Error) {
		return http.StatusOK
	}
	switch string(jsonrpc.Get(m.Raw(jsonrpc.Error), "code")) {
	case "-32601":
		return http.StatusNotFound
	case "-32020", "-32021", "-32022":
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// answer answers with one JSON body if the answer comes within the grace and
// nothing before it, with an event stream otherwise. The grace begins when the
// server has the request: it may have to be started, and what it answers then
// decides the status. Until then a stream is opened after a heartbeat's time: to
// those on the way a longer silence looks like an end.
func (x *exchanged) answer() {
	var few [2]eventlog.Event
	var grace <-chan time.Time
	var begun <-chan struct{}
	limit := x.s.timers.Get(max(0, x.s.o.Heartbeat-time.Since(x.began)))
	defer x.s.timers.Put(limit)
	switch {
	case x.events && (!x.json || x.listening):
		x.stream()
		return
	case x.events:
		grace, begun = limit.C, x.begun
	}
	for {
		events, _, more := x.log.Read(few[:0], 0, 1<<30)
		last := eventlog.Seq(0)
		for _, e := range events {
			if last = e.Seq; !e.Kept && x.events {
				x.stream()
				return
			}
		}
		if !more {
			body := events[len(events)-1].Data
			if err := x.writeJSON(statusOf(body), body); err != nil {
				x.end(err)
				return
			}
			x.log.Release()
			if x.receipt.Held() {
				receipt := x.receipt
				wire.FateOf(x.r.Context()).Await(&receipt)
			}
			return
		}
		select {
		case <-x.log.Changed(last):
		case <-begun:
			begun = nil
			limit.Reset(x.s.o.AnswerGrace)
		case <-grace:
			x.stream()
			return
		case <-x.r.Context().Done():
			x.end(httpstream.ErrGone)
			return
		}
	}
}

// end frees the log, and cancels the request if its client has gone: that is
// what closing the stream means in this era. A call that is held goes on.
func (x *exchanged) end(err error) {
	switch {
	case err == nil:
		x.receipt.Delivered()
	case !x.receipt.Lost():
		x.cancel("the client closed the stream")
	}
	x.log.Release()
}

// stream answers with an event stream.
func (x *exchanged) stream() {
	out, err := httpstream.Open(x.w, x.r, x.listening, x.s.o.Stream)
	if errors.Is(err, httpstream.ErrNoFlush) {
		wire.Refuse(x.w, http.StatusInternalServerError, jsonrpc.CodeInternal, nil, "%s", err.Error())
	}
	if err != nil {
		x.end(err)
		return
	}
	timed := x.s.o.Routes.Open(wire.Route(x.r), out)
	run := func() {
		defer out.Close()
		err := x.deliver(timed)
		cause := observe.Answered
		switch {
		case err != nil:
			cause = ""
		case x.s.o.Draining():
			cause = observe.Drain
		}
		timed.End(observe.Event{}, cause, err)
		x.end(err)
	}
	if httpstream.Taken(out) { // net/http is done with it
		x.s.o.Go(run)
		return
	}
	run()
}

// batchBytes is about how much is read from the log and written at a time.
const batchBytes = 64 << 10

// deliver writes the log until its end.
func (x *exchanged) deliver(out *route.Stream) error {
	if err := out.Write(sse.AppendComment(nil, "")); err != nil {
		return err
	}
	var few [16]eventlog.Event
	var buf []byte
	pos := eventlog.Seq(0)
	wrote := time.Now()
	for {
		events, _, more := x.log.Read(few[:0], pos, batchBytes)
		if len(events) > 0 {
			buf = buf[:0]
			for _, e := range events {
				buf = sse.AppendEvent(buf, sse.Event{Name: "message", Data: e.Data})
				pos = e.Seq
			}
			if err := out.Write(buf); err != nil {
				return err
			}
			x.log.Delivered(pos)
			wrote = time.Now()
		}
		if !more {
			return nil
		}
		if len(events) > 0 {
			continue
		}
		buf = nil // an idle stream holds no buffer
		x.log.Wake(pos, out.Wake)
		until := wrote.Add(out.Beat(wrote))
		if err := out.Wait(until); err != nil {
			return err
		}
		if now := time.Now(); !now.Before(until) {
			if err := out.Write(sse.AppendComment(nil, "")); err != nil {
				return err
			}
			wrote = now
		}
	}
}
