package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/internal/era"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// snippet is what a person who has just started the gateway wants to copy.
func snippet(base string, endpoints []holdfast.Endpoint, demo bool) string {
	var b strings.Builder
	for _, e := range endpoints {
		fmt.Fprintf(&b, "\n%s\n  Streamable HTTP  %s\n  HTTP+SSE         %s\n", e.Name, base+e.Streamable, base+e.SSE)
	}
	b.WriteString("\nFor clients with an mcpServers file (VS Code: the same below \"servers\" in .vscode/mcp.json):\n\n  {\n    \"mcpServers\": {\n")
	for i, e := range endpoints {
		comma := ","
		if i == len(endpoints)-1 {
			comma = ""
		}
		fmt.Fprintf(&b, "      %q: { \"type\": \"http\", \"url\": %q }%s\n", e.Name, base+e.Streamable, comma)
	}
	b.WriteString("    }\n  }\n\nFor a first look, in a shell:\n\n")
	b.WriteString(curl(base+endpoints[0].Streamable, demo))
	if demo {
		b.WriteString("\nThe demo's tools: hello_world, build_report (takes a while, with progress), ask_name (asks the user).\n")
	}
	return b.String() + "\n"
}

// curl returns shell commands that open a session and use it: to list the
// tools, and with the demo to call one.
func curl(url string, demo bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  mcp() { curl -sSN %s -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \"$@\"; echo; }\n", url)
	fmt.Fprintf(&b, "  session=$(mcp -D - -o /dev/null -d '%s' | tr -d '\\r' | sed -n 's/^Mcp-Session-Id: //p')\n",
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+string(era.NewestHandshake)+
			`","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}`)
	post := func(message string) {
		fmt.Fprintf(&b, "  mcp -H \"Mcp-Session-Id: $session\" -d '%s'\n", message)
	}
	post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	post(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	if demo {
		post(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"hello_world","arguments":{"name":"you"}}}`)
	}
	return b.String()
}
