package session

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/holdfast-mcp/holdfast/internal/conversation"
	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/stdio"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Take handles one message of the client. Answers to requests, errors
// included, appear on st exactly once each. m is not kept.
func (s *Session) Take(st *Stream, m *jsonrpc.Message) {
	switch m.Kind() {
	case jsonrpc.Request:
		s.takeRequest(st, m)
	case jsonrpc.Notification:
		s.takeNotification(m)
	case jsonrpc.Response:
		if conv := s.conversation(); conv != nil {
			conv.Reply(s, m)
		}
	}
}

func (s *Session) conversation() Conversation {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touch()
	s.opening = ""
	return s.conv
}

// takeRequest answers what the gateway answers itself, and passes on the rest.
func (s *Session) takeRequest(st *Stream, m *jsonrpc.Message) {
	id := bytes.Clone(m.Raw(jsonrpc.ID))
	if m.Is("ping") { // never waits behind work
		s.settle(st, jsonrpc.AppendResult(nil, id, []byte("{}")))
		return
	}
	call := &conversation.Call{Peer: s, ID: id, Data: st, Token: bytes.Clone(token(m))}
	conv, err := s.admit(call, m)
	if err != nil {
		s.settle(st, jsonrpc.AppendError(nil, id, jsonrpc.CodeInvalidRequest, err.Error(), nil))
		return
	}
	if err := conv.Call(call, m); err != nil {
		s.Answer(call, refusal(id, err))
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
func (s *Session) admit(call *conversation.Call, m *jsonrpc.Message) (Conversation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touch()
	if s.opening != "" && !m.Is("initialize") {
		s.opening = ""
	}
	key := string(call.ID)
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
		s.calls = map[string]*conversation.Call{}
	}
	s.calls[key] = call
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
	call := s.calls[string(m.Raw(jsonrpc.RequestID))]
	s.mu.Unlock()
	if call == nil || !conv.Cancel(call, m) {
		return
	}
	s.finish(call, func() []byte {
		if s.single {
			return nil
		}
		return jsonrpc.AppendError(nil, call.ID, CodeCancelled, "request cancelled by the client", []byte(`{"outcome":"cancelled"}`))
	})
}

// Answer implements conversation.Peer.
func (s *Session) Answer(call *conversation.Call, msg []byte) {
	if call.Is("initialize") {
		s.negotiated(msg)
	}
	s.finish(call, func() []byte { return msg })
}

// finish removes a call and writes its answer, nil for none.
func (s *Session) finish(call *conversation.Call, answer func() []byte) {
	s.mu.Lock()
	if s.calls[string(call.ID)] != call {
		s.mu.Unlock()
		return
	}
	delete(s.calls, string(call.ID))
	s.touch()
	s.mu.Unlock()
	st := call.Data.(*Stream)
	if msg := answer(); msg != nil {
		s.settle(st, msg)
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

// settle writes one answer to the stream, and ends it with the last.
func (s *Session) settle(st *Stream, msg []byte) {
	if st == &s.general {
		st.log.Append(msg, true)
		return
	}
	s.mu.Lock()
	st.pending--
	last := st.pending <= 0
	if last {
		s.dropPostLocked(st)
	}
	s.mu.Unlock()
	if last {
		st.log.Finish(msg)
	} else {
		st.log.Append(msg, true)
	}
}

// Message implements conversation.Peer: a message goes to one stream only
// (2025-11-25 basic/transports, "Multiple Connections").
func (s *Session) Message(call *conversation.Call, msg []byte) {
	s.streamFor(call).log.Append(msg, false)
}

// streamFor returns the stream of the call; without one the general stream if
// it is read; else that of the newest POST which can take it; else the general
// one, where it waits for a reader.
func (s *Session) streamFor(call *conversation.Call) *Stream {
	if s.single {
		return &s.general
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if call != nil {
		if st := call.Data.(*Stream); st.events && st.pending > 0 {
			return st
		}
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
