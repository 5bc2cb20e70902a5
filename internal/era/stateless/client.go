package stateless

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Mirror is what a client of the binding knows of its server's tools: which
// arguments go into headers, too. The zero value knows nothing. Safe for
// concurrent use.
type Mirror struct {
	mu    sync.Mutex // guards the field below
	tools map[string][]mirroredParam
}

// mirrorTools bounds the tools that a mirror knows.
const mirrorTools = 10_000

// Learn notes what a page of tools/list says, raw JSON.
func (c *Mirror) Learn(page []byte) {
	tools := map[string][]mirroredParam{}
	collect(page, tools)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tools == nil || len(c.tools)+len(tools) > mirrorTools {
		c.tools = map[string][]mirroredParam{}
	}
	maps.Copy(c.tools, tools)
}

func (c *Mirror) of(tool string) []mirroredParam {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tools[tool]
}

// SetHeaders sets the headers that mirror a request (2026-07-28
// basic/transports/streamable-http, "Standard Request Headers" and "Custom
// Headers"). version is for a message that names none itself.
func (c *Mirror) SetHeaders(h http.Header, m *jsonrpc.Message, version era.Version) {
	if v := m.Text(jsonrpc.MetaVersion); v != nil {
		version = era.Version(v)
	}
	h.Set(era.HeaderVersion, string(version))
	method := string(m.Text(jsonrpc.Method))
	if method == "" { // an answer
		return
	}
	h.Set("Mcp-Method", method)
	var name []byte
	switch method {
	case "tools/call", "prompts/get":
		name = m.Text(jsonrpc.Name)
	case "resources/read":
		name = m.Text(jsonrpc.URI)
	case "tasks/get", "tasks/update", "tasks/cancel": // of the extension
		if text, ok := primitive(jsonrpc.Get(m.Raw(jsonrpc.Params), "taskId")); ok {
			name = []byte(text)
		}
	}
	if name != nil {
		h.Set(headerName, encode(string(name)))
	}
	if method != "tools/call" {
		return
	}
	for _, p := range c.of(string(name)) {
		value := jsonrpc.Get(m.Raw(jsonrpc.Params), "arguments")
		for _, key := range p.path {
			value = jsonrpc.Get(value, key)
		}
		if text, ok := primitive(value); ok {
			h.Set(paramPrefix+p.header, encode(text))
		}
	}
}

// primitive returns a string, number or boolean, raw JSON, as a header says it.
func primitive(value []byte) (string, bool) {
	if len(value) == 0 || value[0] == '{' || value[0] == '[' || string(value) == "null" {
		return "", false
	}
	if value[0] != '"' {
		return string(value), true
	}
	var text string
	return text, json.Unmarshal(value, &text) == nil
}

// encode returns a header value that stands for the text: the text itself where
// a header can carry it (2026-07-28 basic/transports/streamable-http, "Value
// Encoding").
func encode(text string) string {
	plain := strings.TrimSpace(text) == text && !strings.HasPrefix(text, sentinelStart)
	for i := 0; plain && i < len(text); i++ {
		plain = text[i] >= 0x20 && text[i] <= 0x7e
	}
	if plain {
		return text
	}
	return sentinelStart + base64.StdEncoding.EncodeToString([]byte(text)) + sentinelEnd
}
