// Package streamable serves Streamable HTTP with sessions: the revisions 2025-03-26, 2025-06-18 and 2025-11-25.
package streamable

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/conversation"
	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/httpstream"
	"github.com/holdfast-mcp/holdfast/internal/route"
	"github.com/holdfast-mcp/holdfast/internal/session"
	"github.com/holdfast-mcp/holdfast/internal/wire"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Headers of the binding, in canonical form.
const (
	headerSession = "Mcp-Session-Id"
	headerLast    = "Last-Event-Id"
)

// Options of the binding. All fields are needed.
type Options struct {
	Host        *session.Host
	Limits      wire.Limits
	Stream      *httpstream.Options
	Routes      *route.Routes // what is known of the ways to clients
	AnswerGrace time.Duration // an answer within it goes back as JSON
	Retry       time.Duration // what clients are told to wait before they reconnect
	StartLimit  time.Duration // how long an initialize that nobody waits for is kept
	// Stateless serves requests of the stateless era, nil to refuse them.
	Stateless func(w http.ResponseWriter, r *http.Request, m *jsonrpc.Message)
	// Identify tells who a client is, by its initialize; nil: nobody but its session.
	Identify func(r *http.Request, m *jsonrpc.Message) session.Who
	Draining func() bool
	Go       func(func()) // runs a goroutine that the gateway waits for
	Log      *slog.Logger
}

// Server is the handler of one MCP endpoint. Safe for concurrent use.
type Server struct {
	o      Options
	timers wire.Timers // for the answer grace

	mu        sync.Mutex           // guards the field below
	abandoned map[string][]*orphan // oldest first
}

// orphan is an initialize whose client gave up waiting. The same client's next
// try takes it over, so that a slow start is waited for once.
type orphan struct {
	sess *session.Session
	post *session.Stream
}

// New returns a Server.
func New(o Options) *Server { return &Server{o: o, abandoned: map[string][]*orphan{}} }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	version := era.Version(r.Header.Get(era.HeaderVersion))
	switch {
	case r.Method == http.MethodPost:
		s.post(w, r)
		return
	case version.Modern() && s.o.Stateless != nil && (r.Method == http.MethodGet || r.Method == http.MethodDelete):
		// 2026-07-28 basic/transports/streamable-http, "Earlier Streamable HTTP Revisions".
		w.Header().Set("Allow", "POST")
		wire.Refuse(w, http.StatusMethodNotAllowed, jsonrpc.CodeInvalidRequest, nil,
			"MCP-Protocol-Version is %.40q, a revision without %s: there are no sessions, and subscriptions/listen is posted", string(version), r.Method)
		return
	}
	switch r.Method {
	case http.MethodGet:
		s.get(w, r)
	case http.MethodDelete:
		s.delete(w, r)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		wire.Refuse(w, http.StatusMethodNotAllowed, jsonrpc.CodeInvalidRequest, nil, "method %.20q: an MCP endpoint takes GET, POST and DELETE", r.Method)
	}
}

// exchange is one POST on its way.
type exchange struct {
	w        http.ResponseWriter
	r        *http.Request
	messages []*jsonrpc.Message
	batch    bool
	requests int
	json     bool // what the client accepts
	events   bool
	id       []byte // of the first message, outliving the body
	as       []byte // the id to answer with instead of the one that the server was asked under
	body     wire.Body
	one      [1]*jsonrpc.Message // what messages mostly is
}

func (s *Server) post(w http.ResponseWriter, r *http.Request) {
	body, refusal := wire.ReadBody(w, r, s.o.Limits)
	if refusal != nil {
		refusal.Write(w)
		return
	}
	x := &exchange{w: w, r: r, body: body}
	x.messages = x.one[:0]
	defer x.release()
	if refusal = x.parse(body.Bytes); refusal == nil {
		refusal = s.route(x)
	}
	if refusal != nil {
		refusal.Write(w)
	}
}

// release gives the body back; messages are not looked at afterwards.
func (x *exchange) release() {
	x.body.Release()
	x.body, x.messages = wire.Body{}, nil
}

// route decides what a POST is, and serves it.
func (s *Server) route(x *exchange) *wire.Refusal {
	first := x.messages[0]
	header := x.r.Header.Get(era.HeaderVersion)
	for _, m := range x.messages {
		if era.Of(m, header) == era.Stateless {
			if x.batch {
				return &wire.Refusal{Status: http.StatusBadRequest, Code: jsonrpc.CodeInvalidRequest, Text: "a batch: only revision 2025-03-26 has batches"}
			}
			if s.o.Stateless != nil {
				s.o.Stateless(x.w, x.r, m)
				return nil
			}
			return &wire.Refusal{Status: http.StatusBadRequest, Code: era.StatelessRefusalCode, ID: m.LegalID(), Text: era.StatelessRefusal}
		}
	}
	if x.json, x.events = wire.Accepts(x.r); !x.json && !x.events {
		return &wire.Refusal{Status: http.StatusNotAcceptable, Code: jsonrpc.CodeInvalidRequest, ID: first.LegalID(),
			Text: "Accept must contain application/json and text/event-stream"}
	}
	sess, refusal := s.session(x)
	if refusal != nil {
		return refusal
	}
	if !x.batch && first.Kind() == jsonrpc.Request && first.Is("initialize") {
		return s.initialize(x, sess)
	}
	version := spoken(sess, header)
	if refusal := checkVersion(header, version, first.LegalID()); refusal != nil {
		return refusal
	}
	if x.batch && !version.Batches() {
		return &wire.Refusal{Status: http.StatusBadRequest, Code: jsonrpc.CodeInvalidRequest,
			Text: "a batch: only revision 2025-03-26 has batches, spoken here is " + string(version)}
	}
	if sess == nil {
		return s.sessionless(x)
	}
	if x.requests > 0 && s.o.Draining() && !(len(x.messages) == 1 && sess.AboutTasks(first)) {
		return draining(first.LegalID())
	}
	s.serve(x, sess)
	return nil
}

// spoken is the revision of a request: what its session negotiated, else what
// its header says, else the one that is assumed.
func spoken(sess *session.Session, header string) era.Version {
	switch v := era.Version(header); {
	case sess != nil:
		return sess.Version()
	case v.Handshake():
		return v
	}
	return era.Assumed
}

// checkVersion refuses a version header that is neither a known revision nor
// the one that the session negotiated (2025-06-18 basic/transports, "Protocol
// Version Header").
func checkVersion(header string, negotiated era.Version, id []byte) *wire.Refusal {
	if v := era.Version(header); header == "" || v.Handshake() || v == negotiated {
		return nil
	}
	return &wire.Refusal{Status: http.StatusBadRequest, Code: jsonrpc.CodeInvalidRequest, ID: id,
		Text: "MCP-Protocol-Version: unknown revision " + header[:min(len(header), 40)] + "; spoken here is " + string(negotiated)}
}

func draining(id []byte) *wire.Refusal {
	return &wire.Refusal{Status: http.StatusServiceUnavailable, Code: session.CodeEnded, ID: id, Retry: 1,
		Text: "the gateway is shutting down: try again, another instance or the next one will answer"}
}

// session returns the session that a request names; nil if it names none.
func (s *Server) session(x *exchange) (*session.Session, *wire.Refusal) {
	ids := x.r.Header[headerSession]
	if len(ids) == 0 {
		return nil, nil
	}
	var id []byte
	initialize := false
	if len(x.messages) > 0 {
		id, initialize = x.messages[0].LegalID(), x.messages[0].Is("initialize")
	}
	if len(ids) > 1 {
		return nil, &wire.Refusal{Status: http.StatusBadRequest, Code: jsonrpc.CodeInvalidRequest, ID: id, Text: "more than one Mcp-Session-Id header"}
	}
	sess := s.o.Host.Sessions.Get(ids[0])
	if sess == nil && !initialize {
		return nil, &wire.Refusal{Status: http.StatusNotFound, Code: codeNoSession, ID: id,
			Text: "unknown or ended session: send initialize again without Mcp-Session-Id"}
	}
	return sess, nil
}

// codeNoSession goes with 404, as in the official SDKs.
const codeNoSession = -32001

// serve hands the messages to the session and answers the POST.
func (s *Server) serve(x *exchange, sess *session.Session) {
	if x.requests == 0 {
		for _, m := range x.messages {
			sess.Take(nil, m)
		}
		x.w.WriteHeader(http.StatusAccepted)
		return
	}
	st := sess.Post(x.requests, x.events)
	s.take(x, sess, st)
	if err := s.answer(x, sess, st); err != nil {
		if !st.Named() { // no event id was given out: nobody can come back for it
			st.Abandon()
		}
		s.o.Log.Debug("answer not delivered", "session", session.Short(sess.ID), "cause", err)
	}
}

// take hands over the messages, and gives their bytes back: a call may be long.
func (s *Server) take(x *exchange, sess *session.Session, st *session.Stream) {
	x.id = bytes.Clone(x.messages[0].LegalID())
	key := ""
	if !x.batch {
		if all := x.r.Header[wire.HeaderKey]; len(all) > 0 {
			key = all[0]
		}
	}
	for _, m := range x.messages {
		sess.TakeKeyed(st, m, key)
	}
	x.release()
}

// sessionless answers what is allowed without a session: pings, at any time
// (2025-11-25 basic/lifecycle, "Initialization").
func (s *Server) sessionless(x *exchange) *wire.Refusal {
	var out []byte
	for _, m := range x.messages {
		if m.Kind() != jsonrpc.Request || !m.Is("ping") {
			return &wire.Refusal{Status: http.StatusBadRequest, Code: jsonrpc.CodeInvalidRequest, ID: m.LegalID(),
				Text: "Mcp-Session-Id is missing: send initialize first, and then the session id that it is answered with"}
		}
		if len(out) > 0 {
			out = append(out, ',')
		}
		out = jsonrpc.AppendResult(out, m.Raw(jsonrpc.ID), []byte("{}"))
	}
	if x.batch {
		out = append(append([]byte{'['}, out...), ']')
	}
	_ = wire.WriteJSON(x.w, out, s.o.Limits)
	return nil
}

// initialize opens a session, or takes over the one that this client's earlier
// try began.
func (s *Server) initialize(x *exchange, sess *session.Session) *wire.Refusal {
	m := x.messages[0]
	if sess != nil {
		return &wire.Refusal{Status: http.StatusBadRequest, Code: jsonrpc.CodeInvalidRequest, ID: m.LegalID(),
			Text: "this session is initialized already: send initialize without Mcp-Session-Id for another one"}
	}
	if s.o.Draining() {
		return draining(m.LegalID())
	}
	key := wire.ClientKey(x.r, m)
	if o := s.adopt(key); o != nil {
		s.o.Log.Info("initialize taken over from the client's earlier try", "session", session.Short(o.sess.ID))
		x.as = bytes.Clone(m.Raw(jsonrpc.ID))
		s.welcome(x, key, o.sess, o.post)
		return nil
	}
	sess, err := s.o.Host.Open(false)
	if err == nil {
		if err = s.o.Host.Connect(sess); err != nil {
			s.o.Host.Sessions.End(sess, err)
		}
	}
	if err != nil {
		return unavailable(err, m.LegalID())
	}
	sess.Begin()
	if s.o.Identify != nil {
		sess.Identify(s.o.Identify(x.r, m))
	}
	post := sess.Post(1, x.events)
	s.take(x, sess, post)
	s.welcome(x, key, sess, post)
	return nil
}

// unavailable is the refusal of a session that cannot be had.
func unavailable(err error, id []byte) *wire.Refusal {
	retry := 5
	if errors.Is(err, session.ErrShutdown) || errors.Is(err, conversation.ErrClosed) {
		retry = 1
	}
	return &wire.Refusal{Status: http.StatusServiceUnavailable, Code: session.CodeEnded, ID: id, Retry: retry, Text: err.Error()}
}

// welcome answers an initialize. A session that came to nothing is ended.
func (s *Server) welcome(x *exchange, key string, sess *session.Session, post *session.Stream) {
	x.w.Header().Set(headerSession, sess.ID)
	err := s.answer(x, sess, post)
	switch {
	case err != nil:
		s.abandon(key, &orphan{sess, post})
	case sess.Version() == "":
		s.o.Host.Sessions.End(sess, errRefused)
	}
}

var errRefused = errors.New("streamable: initialize was refused")

// adopt returns the oldest start that nobody waits for: it is the furthest.
func (s *Server) adopt(key string) *orphan {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.abandoned[key] {
		s.dropLocked(key, o)
		if o.sess.Err() == nil {
			return o
		}
	}
	return nil
}

// dropLocked forgets an orphan, and reports whether it was still one.
func (s *Server) dropLocked(key string, o *orphan) bool {
	rest := slices.DeleteFunc(slices.Clone(s.abandoned[key]), func(other *orphan) bool { return other == o })
	found := len(rest) < len(s.abandoned[key])
	if s.abandoned[key] = rest; len(rest) == 0 {
		delete(s.abandoned, key)
	}
	return found
}

// abandon keeps the session for a while. There may be more than one: a client
// can try again before it shows that it has given up.
func (s *Server) abandon(key string, o *orphan) {
	s.mu.Lock()
	s.abandoned[key] = append(s.abandoned[key], o)
	s.mu.Unlock()
	time.AfterFunc(s.o.StartLimit, func() {
		s.mu.Lock()
		mine := s.dropLocked(key, o)
		s.mu.Unlock()
		if mine {
			s.o.Host.Sessions.End(o.sess, session.ErrAbandoned)
		}
	})
}

func (s *Server) delete(w http.ResponseWriter, r *http.Request) {
	sess, refusal := s.named(w, r)
	if refusal != nil {
		refusal.Write(w)
		return
	}
	s.o.Host.Sessions.End(sess, session.ErrDeleted)
	w.WriteHeader(http.StatusNoContent)
}

// named returns the session that a GET or DELETE must name.
func (s *Server) named(w http.ResponseWriter, r *http.Request) (*session.Session, *wire.Refusal) {
	sess, refusal := s.session(&exchange{w: w, r: r})
	if refusal == nil && sess == nil {
		refusal = &wire.Refusal{Status: http.StatusBadRequest, Code: jsonrpc.CodeInvalidRequest, Text: "Mcp-Session-Id is missing"}
	}
	if refusal == nil {
		refusal = checkVersion(r.Header.Get(era.HeaderVersion), sess.Version(), nil)
	}
	return sess, refusal
}
