package testkit

import (
	"encoding/json"
	"strings"

	"github.com/holdfast-mcp/holdfast/internal/lineserver"
)

// resourceNotFound is the error code of MCP for an unknown resource URI.
const resourceNotFound = -32002

const (
	resourceList = `[{"uri":"testkit://text","name":"text","mimeType":"text/plain","size":4},` +
		`{"uri":"testkit://blob","name":"blob","mimeType":"application/octet-stream"}]`
	templateList = `[{"uriTemplate":"testkit://item/{id}","name":"item","mimeType":"text/plain"}]`
	promptList   = `[{"name":"greet","description":"Greets.","arguments":[{"name":"name","required":true}]}]`
)

var completions = []string{"Ada", "Alan", "Barbara", "Grace"}

// answer handles all that is answered at once, on the goroutine that reads.
func (s *server) answer(m lineserver.Message) (any, error) {
	if strings.HasPrefix(m.Method, "x/") {
		if m.Params == nil {
			return struct{}{}, nil
		}
		return m.Params, nil
	}
	switch m.Method {
	case "ping":
		return struct{}{}, nil
	case "tools/list":
		return map[string]any{"tools": json.RawMessage(toolList)}, nil
	case "resources/list":
		return map[string]any{"resources": json.RawMessage(resourceList)}, nil
	case "resources/templates/list":
		return map[string]any{"resourceTemplates": json.RawMessage(templateList)}, nil
	case "resources/read":
		return readResource(m.Params)
	case "resources/subscribe", "resources/unsubscribe":
		return s.subscribe(m.Params, m.Method == "resources/subscribe")
	case "prompts/list":
		return map[string]any{"prompts": json.RawMessage(promptList)}, nil
	case "prompts/get":
		return getPrompt(m.Params)
	case "completion/complete":
		return complete(m.Params)
	case "logging/setLevel":
		return s.setLevel(m.Params)
	}
	return nil, &Error{Code: lineserver.MethodNotFound, Message: "unknown method " + m.Method}
}

func readResource(raw json.RawMessage) (any, error) {
	var params struct {
		URI string `json:"uri"`
	}
	if err := decode(raw, &params); err != nil {
		return nil, err
	}
	content := map[string]string{"uri": params.URI}
	switch id, isItem := strings.CutPrefix(params.URI, "testkit://item/"); {
	case isItem:
		content["mimeType"], content["text"] = "text/plain", "item "+id
	case params.URI == "testkit://text":
		content["mimeType"], content["text"] = "text/plain", "text"
	case params.URI == "testkit://blob":
		content["mimeType"], content["blob"] = "application/octet-stream", "AAECAw=="
	default:
		data, err := lineserver.Encode(map[string]string{"uri": params.URI})
		if err != nil {
			return nil, err
		}
		return nil, &Error{Code: resourceNotFound, Message: "resource not found", Data: data}
	}
	return map[string]any{"contents": []any{content}}, nil
}

func (s *server) subscribe(raw json.RawMessage, on bool) (any, error) {
	var params struct {
		URI string `json:"uri"`
	}
	if err := decode(raw, &params); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if on {
		s.subscribed[params.URI] = true
	} else {
		delete(s.subscribed, params.URI)
	}
	return struct{}{}, nil
}

func getPrompt(raw json.RawMessage) (any, error) {
	var params struct {
		Name      string            `json:"name"`
		Arguments map[string]string `json:"arguments"`
	}
	if err := decode(raw, &params); err != nil {
		return nil, err
	}
	if params.Name != "greet" {
		return nil, invalidParams("unknown prompt %q", params.Name)
	}
	return map[string]any{"messages": []any{
		map[string]any{"role": "user", "content": text("Greet " + params.Arguments["name"] + ".")},
	}}, nil
}

func complete(raw json.RawMessage) (any, error) {
	var params struct {
		Argument struct {
			Value string `json:"value"`
		} `json:"argument"`
	}
	if err := decode(raw, &params); err != nil {
		return nil, err
	}
	values := []string{}
	for _, v := range completions {
		if strings.HasPrefix(v, params.Argument.Value) {
			values = append(values, v)
		}
	}
	return map[string]any{"completion": map[string]any{"values": values, "total": len(values), "hasMore": false}}, nil
}

// levels are the log levels of MCP, the least severe first.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

func severity(level string) int {
	for i, l := range levels {
		if l == level {
			return i
		}
	}
	return -1
}

func (s *server) setLevel(raw json.RawMessage) (any, error) {
	var params struct {
		Level string `json:"level"`
	}
	if err := decode(raw, &params); err != nil {
		return nil, err
	}
	if severity(params.Level) < 0 {
		return nil, invalidParams("unknown level %q", params.Level)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logLevel = params.Level
	return struct{}{}, nil
}

// logs reports whether a message of this level is to be sent: everything is,
// until the client says otherwise.
func (s *server) logs(level string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return severity(level) >= severity(s.logLevel)
}
