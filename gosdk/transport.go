// Package gosdk lets a client of the official Go SDK reach a remote MCP server through Holdfast.
//
// It is a module of its own, so that Holdfast itself needs no SDK.
package gosdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-mcp/holdfast"
)

// Transport is an mcp.Transport that outlives the network and the server, as
// the command holdfast connect does, in this process. Client and server may be
// of any two revisions, over Streamable HTTP or HTTP+SSE. A broken connection is
// opened again, a stream resumed, a session that a redeployment has ended
// replaced; requests wait meanwhile, for Options.Timers.ReconnectWait. A call
// that may have been executed is never sent again: what became of one without an
// answer is told by Outcome.
//
// Unlike other transports it may be used for any number of clients, each with a
// connection of its own. It must not be changed once it is in use.
type Transport struct {
	// URL is the server's MCP endpoint, or its HTTP+SSE stream.
	URL string
	// Options are those of holdfast.Dial. Server.Header, Server.HeaderFunc and
	// Server.CA go with the URL; Server.URL need not be set. Logger gets what
	// happens; nothing is written elsewhere.
	Options holdfast.Options
}

var _ mcp.Transport = (*Transport)(nil)

// Connect implements mcp.Transport. Nothing is sent before the client does, so
// a server that cannot be reached is no error here but of the handshake. ctx
// bounds Connect only. The error wraps holdfast.ErrOptions where URL and Options
// are at fault.
//
// Close of the connection ends all that runs for it, within a few seconds, and
// gives calls in flight up. A session of the SDK, though, closes its connection
// only once its own calls have ended: to leave at once, end their contexts.
// Messages go through as the SDK spells and reads them; nothing else is changed
// but ids and progress tokens, which come back as they were.
func (t *Transport) Connect(ctx context.Context) (mcp.Connection, error) {
	o := t.Options
	switch {
	case t.URL == "":
	case len(o.Servers) > 0:
		return nil, fmt.Errorf("%w: URL and Options.Servers: give one of them", holdfast.ErrOptions)
	case o.Server.URL != "" && o.Server.URL != t.URL:
		return nil, fmt.Errorf("%w: URL and Options.Server.URL differ", holdfast.ErrOptions)
	default:
		o.Server.URL = t.URL
	}
	conn, err := holdfast.Dial(ctx, o)
	if err != nil {
		return nil, err
	}
	lines := &mcp.IOTransport{Reader: conn, Writer: conn, MaxLineLength: -1} // Options.MaxBody bounds them
	c, err := lines.Connect(ctx)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

// What an error says of whether its call was executed.
const (
	Executed    = "executed"     // it was, and its answer cannot be had
	NotExecuted = "not_executed" // it may be called again
	Cancelled   = "cancelled"    // it was begun and given up
	Unknown     = "unknown"      // it may have been
)

// Outcome returns what the error of a call says of its execution: Executed,
// NotExecuted, Cancelled or Unknown. It returns "" for nil and for an error of
// the server itself. An error that is not an answer, as that of a context that
// ended or a connection that was closed, is Unknown.
func Outcome(err error) string {
	if err == nil {
		return ""
	}
	answer, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok {
		return Unknown
	}
	var data struct {
		Outcome string `json:"outcome"`
	}
	_ = json.Unmarshal(answer.Data, &data) // data of a server's own may be anything
	return data.Outcome
}
