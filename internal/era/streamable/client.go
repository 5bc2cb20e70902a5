package streamable

import (
	"bytes"
	"net/http"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Session is what a client was given with the answer to initialize.
type Session struct {
	ID      string // "" with a server that has no sessions
	Version era.Version
}

// SessionID returns the session id of an answer to initialize, "" for none.
// One that breaks the rules for its letters (2025-11-25 basic/transports,
// "Session Management" 1) is none: it could not be sent back.
func SessionID(h http.Header) string {
	id := h.Get(headerSession)
	for i := range len(id) {
		if id[i] < 0x21 || id[i] > 0x7e {
			return ""
		}
	}
	if len(id) > 4096 {
		return ""
	}
	return id
}

// SetHeaders names session and revision, as all that comes after initialize
// must.
func (s Session) SetHeaders(h http.Header) {
	if s.ID != "" {
		h.Set(headerSession, s.ID)
	}
	if s.Version != "" {
		h.Set(era.HeaderVersion, string(s.Version))
	}
}

// SetLast asks for what a stream sent after the event.
func SetLast(h http.Header, event string) {
	if event != "" {
		h.Set(headerLast, event)
	}
}

// Lost reports whether an answer says that the session is gone. That is what
// 404 is for ("Session Management" 3), except with a JSON-RPC error that says
// something else: a method is unknown. Some servers say 400, and why in words.
func (s Session) Lost(status int, body []byte) bool {
	if s.ID == "" {
		return false
	}
	switch status {
	case http.StatusNotFound:
		return string(jsonrpc.Get(jsonrpc.Get(body, "error"), "code")) != "-32601"
	case http.StatusBadRequest:
		return bytes.Contains(bytes.ToLower(body), []byte("session"))
	}
	return false
}
