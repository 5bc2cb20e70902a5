package session

import (
	"errors"
	"fmt"

	"github.com/holdfast-mcp/holdfast/internal/conversation"
)

// Host is what sessions of one configured server are made of: the registry of
// its sessions, and the pool of its processes. Safe for concurrent use.
type Host struct {
	Sessions *Registry
	Pool     *conversation.Pool
	Name     string
	// Evict gives up a server process that is held for clients without a session
	// and not used; nil: there is none. It reports whether it did.
	Evict func() bool
}

// Open enters a new session. single says that its transport has one stream.
// The error is or wraps ErrTooMany or ErrShutdown.
func (h *Host) Open(single bool) (*Session, error) { return h.Sessions.New(single) }

// Connect gives a session its conversation with the server. The error is or
// wraps conversation.ErrFull, or tells why no server starts.
func (h *Host) Connect(s *Session) error {
	var full error // since others took the places that were made
	for range 3 {
		c, err := h.Pool.Take()
		if errors.Is(err, conversation.ErrFull) && (h.Sessions.Evict() || h.Evict != nil && h.Evict()) {
			full = err
			continue
		}
		if err != nil {
			return err
		}
		if c.Join(s) != nil { // it ended just now
			continue
		}
		err = s.Attach(c, func(reason string) { c.Leave(s, reason) })
		if err == nil {
			h.Sessions.opts.Log.Info("session opened", "session", Short(s.ID))
		}
		return err
	}
	if full != nil {
		return full
	}
	return fmt.Errorf("server %q ends as soon as it is started", h.Name)
}
