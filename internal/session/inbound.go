package session

import (
	"errors"
	"fmt"

	"github.com/holdfast-mcp/holdfast/eventlog"
	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/ledger"
	"github.com/holdfast-mcp/holdfast/internal/observe"
	"github.com/holdfast-mcp/holdfast/internal/stdio"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Take handles one message of the client. Answers to requests, errors
// included, appear on st exactly once each. m is not kept.
func (s *Session) Take(st *Stream, m *jsonrpc.Message) { s.TakeKeyed(st, m, "") }

// TakeKeyed is Take for a message whose HTTP request brought an idempotency
// key; "" for none.
func (s *Session) TakeKeyed(st *Stream, m *jsonrpc.Message, key string) {
	switch m.Kind() {
	case jsonrpc.Request:
		s.takeRequest(st, m, key)
	case jsonrpc.Notification:
		s.takeNotification(m)
	case jsonrpc.Response:
		s.takeReply(m)
	}
}

// takeReply passes an answer of the client on to the server that asked: its
// own, or that of an earlier session whose call it has joined.
func (s *Session) takeReply(m *jsonrpc.Message) {
	conv := s.conversation()
	if conv == nil || s.pinged(m) {
		return
	}
	s.mu.Lock()
	s.repliedLocked(string(m.Raw(jsonrpc.ID)))
	var owners []*Session
	for _, c := range s.calls {
		if c.root() != c {
			owners = append(owners, c.root().sess)
		}
	}
	s.mu.Unlock()
	for _, o := range owners {
		o.mu.Lock()
		of := o.conv
		o.mu.Unlock()
		if of != nil && of.Asks(m.Raw(jsonrpc.ID)) {
			of.Reply(o, m)
			return
		}
	}
	conv.Reply(s, m)
}

func (s *Session) conversation() Conversation {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heardLocked()
	s.opening = ""
	return s.conv
}

// takeRequest answers what the gateway answers itself, and passes on the rest.
func (s *Session) takeRequest(st *Stream, m *jsonrpc.Message, key string) {
	c := newCall(s, st, m)
	if m.Is("ping") { // never waits behind work
		s.settle(c, jsonrpc.AppendResult(nil, c.ID, []byte("{}")))
		s.Touch()
		return
	}
	conv, err := s.admit(c, m)
	if err != nil {
		s.settle(c, jsonrpc.AppendError(nil, c.ID, jsonrpc.CodeInvalidRequest, err.Error(), nil))
		return
	}
	if !c.enter(m, key) || s.o.Tasks != nil && s.takeTask(conv, c, m) {
		return
	}
	if err := conv.Call(&c.Call, m); err != nil {
		c.end(ledger.Cancelled, refusal(c.ID, err)) // not executed: its key may be used again
	}
}

// token returns the progress token if it is one (2025-11-25 basic/utilities/
// progress: a string or an integer).
func token(m *jsonrpc.Message) []byte {
	raw := m.Raw(jsonrpc.MetaToken)
	if len(raw) > 0 && (raw[0] == '"' || raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9') {
		return raw
	}
	return nil
}

// refusal answers a call that did not leave.
func refusal(id []byte, err error) []byte {
	text := err.Error()
	if errors.Is(err, stdio.ErrBusy) {
		text = "the server does not read its input and too much waits for it already; try again later"
	}
	return jsonrpc.AppendError(nil, id, jsonrpc.CodeInternal, text, []byte(`{"outcome":"not_executed"}`))
}

// admit enters a call, or says why it cannot be.
func (s *Session) admit(c *call, m *jsonrpc.Message) (Conversation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heardLocked()
	if s.opening != "" && !m.Is("initialize") {
		s.opening = ""
	}
	key := string(c.ID)
	switch {
	case s.ended != nil:
		return nil, s.ended
	case s.conv == nil:
		return nil, errors.New("the session is not initialized yet: send initialize first")
	case s.calls[key] != nil:
		return nil, fmt.Errorf("id %s is in flight in this session already", key)
	}
	if n := s.unreadLocked(); n > s.limits.Unread ||
		s.limits.Stream.Total != nil && s.limits.Stream.Total.Over() && n > 64<<10 {
		return nil, fmt.Errorf("%d bytes of answers wait to be read in this session: read them first (GET with Last-Event-ID)", n)
	}
	if s.calls == nil {
		s.calls = map[string]*call{}
	}
	s.calls[key] = c
	return s.conv, nil
}

// unreadLocked returns the bytes of answers that no reader has confirmed. It
// is asked for with each call, so it looks closely only where there is much.
func (s *Session) unreadLocked() int {
	_, n := s.general.log.Kept()
	if len(s.streams) > s.limits.Streams {
		for _, st := range s.streams {
			_, b := st.log.Kept()
			n += b
		}
	}
	return n
}

func (s *Session) takeNotification(m *jsonrpc.Message) {
	conv := s.conversation()
	if conv == nil {
		return
	}
	if m.Is("notifications/cancelled") {
		s.cancel(conv, m)
		return
	}
	_ = conv.Notify(s, m) // nobody can be told that it was lost
}

// CodeCancelled answers a cancelled call where HTTP needs an answer to end.
const CodeCancelled = -32800

// cancel gives a call up at the client's wish. The client expects no answer
// (2025-11-25 basic/utilities/cancellation), but a POST must end with one: its
// stream would look broken, and be resumed.
func (s *Session) cancel(conv Conversation, m *jsonrpc.Message) {
	s.mu.Lock()
	c := s.calls[string(m.Raw(jsonrpc.RequestID))]
	s.mu.Unlock()
	if c == nil || !c.giveUp(m) {
		return
	}
	s.log(c, "call cancelled", observe.ClientCancelled)
	if s.single {
		s.remove(c)
		return
	}
	s.finish(c, jsonrpc.AppendError(nil, c.ID, CodeCancelled, "request cancelled by the client", []byte(`{"outcome":"cancelled"}`)))
}

// remove forgets a call, and reports whether it was still running.
func (s *Session) remove(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[string(c.ID)] != c {
		return false
	}
	delete(s.calls, string(c.ID))
	s.touch()
	return true
}

// finish removes a call and writes its answer.
func (s *Session) finish(c *call, msg []byte) {
	if s.remove(c) {
		s.settle(c, msg)
	}
}

// negotiated takes the version from the answer to initialize.
func (s *Session) negotiated(msg []byte) {
	var v struct {
		Result struct {
			ProtocolVersion era.Version `json:"protocolVersion"`
		} `json:"result"`
	}
	if unmarshal(msg, &v) != nil || v.Result.ProtocolVersion == "" {
		return
	}
	s.mu.Lock()
	s.version = v.Result.ProtocolVersion
	s.mu.Unlock()
}

// settle writes the answer to a call to its stream, and ends the stream with
// the last one.
func (s *Session) settle(c *call, msg []byte) {
	if c.task != nil {
		c.task.conclude(msg)
		return
	}
	st := c.st
	s.mu.Lock()
	defer s.mu.Unlock() // until the answer stands among those to be delivered
	last := false
	if st != &s.general {
		st.pending--
		if last = st.pending <= 0; last {
			s.dropPostLocked(st)
		}
	}
	var seq eventlog.Seq
	if last {
		seq = st.log.Finish(msg)
	} else {
		seq = st.log.Append(msg, true)
	}
	if entry := c.root().entry; entry != nil && seq > 0 && !c.handedOver {
		if st.ends == nil {
			st.ends = st.one[:0]
		}
		st.ends = append(st.ends, ended{seq, entry})
	}
}

// streamForLocked returns the stream of the call; without one the general stream if
// it is read; else that of the newest POST which can take it; else the general
// one, where it waits for a reader.
func (s *Session) streamForLocked(c *call) *Stream {
	if s.single {
		return &s.general
	}
	if c != nil && c.st.events && c.st.pending > 0 {
		return c.st
	}
	if s.general.reader != nil {
		return &s.general
	}
	for i := len(s.posts) - 1; i >= 0; i-- {
		if st := s.posts[i]; st.events && st.reader != nil {
			return st
		}
	}
	return &s.general
}
