package holdfast_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

const v2026 = "2026-07-28"

// modern is a request of the stateless era. params are members of an object,
// meta members of its _meta, "" for none of either.
func modern(id, method, params, meta string) string {
	if params != "" {
		params += ","
	}
	if meta != "" {
		meta = "," + meta
	}
	if !strings.Contains(meta, "clientCapabilities") {
		meta = `,"io.modelcontextprotocol/clientCapabilities":{}` + meta
	}
	return body(id, method, `{`+params+`"_meta":{"io.modelcontextprotocol/protocolVersion":"`+v2026+`"`+meta+`}}`)
}

// modernCall is a tools/call of that era.
func modernCall(id, name, args, meta string) string {
	return modern(id, "tools/call", fmt.Sprintf(`"name":%q,"arguments":%s`, name, args), meta)
}

// sendModern sends one in the way of the binding: over Streamable HTTP with the
// headers that belong to it, which more may change.
func (c *client) sendModern(message string, more ...string) *stream {
	c.t.Helper()
	if c.endpoint != "" || c.pipe != nil {
		return c.send(message)
	}
	m, err := jsonrpc.Parse([]byte(message))
	if err != nil {
		c.t.Fatalf("%s: %v", message, err)
	}
	header := []string{"Mcp-Protocol-Version", string(m.Text(jsonrpc.MetaVersion)), "Mcp-Method", string(m.Text(jsonrpc.Method))}
	if name := m.Text(jsonrpc.Name); name != nil {
		header = append(header, "Mcp-Name", string(name))
	}
	if uri := m.Text(jsonrpc.URI); uri != nil {
		header = append(header, "Mcp-Name", string(uri))
	}
	return c.send(message, append(header, more...)...)
}

// askModern sends one and waits for its answer.
func (c *client) askModern(message string, more ...string) string {
	c.t.Helper()
	m, _ := jsonrpc.Parse([]byte(message))
	c.sendModern(message, more...)
	return c.answer(string(m.Raw(jsonrpc.ID)))
}

// newcomers are the ways to connect without a handshake.
var newcomers = map[string]func(b *bench) *client{
	"mcp": func(b *bench) *client { return b.client() },
	"sse": func(b *bench) *client {
		c := b.client()
		c.listen("/sse", "")
		return c
	},
	"stdio": func(b *bench) *client { return b.pipe() },
}

// The marks win over the method's name, and each request is judged for itself,
// in the midst of a session of the other era too.
func TestEraIsDecidedPerRequest(t *testing.T) {
	for name, open := range bindings {
		t.Run(name, func(t *testing.T) {
			f := &farm{}
			virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
				c := open(b, v11)
				for i, tt := range []struct {
					message, want string
					status        int
				}{
					{modern("0", "server/discover", "", ""), `"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]`, 200},
					{body("1", "tools/list", ""), `"tools":[]`, 200},
					{modernCall("2", "echo", `{"n":1.0}`, ""), `"resultType":"complete"`, 200},
					{toolCall("3", "echo", `{"n":1.0}`, ""), `"structuredContent":{"n":1.0}}`, 200},
					{modern("4", "initialize", `"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}`, ""), `"code":-32601`, 404},
					{modern("5", "ping", "", ""), `"code":-32601`, 404},
					{body("6", "ping", ""), `"result":{}`, 200},
					{modern("7", "logging/setLevel", `"level":"debug"`, ""), `"code":-32601`, 404},
					{modern("8", "resources/subscribe", `"uri":"x://"`, ""), `"code":-32601`, 404},
					{strings.Replace(modern("9", "tools/list", "", ""), "protocolVersion", `protocol\u0056ersion`, 1), `"resultType":"complete"`, 200},
					{strings.Replace(modern("10", "tools/list", "", ""), v2026, "2099-01-01", 1), `"code":-32022`, 400},
					{strings.Replace(modern("11", "tools/list", "", ""), v2026, v11, 1), `"code":-32022`, 400},
					{strings.Replace(modern("12", "tools/list", "", ""), `"`+v2026+`"`, "null", 1), `"code":-32602`, 400},
					{strings.Replace(modern("13", "tools/list", "", ""), "clientCapabilities", "clientcapabilities", 1), `"code":-32602`, 400},
					// Marks of another spelling, or in another place, are none.
					{toolCall("14", "echo", `{}`, `{"io.modelcontextprotocol/ProtocolVersion":"`+v2026+`","x":{"io.modelcontextprotocol/protocolVersion":1}}`), `"structuredContent":{}}`, 200},
				} {
					send := c.send
					if m, _ := jsonrpc.Parse([]byte(tt.message)); m.Has(jsonrpc.MetaVersion) {
						send = c.sendModern
					}
					s := send(tt.message)
					if got := c.answer(fmt.Sprint(i)); !strings.Contains(got, tt.want) {
						t.Errorf("%s was answered %s, want %s", tt.message, got, tt.want)
					}
					if s.done(); name == "streamable" && s.status != tt.status {
						t.Errorf("%s was answered with %d, want %d", tt.message, s.status, tt.status)
					}
				}
				for _, line := range f.told("initialize") {
					if strings.Contains(line, `"name":"x"`) {
						t.Errorf("a server was told %s", line)
					}
				}
			})
		})
	}
}

// The same without a session, and by the header alone: what a client sends that
// looks which era is spoken.
func TestEraByHeader(t *testing.T) {
	f := &farm{}
	virtually(t, setup{options: holdfast.Options{Server: holdfast.Server{Warm: -1}}, farm: f}, func(t *testing.T, b *bench) {
		c := b.client()
		for i, version := range []string{v2026, "2027-01-01"} {
			for j, method := range []string{"server/discover", "tools/call", "ping", "no/such/method"} {
				id := fmt.Sprint(10*i + j)
				s := c.send(body(id, method, `{"modern":1}`), "Mcp-Protocol-Version", version, "Mcp-Method", method)
				wantRefused(t, method, s, http.StatusBadRequest, "-32602") // it does not say its version where it must
			}
			if s := c.send(initialized, "Mcp-Protocol-Version", version).done(); s.status != http.StatusAccepted || len(s.body) > 0 {
				t.Errorf("a notification: answered with %d %s", s.status, s.body)
			}
			wantRefused(t, "a batch", c.send(batchOf(fmt.Sprint(100+i), fmt.Sprint(200+i)), "Mcp-Protocol-Version", version), http.StatusBadRequest, "-32600")
			for _, method := range []string{http.MethodGet, http.MethodDelete} {
				s := c.do(method, "/mcp", "", "Mcp-Protocol-Version", version).done()
				if s.status != http.StatusBadRequest && s.status != http.StatusMethodNotAllowed {
					t.Errorf("%s: answered with %d %s", method, s.status, s.body)
				}
			}
		}
		if n := len(f.all()); n > 0 {
			t.Errorf("%d servers were started", n)
		}
		c.header.Set("MCP-Protocol-Version", v2026) // a handshake is one, whatever the header
		c.handshake(v11, "{}")
		c.ask(toolCall(`"after"`, "echo", `{}`, ""))
	})
}

// A session of the older era and requests of the newer one do not get into each
// other's way: ids may be the same, and neither sees the other's server.
func TestErasDoNotMix(t *testing.T) {
	f := &farm{}
	virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
		old, young := b.streamable(v11), b.client()
		for i := range 3 {
			id := fmt.Sprint(i)
			old.send(toolCall(id, "sleep", `{"ms":1000,"who":"old"}`, ""))
			young.sendModern(modernCall(id, "sleep", `{"ms":1000,"who":"young"}`, ""))
			for who, got := range map[string]string{"old": old.answer(id), "young": young.answer(id)} {
				if strings.Contains(got, "resultType") != (who == "young") {
					t.Errorf("%s was answered %s", who, got)
				}
			}
		}
		for _, k := range f.all() {
			if len(k.told(`"old"`)) > 0 && len(k.told(`"young"`)) > 0 {
				t.Errorf("server %d serves both", k.number)
			}
		}
	})
}
