// Package httpsse serves HTTP+SSE, the transport of revision 2024-11-05.
//
// A client holds one stream (GET) on which everything travels, and posts its
// messages to the URL that the stream's first event names. The version that
// the two sides negotiate may be a later one.
package httpsse

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast/eventlog"
	"github.com/holdfast-mcp/holdfast/internal/conversation"
	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/exchange"
	"github.com/holdfast-mcp/holdfast/internal/httpstream"
	"github.com/holdfast-mcp/holdfast/internal/observe"
	"github.com/holdfast-mcp/holdfast/internal/route"
	"github.com/holdfast-mcp/holdfast/internal/session"
	"github.com/holdfast-mcp/holdfast/internal/sse"
	"github.com/holdfast-mcp/holdfast/internal/wire"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Options of the binding. All fields are needed, but for those that say so.
type Options struct {
	Host     *session.Host
	Limits   wire.Limits
	Stream   *httpstream.Options
	Routes   *route.Routes // what is known of the ways to clients
	Retry    time.Duration // what clients are told to wait before they reconnect
	Endpoint string        // where messages are posted, as the client is told: a path or a whole URL
	// Stateless serves messages of the stateless era, nil to refuse them.
	Stateless *exchange.Host
	// Identify tells who a client is, by its initialize; nil: nobody but its session.
	Identify func(r *http.Request, m *jsonrpc.Message) session.Who
	Draining func() bool
	Go       func(func()) // runs a goroutine that the gateway waits for
	Log      *slog.Logger
}

// Server serves the stream and takes the messages. Safe for concurrent use.
type Server struct {
	o Options

	mu      sync.Mutex // guards the field below
	inboxes map[*session.Session]*exchange.Inbox
}

// New returns a Server.
func New(o Options) *Server {
	return &Server{o: o, inboxes: map[*session.Session]*exchange.Inbox{}}
}

// Events is the handler of the stream.
func (s *Server) Events(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", "GET")
		wire.Refuse(w, http.StatusMethodNotAllowed, jsonrpc.CodeInvalidRequest, nil,
			"this is the stream of HTTP+SSE, it takes GET only; Streamable HTTP clients use the MCP endpoint beside it")
		return
	}
	if _, events := wire.Accepts(r); !events {
		wire.Refuse(w, http.StatusNotAcceptable, jsonrpc.CodeInvalidRequest, nil, "a GET must accept text/event-stream")
		return
	}
	sess, pos, fresh, refusal := s.find(r)
	if refusal != nil {
		refusal.Write(w)
		return
	}
	out, err := httpstream.Open(w, r, true, s.o.Stream)
	if err != nil {
		if fresh {
			s.o.Host.Sessions.End(sess, err)
		}
		if errors.Is(err, httpstream.ErrNoFlush) {
			wire.Refuse(w, http.StatusInternalServerError, jsonrpc.CodeInternal, nil, "%s", err.Error())
		}
		return
	}
	timed := s.o.Routes.Open(wire.Route(r), out)
	run := func() {
		defer out.Close()
		s.deliver(timed, sess, pos)
	}
	if httpstream.Taken(out) { // net/http is done with it
		s.o.Go(run)
		return
	}
	run()
}

// find returns the session that Last-Event-ID names, or a new one.
func (s *Server) find(r *http.Request) (sess *session.Session, pos eventlog.Seq, fresh bool, refusal *wire.Refusal) {
	if last := r.Header.Get("Last-Event-Id"); last != "" {
		id, seq, ok := strings.Cut(last, ".")
		if sess := s.o.Host.Sessions.Get(id); ok && sess != nil {
			_, pos, err := sess.Find("0-" + seq)
			if err != nil {
				return nil, 0, false, &wire.Refusal{Status: http.StatusBadRequest, Code: jsonrpc.CodeInvalidRequest,
					Text: "Last-Event-ID was never given out by this session"}
			}
			return sess, pos, false, nil
		}
	}
	if s.o.Draining() {
		return nil, 0, false, &wire.Refusal{Status: http.StatusServiceUnavailable, Code: session.CodeEnded, Retry: 1, Text: "the gateway is shutting down"}
	}
	sess, err := s.o.Host.Open(true)
	if err != nil {
		return nil, 0, false, &wire.Refusal{Status: http.StatusServiceUnavailable, Code: session.CodeEnded, Retry: 5, Text: err.Error()}
	}
	return sess, 0, true, nil
}

// encoder writes events of this binding. Their ids name the session, since
// nothing else in a reconnecting GET does.
type encoder struct{ id string }

// Event implements session.Encoder.
func (e encoder) Event(dst []byte, _ *session.Stream, ev eventlog.Event) []byte {
	out := sse.Event{Name: "message", Data: ev.Data}
	if ev.Seq > 0 {
		out.ID = e.id + "." + strconv.FormatUint(uint64(ev.Seq), 10)
	}
	return sse.AppendEvent(dst, out)
}

// Heartbeat implements session.Encoder.
func (encoder) Heartbeat(dst []byte) []byte { return sse.AppendComment(dst, "") }

func (s *Server) deliver(out *route.Stream, sess *session.Session, pos eventlog.Seq) {
	reader, err := sess.General().Read(out, pos, false)
	if err != nil {
		return
	}
	endpoint := s.o.Endpoint + "?sessionId=" + url.QueryEscape(sess.ID)
	first := sse.AppendEvent(nil, sse.Event{Name: "endpoint", Data: []byte(endpoint)})
	err = reader.Run(encoder{sess.ID}, route.Steady{Stream: out}, first)
	if err == nil && errors.Is(sess.Err(), session.ErrShutdown) {
		_ = out.Write(sse.AppendRetry(nil, s.o.Retry))
	}
	out.End(observe.Event{Session: session.Short(sess.ID)}, sess.StreamCause(err), err)
}

// Message is the handler that takes a client's messages.
func (s *Server) Message(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		wire.Refuse(w, http.StatusMethodNotAllowed, jsonrpc.CodeInvalidRequest, nil, "messages are posted here")
		return
	}
	id := sessionID(r)
	if id == "" {
		wire.Refuse(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, nil, "sessionId is missing: post to the URL that the stream's endpoint event names")
		return
	}
	sess := s.o.Host.Sessions.Get(id)
	if sess == nil {
		wire.Refuse(w, http.StatusNotFound, codeNoSession, nil, "unknown or ended session: open the event stream again")
		return
	}
	body, refusal := wire.ReadBody(w, r, s.o.Limits)
	if refusal == nil {
		defer body.Release()
		refusal = s.take(sess, r, body.Bytes)
	}
	if refusal != nil {
		refusal.Write(w)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

// sessionID returns what the query of a message's URL names, without parsing it
// whole where it is as the endpoint event spells it.
func sessionID(r *http.Request) string {
	if id, ok := strings.CutPrefix(r.URL.RawQuery, "sessionId="); ok && !strings.ContainsAny(id, "%+&;=") {
		return id
	}
	return r.URL.Query().Get("sessionId")
}

// codeNoSession goes with 404, as in the official SDKs.
const codeNoSession = -32001

func (s *Server) take(sess *session.Session, r *http.Request, body []byte) *wire.Refusal {
	m, err := jsonrpc.Parse(body)
	if errors.Is(err, jsonrpc.ErrBatch) {
		return s.takeBatch(sess, r, body)
	}
	if err != nil {
		return wire.Malformed(m, err)
	}
	if refusal := s.admit(sess, m); refusal != nil {
		return refusal
	}
	if s.stateless(sess, r, m) {
		return nil
	}
	if m.Kind() == jsonrpc.Request && m.Is("initialize") {
		return s.initialize(sess, r, m)
	}
	sess.TakeKeyed(sess.General(), m, r.Header.Get(wire.HeaderKey))
	return nil
}

// stateless serves a message of the stateless era, on the stream, as this
// transport answers everything: clients that probe take a 400 here for the end
// of the connection.
func (s *Server) stateless(sess *session.Session, r *http.Request, m *jsonrpc.Message) bool {
	emit := func(msg []byte, final bool) { sess.General().Log().Append(msg, final) }
	if era.Of(m, r.Header.Get(era.HeaderVersion)) != era.Stateless {
		if m.Is("notifications/cancelled") { // it need not say which era it is of
			s.mu.Lock()
			b := s.inboxes[sess]
			s.mu.Unlock()
			if b != nil {
				b.Take(m)
			}
		}
		return false
	}
	sess.Touch()
	switch {
	case s.o.Stateless != nil:
		s.inbox(sess, r, emit).TakeKeyed(m, r.Header.Get(wire.HeaderKey))
	case m.Kind() == jsonrpc.Request:
		emit(jsonrpc.AppendError(nil, bytes.Clone(m.Raw(jsonrpc.ID)), era.StatelessRefusalCode, era.StatelessRefusal, nil), true)
	}
	return true
}

// inbox returns what takes a session's stateless messages, until it ends.
func (s *Server) inbox(sess *session.Session, r *http.Request, emit func(msg []byte, final bool)) *exchange.Inbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.inboxes[sess]
	if b == nil {
		b = &exchange.Inbox{Host: s.o.Stateless, Principal: wire.Principal(r), Emit: emit}
		s.inboxes[sess] = b
		s.o.Go(func() {
			<-sess.Done()
			b.Close()
			s.mu.Lock()
			delete(s.inboxes, sess)
			s.mu.Unlock()
		})
	}
	return b
}

func (s *Server) takeBatch(sess *session.Session, r *http.Request, body []byte) *wire.Refusal {
	if v := sess.Version(); !v.Batches() {
		return wire.Malformed(nil, errors.New("a batch: only revision 2025-03-26 has batches, this session negotiated "+string(v)))
	}
	each, err := jsonrpc.Split(body)
	if err != nil {
		return wire.Malformed(nil, err)
	}
	messages := make([]*jsonrpc.Message, 0, len(each))
	for _, one := range each {
		m, err := jsonrpc.Parse(one)
		if err == nil && m.Is("initialize") {
			err = errors.New("initialize must not be part of a batch")
		}
		if err != nil {
			return wire.Malformed(m, err)
		}
		if refusal := s.admit(sess, m); refusal != nil {
			return refusal
		}
		if s.stateless(sess, r, m) {
			continue
		}
		messages = append(messages, m)
	}
	for _, m := range messages {
		sess.Take(sess.General(), m)
	}
	return nil
}

// admit refuses requests while the gateway drains, but for those that fetch what
// has come of tasks.
func (s *Server) admit(sess *session.Session, m *jsonrpc.Message) *wire.Refusal {
	if m.Kind() == jsonrpc.Request && s.o.Draining() && !sess.AboutTasks(m) && !era.OfTask(string(m.Text(jsonrpc.Method))) {
		return &wire.Refusal{Status: http.StatusServiceUnavailable, Code: session.CodeEnded, ID: m.LegalID(), Retry: 1, Text: "the gateway is shutting down"}
	}
	return nil
}

// initialize finds a server: the one that this client's earlier try began to
// start, else another.
func (s *Server) initialize(sess *session.Session, r *http.Request, m *jsonrpc.Message) *wire.Refusal {
	if !sess.Begin() {
		return wire.Malformed(m, errors.New("this session is initialized already"))
	}
	if s.o.Identify != nil {
		sess.Identify(s.o.Identify(r, m))
	}
	key := wire.ClientKey(r, m)
	sess.Opening(key)
	if s.o.Host.Adopt(sess, key, m) {
		return nil
	}
	if err := s.o.Host.Connect(sess); err != nil {
		s.o.Host.Sessions.End(sess, err)
		refusal := &wire.Refusal{Status: http.StatusServiceUnavailable, Code: session.CodeEnded, ID: m.LegalID(), Retry: 5, Text: err.Error()}
		if errors.Is(err, conversation.ErrClosed) || errors.Is(err, context.Canceled) {
			refusal.Retry = 1
		}
		return refusal
	}
	sess.Take(sess.General(), m)
	return nil
}
