package session

import (
	"time"

	"github.com/holdfast-mcp/holdfast/internal/conversation"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Opening notes, before its initialize is taken, by which key another session of
// the same client can be known. Until anything else is said in the session, and
// while nobody reads its stream, that one may adopt the server that was started.
func (s *Session) Opening(key string) {
	s.mu.Lock()
	s.opening = key
	s.mu.Unlock()
}

// orphaned reports whether the session is one whose client, known by the key,
// has given up waiting for its server, and since when.
func (s *Session) orphaned(key string) (since time.Time, ok bool) {
	s.mu.Lock()
	c, own := s.conv.(*conversation.Conversation)
	since, ok = s.used, s.orphanedLocked(key)
	s.mu.Unlock()
	return since, ok && own && c.Own()
}

func (s *Session) orphanedLocked(key string) bool {
	return s.opening == key && key != "" && s.ended == nil && s.readers == 0
}

// abdicate ends such a session and returns its conversation, which is left as
// it is; nil if it is not one.
func (s *Session) abdicate(key string) *conversation.Conversation {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.conv.(*conversation.Conversation)
	if !ok || !s.orphanedLocked(key) {
		return nil
	}
	s.ended = ErrAbandoned
	s.conv, s.leave, s.calls = nil, nil, nil
	s.closeLocked(&s.general)
	close(s.done)
	return c
}

// Adopt gives a new session the server that an earlier one of the same client,
// known by the key, has begun to start, so that a slow start is waited for once
// however often the client tries. m is the initialize; its answer comes on the
// stream. It reports false if there is no such server: connect to another.
func (h *Host) Adopt(s *Session, key string, m *jsonrpc.Message) bool {
	for {
		var o *Session // the one that has waited longest is the furthest
		var since time.Time
		for _, other := range h.Sessions.snapshot() {
			if at, ok := other.orphaned(key); ok && other != s && (o == nil || at.Before(since)) {
				o, since = other, at
			}
		}
		if o == nil {
			return false
		}
		c := o.abdicate(key)
		if c == nil { // no orphan any more
			continue
		}
		h.Sessions.remove(o)
		call := newCall(s, &s.general, m)
		if s.take(c, call) && c.Inherit(o, &call.Call) {
			h.Sessions.opts.Log.Info("start of a server taken over from the client's earlier try", "session", Short(s.ID))
			return true
		}
		s.untake(call)
		c.Leave(o, ErrAbandoned.Error())
	}
}

// take attaches a conversation with its initialize under way.
func (s *Session) take(c *conversation.Conversation, first *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil || s.conv != nil {
		return false
	}
	s.touch()
	s.conv, s.leave = c, func(reason string) { c.Leave(s, reason) }
	s.calls = map[string]*call{string(first.ID): first}
	return true
}

// untake takes it back.
func (s *Session) untake(first *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[string(first.ID)] == first {
		s.conv, s.leave, s.calls = nil, nil, nil
	}
}
