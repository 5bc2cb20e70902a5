// Package demo is the MCP server of "holdfast serve --demo": small enough to
// try every kind of call with.
package demo

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"sync/atomic"

	"github.com/holdfast-mcp/holdfast/internal/lineserver"
)

// resourceNotFound is the error code of MCP for an unknown resource URI.
const resourceNotFound = -32002

// versions are the revisions with a handshake, oldest first.
var versions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}

// server is the state of one connection.
type server struct {
	canAsk atomic.Bool // the client takes elicitation/create in form mode
}

// Serve is one connection to the demo server: one client, one JSON-RPC message
// a line. It returns nil at the end of r, once what was in flight has ended;
// when ctx ends it returns its cause and closes r and w if they are io.Closers.
func Serve(ctx context.Context, r io.Reader, w io.Writer) error {
	s := &server{}
	return lineserver.Serve(ctx, r, w, lineserver.Options{Receive: s.receive})
}

func (s *server) receive(c *lineserver.Conn, m lineserver.Message) {
	if m.ID == nil {
		return // nothing a client may notify of concerns this server
	}
	if m.Method == "tools/call" {
		c.Go(m, func(ctx context.Context) (any, error) { return s.callTool(ctx, c, m.Params) })
		return
	}
	result, err := s.answer(m)
	_ = c.Reply(m, result, err) // fails only with the connection
}

func (s *server) answer(m lineserver.Message) (any, error) {
	switch m.Method {
	case "initialize":
		return s.initialize(m.Params)
	case "ping":
		return struct{}{}, nil
	case "tools/list":
		return map[string]any{"tools": json.RawMessage(tools)}, nil
	case "resources/list":
		return map[string]any{"resources": json.RawMessage(resources)}, nil
	case "resources/templates/list":
		return map[string]any{"resourceTemplates": []any{}}, nil
	case "resources/read":
		return readResource(m.Params)
	case "prompts/list":
		return map[string]any{"prompts": json.RawMessage(prompts)}, nil
	case "prompts/get":
		return getPrompt(m.Params)
	}
	return nil, &lineserver.Error{Code: lineserver.MethodNotFound, Message: "unknown method " + m.Method}
}

func (s *server) initialize(raw json.RawMessage) (any, error) {
	var params struct {
		ProtocolVersion string `json:"protocolVersion"`
		Capabilities    struct {
			// An object with neither "form" nor "url" means forms.
			Elicitation map[string]json.RawMessage `json:"elicitation"`
		} `json:"capabilities"`
	}
	if err := decode(raw, &params); err != nil {
		return nil, err
	}
	modes := params.Capabilities.Elicitation
	_, form := modes["form"]
	s.canAsk.Store(form || modes != nil && len(modes) == 0)

	version := versions[len(versions)-1]
	if slices.Contains(versions, params.ProtocolVersion) {
		version = params.ProtocolVersion
	}
	return struct {
		ProtocolVersion string          `json:"protocolVersion"`
		Capabilities    json.RawMessage `json:"capabilities"`
		ServerInfo      json.RawMessage `json:"serverInfo"`
		Instructions    string          `json:"instructions"`
	}{version, json.RawMessage(capabilities), json.RawMessage(serverInfo), instructions}, nil
}

func readResource(raw json.RawMessage) (any, error) {
	var params struct {
		URI string `json:"uri"`
	}
	if err := decode(raw, &params); err != nil {
		return nil, err
	}
	if params.URI != aboutURI {
		data, err := lineserver.Encode(map[string]string{"uri": params.URI})
		if err != nil {
			return nil, err
		}
		return nil, &lineserver.Error{Code: resourceNotFound, Message: "resource not found", Data: data}
	}
	return map[string]any{"contents": []any{
		map[string]string{"uri": aboutURI, "mimeType": "text/plain", "text": about},
	}}, nil
}

func getPrompt(raw json.RawMessage) (any, error) {
	var params struct {
		Name      string            `json:"name"`
		Arguments map[string]string `json:"arguments"`
	}
	if err := decode(raw, &params); err != nil {
		return nil, err
	}
	topic := params.Arguments["topic"]
	switch {
	case params.Name != "plan_report":
		return nil, invalid("unknown prompt " + params.Name)
	case topic == "":
		return nil, invalid("the argument topic is required")
	}
	return map[string]any{
		"description": "Plan a report and have it built",
		"messages": []any{map[string]any{
			"role": "user",
			"content": text("Name three questions that a report on " + topic +
				" has to answer, then call build_report with that topic."),
		}},
	}, nil
}

func text(s string) map[string]string { return map[string]string{"type": "text", "text": s} }

func invalid(message string) error {
	return &lineserver.Error{Code: lineserver.InvalidParams, Message: message}
}

// decode reads params that are not there as an empty object.
func decode(raw json.RawMessage, into any) error {
	if raw == nil {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return invalid("params: " + err.Error())
	}
	return nil
}
