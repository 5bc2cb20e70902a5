package streamable

import (
	"errors"
	"net/http"
	"time"

	"github.com/holdfast-mcp/holdfast/eventlog"
	"github.com/holdfast-mcp/holdfast/internal/httpstream"
	"github.com/holdfast-mcp/holdfast/internal/observe"
	"github.com/holdfast-mcp/holdfast/internal/route"
	"github.com/holdfast-mcp/holdfast/internal/session"
	"github.com/holdfast-mcp/holdfast/internal/sse"
	"github.com/holdfast-mcp/holdfast/internal/wire"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// parse reads the body into messages.
func (x *exchange) parse(body []byte) *wire.Refusal {
	m, err := jsonrpc.Parse(body)
	if errors.Is(err, jsonrpc.ErrBatch) {
		return x.parseBatch(body)
	}
	if err != nil {
		return wire.Malformed(m, err)
	}
	x.add(m)
	return nil
}

func (x *exchange) parseBatch(body []byte) *wire.Refusal {
	x.batch = true
	each, err := jsonrpc.Split(body)
	if err != nil {
		return wire.Malformed(nil, err)
	}
	for _, one := range each {
		m, err := jsonrpc.Parse(one)
		if err != nil {
			return wire.Malformed(m, err)
		}
		if m.Is("initialize") { // 2025-03-26 basic/lifecycle: never in a batch
			return wire.Malformed(m, errors.New("initialize must not be part of a batch"))
		}
		x.add(m)
	}
	return nil
}

func (x *exchange) add(m *jsonrpc.Message) {
	x.messages = append(x.messages, m)
	if m.Kind() == jsonrpc.Request {
		x.requests++
	}
}

// answer answers a POST: with one JSON body if all answers come within the
// grace and nothing else does, with an event stream otherwise, as far as the
// client accepts either. The error says why the answers were not delivered.
func (s *Server) answer(x *exchange, sess *session.Session, st *session.Stream) error {
	defer st.Posted()
	var few [4]eventlog.Event
	log := st.Log()
	var grace <-chan time.Time
	switch {
	case x.events && !x.json:
		return s.stream(x, sess, st)
	case x.events:
		t := s.timers.Get(s.o.AnswerGrace)
		defer s.timers.Put(t)
		grace = t.C
	}
	for {
		events, _, more := log.Read(few[:0], 0, 1<<30)
		last := eventlog.Seq(0)
		for _, e := range events {
			if last = e.Seq; !e.Kept && x.events {
				return s.stream(x, sess, st)
			}
		}
		if !more {
			err := s.writeJSON(x, events)
			if err == nil {
				st.Forget(wire.FateOf(x.r.Context()))
			}
			return err
		}
		select {
		case <-log.Changed(last):
		case <-grace:
			return s.stream(x, sess, st)
		case <-x.r.Context().Done():
			return httpstream.ErrGone
		}
	}
}

// writeJSON answers with what the finished log holds.
func (s *Server) writeJSON(x *exchange, events []eventlog.Event) error {
	var body []byte
	switch {
	case len(events) == 0:
		wire.Refuse(x.w, http.StatusNotFound, codeNoSession, nil, "the session has ended")
		return nil
	case !x.batch:
		body = x.readdress(events[0].Data)
		if x.w.Header().Get(headerSession) != "" && failed(body) {
			x.w.Header().Del(headerSession)
		}
	default:
		body = []byte{'['}
		for i, e := range events {
			if i > 0 {
				body = append(body, ',')
			}
			body = append(body, e.Data...)
		}
		body = append(body, ']')
	}
	return wire.WriteJSON(x.w, body, s.o.Limits)
}

func failed(answer []byte) bool {
	m, err := jsonrpc.Parse(answer)
	return err != nil || m.Has(jsonrpc.Error)
}

// readdress puts the id in that this POST asked under.
func (x *exchange) readdress(answer []byte) []byte {
	if x.as == nil {
		return answer
	}
	m, err := jsonrpc.Parse(answer)
	if err != nil || m.Kind() != jsonrpc.Response {
		return answer
	}
	return m.Append(nil, jsonrpc.Edit{Field: jsonrpc.ID, With: x.as})
}

// stream answers a POST with an event stream. It begins with a byte at once: a
// proxy may hold the headers back until there is one.
func (s *Server) stream(x *exchange, sess *session.Session, st *session.Stream) error {
	st.Name()
	out, err := httpstream.Open(x.w, x.r, false, s.o.Stream)
	if errors.Is(err, httpstream.ErrNoFlush) {
		wire.Refuse(x.w, http.StatusInternalServerError, jsonrpc.CodeInternal, x.id, "%s", err.Error())
		return err
	}
	if err != nil {
		return err
	}
	defer out.Close()
	return s.deliver(s.o.Routes.Open(wire.Route(x.r), out), sess, st, 0, false, x.readdress)
}

// encoder writes events of this binding.
type encoder struct {
	readdress func([]byte) []byte
}

// Event implements session.Encoder. Every event names its type, since many
// clients take only those that do.
func (e encoder) Event(dst []byte, st *session.Stream, ev eventlog.Event) []byte {
	out := sse.Event{Name: "message", Data: ev.Data}
	if ev.Seq > 0 {
		out.ID = st.EventID(ev.Seq)
	}
	if e.readdress != nil {
		out.Data = e.readdress(ev.Data)
	}
	return sse.AppendEvent(dst, out)
}

// Heartbeat implements session.Encoder.
func (encoder) Heartbeat(dst []byte) []byte { return sse.AppendComment(dst, "") }

// deliver runs a reader on an open event stream.
func (s *Server) deliver(out *route.Stream, sess *session.Session, st *session.Stream, pos eventlog.Seq, fresh bool,
	readdress func([]byte) []byte) error {
	r, err := st.Read(out, pos, fresh)
	if err != nil {
		return err
	}
	first := sse.AppendComment(nil, "")
	if sess.Version().Primes() {
		first = sse.AppendEvent(first[:0], sse.Event{ID: st.EventID(r.Pos()), Retry: s.o.Retry})
	}
	pace := session.Pace(out)
	if !sess.Version().Primes() { // its clients are not told to come back
		pace = route.Steady{Stream: out}
	}
	err = r.Run(encoder{readdress}, pace, first)
	drained := err == nil && errors.Is(sess.Err(), session.ErrShutdown)
	if (drained || errors.Is(err, session.ErrRotated)) && sess.Version().Primes() {
		_ = out.Write(sse.AppendRetry(nil, s.o.Retry)) // come back, here or elsewhere
	}
	out.End(observe.Event{Session: session.Short(sess.ID), ID: st.EventID(0)}, sess.StreamCause(err), err)
	return err
}

// get opens the stream of messages that belong to no POST, or goes on with the
// stream that Last-Event-ID names.
func (s *Server) get(w http.ResponseWriter, r *http.Request) {
	if _, events := wire.Accepts(r); !events {
		wire.Refuse(w, http.StatusNotAcceptable, jsonrpc.CodeInvalidRequest, nil, "a GET must accept text/event-stream")
		return
	}
	sess, refusal := s.named(w, r)
	if refusal != nil {
		refusal.Write(w)
		return
	}
	st, pos, fresh := sess.General(), eventlog.Seq(0), true
	if last := r.Header.Get(headerLast); last != "" {
		var err error
		if st, pos, err = sess.Find(last); err != nil {
			wire.Refuse(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, nil, "Last-Event-ID %.64q was never given out by this session", last)
			return
		}
		fresh = false
	}
	w.Header().Set(headerSession, sess.ID)
	out, err := httpstream.Open(w, r, true, s.o.Stream)
	if errors.Is(err, httpstream.ErrNoFlush) {
		wire.Refuse(w, http.StatusInternalServerError, jsonrpc.CodeInternal, nil, "%s", err.Error())
		return
	}
	if err != nil {
		return
	}
	timed := s.o.Routes.Open(wire.Route(r), out)
	run := func() {
		defer out.Close()
		_ = s.deliver(timed, sess, st, pos, fresh, nil)
	}
	if httpstream.Taken(out) { // net/http is done with it
		s.o.Go(run)
		return
	}
	run()
}
