package stateless

import (
	"net/http"
	"testing"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

func TestCase69ClientMirrorsTheBody(t *testing.T) {
	var mirror Mirror
	mirror.Learn([]byte(`{"tools":[{"name":"book","inputSchema":{"properties":{` +
		`"city":{"type":"string","x-mcp-header":"City"},"n":{"type":"integer","x-mcp-header":"Count"},` +
		`"deep":{"type":"object","properties":{"on":{"type":"boolean","x-mcp-header":"On"}}},"plain":{"type":"string"},` +
		`"bad":{"type":"string","x-mcp-header":"not a name"}}}}]}`))
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`
	for _, tt := range []struct {
		name, message string
		want          map[string]string
	}{
		{"a name that a header can carry", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file",` + meta + `}}`,
			map[string]string{"Mcp-Method": "tools/call", "Mcp-Name": "read_file", era.HeaderVersion: "2026-07-28"}},
		{"an address that it cannot", `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///Zał.pdf",` + meta + `}}`,
			map[string]string{"Mcp-Name": "=?base64?ZmlsZTovLy9aYcWCLnBkZg==?="}},
		{"a name that looks encoded", `{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"=?base64?x",` + meta + `}}`,
			map[string]string{"Mcp-Name": "=?base64?PT9iYXNlNjQ/eA==?="}},
		{"a space at the end", `{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"a ",` + meta + `}}`,
			map[string]string{"Mcp-Name": "=?base64?YSA=?="}},
		{"a task", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"t1",` + meta + `}}`,
			map[string]string{"Mcp-Name": "t1"}},
		{"a list", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + meta + `}}`,
			map[string]string{"Mcp-Method": "tools/list", "Mcp-Name": ""}},
		{"arguments", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"book","arguments":{"city":"Łódź","n":42,"deep":{"on":true},"plain":"x","bad":"y"},` + meta + `}}`,
			map[string]string{"Mcp-Param-City": "=?base64?xYHDs2TFug==?=", "Mcp-Param-Count": "42", "Mcp-Param-On": "true", "Mcp-Param-Plain": "", "Mcp-Param-Not A Name": ""}},
		{"arguments that are not there", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"book","arguments":{"city":null,"deep":[1]},` + meta + `}}`,
			map[string]string{"Mcp-Param-City": "", "Mcp-Param-Count": "", "Mcp-Param-On": ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := jsonrpc.Parse([]byte(tt.message))
			if err != nil {
				t.Fatal(err)
			}
			h := http.Header{}
			mirror.SetHeaders(h, m, "")
			for name, want := range tt.want {
				if got := h.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			for name := range h {
				if text, ok := decode(h.Get(name)); !ok {
					t.Errorf("%s cannot be decoded: %q", name, text)
				}
			}
		})
	}
}
