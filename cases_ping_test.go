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

// Cases of kind b: a ping is answered at once by whoever is asked, and its
// absence ends nothing.

// C06: the gateway keeps streams open by comments, and asks a client nothing;
// the pings of a server are its own to answer.
func TestC06NoPingEndsALongCall(t *testing.T) {
	for name, open := range bindings {
		t.Run(name, func(t *testing.T) {
			f := &farm{tools: map[string]func(*fakeCall){"pinging": func(c *fakeCall) {
				for i := range 10 {
					c.pause(500 * time.Millisecond)
					c.k.line(fmt.Sprintf(`{"jsonrpc":"2.0","id":"p%d","method":"ping"}`, i))
				}
				c.pause(time.Millisecond)
				c.reply(fmt.Sprintf(`{"structuredContent":%d}`, len(c.k.told(`{"jsonrpc":"2.0","id":"p`, `,"result":{}}`))))
			}}}
			virtually(t, setup{options: holdfast.Options{Timers: beating}, farm: f}, func(t *testing.T, b *bench) {
				c := open(b, v06)
				if name == "streamable" {
					c.listen("/mcp", "")
				}
				if got, want := c.ask(toolCall("1", "pinging", `{}`, "")), `{"jsonrpc":"2.0","id":1,"result":{"structuredContent":10}}`; got != want {
					t.Errorf("answered with %s, want %s", got, want)
				}
				<-time.After(10 * time.Minute)
				if got := c.find(`"method":"ping"`); len(got) > 0 {
					t.Errorf("the client was asked %s", got[0].raw)
				}
				c.ask(toolCall("2", "echo", `{}`, ""))
			})
		})
	}
}

// C07: a server that is busy is alive. Verdicts about one that hangs wait for
// the liveness of a later issue; until then nothing is asked of it at all.
func TestC07BusyServerIsNotRestarted(t *testing.T) {
	for _, isolation := range []holdfast.Isolation{holdfast.PerSession, holdfast.Shared} {
		t.Run(string(isolation), func(t *testing.T) {
			f := &farm{methods: map[string]func(*fake, *jsonrpc.Message){"x/block": func(k *fake, m *jsonrpc.Message) {
				select { // on the goroutine that reads: it hears nothing meanwhile
				case <-time.After(2 * time.Minute):
				case <-k.ctx.Done():
				}
				k.line(`{"jsonrpc":"2.0","id":"hc-1","result":{}}`) // late answers to nobody
				k.line(`{"jsonrpc":"2.0","id":424242,"result":{}}`)
				k.reply(string(m.Raw(jsonrpc.ID)), `{"done":true}`)
			}}}
			o := holdfast.Options{Server: holdfast.Server{Isolation: isolation, Warm: -1}}
			virtually(t, setup{options: o, farm: f}, func(t *testing.T, b *bench) {
				c, other := b.streamable(v11), b.streamable(v11)
				servers := len(f.all())
				c.send(body("1", "x/block", "")).open()
				begin := time.Now()
				for i := range 20 { // answered here, however busy the server
					if got, want := c.ask(body(fmt.Sprintf(`"p%d"`, i), "ping", "")), fmt.Sprintf(`{"jsonrpc":"2.0","id":"p%d","result":{}}`, i); got != want {
						t.Errorf("ping: answered with %s", got)
					}
				}
				if d := time.Since(begin); d > time.Second {
					t.Errorf("20 pings took %v", d)
				}
				other.send(toolCall("1", "echo", `{"o":1}`, ""))
				if got := c.answer("1"); !strings.Contains(got, `"done":true`) {
					t.Errorf("answered with %s", got)
				}
				other.answer("1")
				if got := len(f.all()); got != servers || f.alive() != servers {
					t.Errorf("%d servers were started, %d live, want the %d there were", got, f.alive(), servers)
				}
				if got := f.told("ping"); len(got) > 0 {
					t.Errorf("the server was told %q", got)
				}
				if got := c.find("hc-1"); len(got) > 0 {
					t.Errorf("the client received %s", got[0].raw)
				}
			})
		})
	}
}

func TestC09PingBeforeInitialize(t *testing.T) {
	for name, connect := range map[string]func(b *bench) *client{
		"streamable": func(b *bench) *client { return b.client() },
		"sse":        func(b *bench) *client { c := b.client(); c.listen("/sse", ""); return c },
		"stdio":      func(b *bench) *client { return b.pipe() },
	} {
		t.Run(name, func(t *testing.T) {
			f := &farm{}
			virtually(t, setup{options: holdfast.Options{Server: holdfast.Server{Warm: -1}}, farm: f}, func(t *testing.T, b *bench) {
				c := connect(b)
				for i, params := range []string{"", "null", "{}"} {
					s := c.send(body(fmt.Sprint(i), "ping", params))
					if got, want := c.answer(fmt.Sprint(i)), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, i); got != want {
						t.Errorf("params %q: answered with %s", params, got)
					}
					if s.done(); name == "streamable" && (s.status != http.StatusOK || s.header.Get("Mcp-Session-Id") != "") {
						t.Errorf("answered with %d and session %q", s.status, s.header.Get("Mcp-Session-Id"))
					}
				}
				if n := len(f.all()); n > 0 {
					t.Errorf("%d servers were started for a ping", n)
				}
				early := c.send(body(`"early"`, "tools/list", "")) // is not allowed yet, and not silently so
				if got := c.answer(`"early"`); !strings.Contains(got, "initialize first") {
					t.Errorf("answered with %s", got)
				}
				if early.done(); name == "streamable" && early.status != http.StatusBadRequest {
					t.Errorf("answered with %d", early.status)
				}
				c.handshake(v11, "{}")
				c.ask(toolCall("10", "echo", `{}`, ""))
				if n := len(f.all()); n != 1 {
					t.Errorf("%d servers", n)
				}
			})
		})
	}
}
