// Package era names the revisions of MCP and decides which one a request speaks.
//
// It is the only place where a protocol version is spelled. The decision is
// made for each request, never for a server or a connection: one URL serves
// all eras.
package era

import (
	"slices"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Version is a protocol revision, as it stands in protocolVersion and in the
// MCP-Protocol-Version header.
type Version string

// The published revisions.
const (
	V20241105 Version = "2024-11-05" // HTTP+SSE
	V20250326 Version = "2025-03-26" // Streamable HTTP, with batches
	V20250618 Version = "2025-06-18"
	V20251125 Version = "2025-11-25" // priming events, retry
	V20260728 Version = "2026-07-28" // stateless
)

// NewestHandshake is the newest revision that begins with initialize.
const NewestHandshake = V20251125

// Assumed is the revision of a request that names none and has no session to
// ask (2025-06-18 basic/transports, "Protocol Version Header").
const Assumed = V20250326

// HeaderVersion is the header that names the revision of a request.
const HeaderVersion = "Mcp-Protocol-Version"

// Handshake reports whether v is a known revision with sessions.
func (v Version) Handshake() bool {
	return slices.Contains([]Version{V20241105, V20250326, V20250618, V20251125}, v)
}

// Batches reports whether JSON-RPC batches are part of v (2025-03-26 only).
func (v Version) Batches() bool { return v == V20250326 }

// Primes reports whether a stream of v may begin with an event that has an id
// and no data (2025-11-25 basic/transports, "Sending Messages to the Server"
// 6). Clients of earlier revisions take its empty data for a message.
func (v Version) Primes() bool { return v == V20251125 }

// Modern reports whether v is of the stateless era, known or not: revisions
// are dates, so they compare as text.
func (v Version) Modern() bool { return len(v) == len(V20260728) && v >= V20260728 }

// Generation is how a request expects to be treated.
type Generation uint8

// The generations.
const (
	Handshake Generation = iota // initialize, sessions
	Stateless                   // 2026-07-28 and later
)

// Of decides the generation of a message that came with the given version
// header ("" for none, or where there are no headers). A message is stateless
// if its params._meta names a protocol version or its header one of that era.
// The marks win over the method's name, with one exception: initialize without
// that _meta is a handshake, whatever the header.
func Of(m *jsonrpc.Message, header string) Generation {
	switch {
	case m.Has(jsonrpc.MetaVersion):
		return Stateless
	case m.Is("initialize"):
		return Handshake
	case Version(header).Modern():
		return Stateless
	}
	return Handshake
}

// Negotiate returns the version to ask a server for in the place of the one a
// client asked for: the same if it is known, else the newest with a handshake
// (2025-11-25 basic/lifecycle, "Version Negotiation").
func Negotiate(asked Version) Version {
	if asked.Handshake() {
		return asked
	}
	return NewestHandshake
}

// StatelessRefusal is the error that a stateless request is answered with as
// long as that era is not served. Its code is no recognised modern one, and
// with HTTP 400 it makes modern clients fall back to the handshake (2026-07-28
// basic/transports, "Backward Compatibility").
const (
	StatelessRefusalCode = -32000
	StatelessRefusal     = "this endpoint does not serve the stateless revisions (2026-07-28) yet: " +
		"send initialize without _meta[\"io.modelcontextprotocol/protocolVersion\"]"
)
