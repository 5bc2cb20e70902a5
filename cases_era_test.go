package holdfast_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

const v2026 = "2026-07-28"

// marked is a request that says in its _meta that it is of the stateless era.
// members are those of its params, each followed by a comma.
func marked(id, method, version, members string) string {
	return body(id, method, `{`+members+`"_meta":{"io.modelcontextprotocol/protocolVersion":`+version+
		`,"io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}`)
}

// stateless sends a stateless request with the headers that belong to it. name
// is what it calls or reads, "" for nothing.
func (c *client) stateless(id, method, members, name string) *stream {
	c.t.Helper()
	return c.send(marked(id, method, `"`+v2026+`"`, members), "MCP-Protocol-Version", v2026, "Mcp-Method", method, "Mcp-Name", name)
}

// C68 (i): the era is decided by each request. Here both are spoken through one
// binding, before a server that only knows the handshake: the gateway makes its
// own. (ii), where the server is the modern one, is a matter of the bridge.
func TestC68ErasAreToldApartByRequest(t *testing.T) {
	for name, open := range bindings {
		t.Run(name, func(t *testing.T) {
			f := &farm{}
			virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
				c := open(b, v11)
				sessions := len(f.told(`"initialize"`))
				s := c.stateless("1", "tools/call", `"name":"echo","arguments":`+odd+`,`, "echo")
				if got := c.answer("1"); !strings.Contains(got, `"structuredContent":`+odd) || !strings.Contains(got, `"resultType":"complete"`) {
					t.Errorf("answered with %s", got)
				}
				if s.done(); name == "streamable" && (s.status != http.StatusOK || s.header.Get("Mcp-Session-Id") != "") {
					t.Errorf("answered with %d in session %q", s.status, s.header.Get("Mcp-Session-Id"))
				}
				call := f.told("tools/call")[0]
				if !strings.Contains(call, `"arguments":`+odd) || strings.Contains(call, "io.modelcontextprotocol/") {
					t.Errorf("the server was told %s", call)
				}
				if n := len(f.told(`"initialize"`)); n != sessions+1 {
					t.Errorf("%d handshakes for it, want one", n-sessions)
				}
				for id, tt := range map[string]struct{ message, code string }{ // the marks win over the method's name
					"2": {marked("2", "initialize", `"`+v2026+`"`, ""), "-32601"},
					"3": {marked("3", "ping", `"`+v2026+`"`, ""), "-32601"},
					"4": {marked("4", "tools/list", `"2099-01-01"`, ""), "-32022"},
					"5": {strings.Replace(marked("5", "ping", `"`+v2026+`"`, ""), "protocolVersion", `protocol\u0056ersion`, 1), "-32601"},
				} {
					method := raw(tt.message, jsonrpc.Method)
					version := v2026
					if tt.code == "-32022" {
						version = "2099-01-01"
					}
					s := c.send(tt.message, "MCP-Protocol-Version", version, "Mcp-Method", strings.Trim(method, `"`))
					if got := c.answer(id); !strings.Contains(got, `"code":`+tt.code) || tt.code == "-32022" && !strings.Contains(got, `"supported":["`+v2026+`"]`) {
						t.Errorf("%s: answered with %s", tt.message, got)
					}
					want := map[string]int{"-32601": http.StatusNotFound, "-32022": http.StatusBadRequest}[tt.code]
					if s.done(); name == "streamable" && s.status != want {
						t.Errorf("%s: answered with %d, want %d", tt.message, s.status, want)
					}
				}
				// The session beside it is what it was.
				got := c.ask(toolCall("10", "echo", `{}`, `{"io.modelcontextprotocol/ProtocolVersion":"`+v2026+`","x":{"io.modelcontextprotocol/protocolVersion":1}}`))
				if got != `{"jsonrpc":"2.0","id":10,"result":{"content":[],"structuredContent":{}}}` {
					t.Errorf("answered with %s", got)
				}
			})
		})
	}
}

// Marks that contradict each other are an error of their own, not the other era.
func TestC68MarksThatDisagree(t *testing.T) {
	f := &farm{}
	virtually(t, setup{options: holdfast.Options{Server: holdfast.Server{Warm: -1}}, farm: f}, func(t *testing.T, b *bench) {
		c := b.client()
		call := marked(`"%s"`, "tools/call", `"`+v2026+`"`, `"name":"echo","arguments":{},`)
		for what, header := range map[string][]string{
			"no header":      {"Mcp-Method", "tools/call", "Mcp-Name", "echo"},
			"other version":  {"MCP-Protocol-Version", v11, "Mcp-Method", "tools/call", "Mcp-Name", "echo"},
			"no method":      {"MCP-Protocol-Version", v2026, "Mcp-Name", "echo"},
			"another method": {"MCP-Protocol-Version", v2026, "Mcp-Method", "tools/list", "Mcp-Name", "echo"},
			"another name":   {"MCP-Protocol-Version", v2026, "Mcp-Method", "tools/call", "Mcp-Name", "secret"},
		} {
			wantRefused(t, what, c.send(fmt.Sprintf(call, what), header...), http.StatusBadRequest, "-32020")
		}
		for i, method := range []string{"server/discover", "tools/list", "ping"} {
			s := c.send(body(fmt.Sprint(i), method, `{}`), "MCP-Protocol-Version", v2026, "Mcp-Method", method).done()
			if s.status != http.StatusBadRequest || !strings.Contains(string(s.body), `"error"`) {
				t.Errorf("%s by header alone: answered with %d %s", method, s.status, s.body)
			}
		}
		wantRefused(t, "batch", c.send(batchOf("100", "200"), "MCP-Protocol-Version", v2026), http.StatusBadRequest, "-32600")
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			s := c.do(method, "/mcp", "", "MCP-Protocol-Version", v2026).done()
			if s.status != http.StatusBadRequest && s.status != http.StatusMethodNotAllowed {
				t.Errorf("%s: answered with %d %s", method, s.status, s.body)
			}
		}
		if got := f.told("tools/"); len(got) > 0 {
			t.Errorf("a server was told %q", got)
		}
		c.header.Set("MCP-Protocol-Version", v2026) // an unmarked handshake is one, whatever the header
		c.handshake(v11, "{}")
		c.ask(toolCall(`"after"`, "echo", `{}`, ""))
	})
}

// C16 (ii): a stateless client that closes its stream has cancelled.
func TestC16ClosedStatelessStreamIsACancel(t *testing.T) {
	f := &farm{}
	virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
		c, other := b.client(), b.streamable(v11)
		other.send(toolCall("1", "sleep", `{"ms":3000,"of":"other"}`, "")).open()
		s := c.stateless("1", "tools/call", `"name":"sleep","arguments":{"ms":3000,"of":"mine"},`, "sleep").open()
		<-time.After(time.Second)
		s.cut()
		begin := time.Now()
		b.within(bound, "the cancellation at the server", func() bool { return len(f.told("notifications/cancelled")) > 0 })
		if d := time.Since(begin); d > 100*time.Millisecond {
			t.Errorf("it took %v", d)
		}
		<-time.After(10 * time.Second)
		up := raw(f.told(`"mine"`)[0], jsonrpc.ID)
		if got := f.told("notifications/cancelled"); len(got) != 1 || raw(got[0], jsonrpc.RequestID) != up {
			t.Errorf("the servers were told %q, want a cancellation of %s", got, up)
		}
		if got := other.answer("1"); !strings.Contains(got, "slept") {
			t.Errorf("the session's call was answered with %s", got)
		}
		c.waive("1")
	})
}

// C01 (iii): the acknowledgement is the first message of a listen stream, and
// the event after the silence comes on it.
func TestC01QuietListenIsNotCut(t *testing.T) {
	f := &farm{}
	virtually(t, setup{options: holdfast.Options{Timers: beating}, farm: f}, func(t *testing.T, b *bench) {
		c := b.client(impatient(2 * time.Second))
		s := c.stateless(`"l"`, "subscriptions/listen", `"notifications":{"toolsListChanged":true},`, "").open()
		<-time.After(5 * time.Second)
		for _, k := range f.all() {
			k.line(listChanged)
		}
		got := c.await("notifications/tools/list_changed")
		if all := c.find(); !strings.Contains(all[0].raw, "notifications/subscriptions/acknowledged") || got.via != s || len(all) != 2 {
			t.Errorf("received %v", all)
		}
		if s.silence() >= 2*time.Second {
			t.Errorf("the stream was silent for %v", s.silence())
		}
		checkQuietBytes(t, s)
		s.cut()
		s.done()
		c.waive(`"l"`)
	})
}
