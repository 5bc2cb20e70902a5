package holdfast_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Cases of kind h about the bytes of a message. Nothing here decodes a payload:
// what arrives is compared with what was sent.

// numbers are legal JSON (RFC 8259 section 6) that a decoder would change.
const numbers = `{"a":9223372036854775807,"b":1.0,"c":1e400,"d":-0,"e":0.1000,"f": [ 1E+2 ,18446744073709551616] }`

// odd has what MCP does not know or what an encoder would escape.
const odd = `{"z":1,"a":"<a>&b \u003c \u2028 ` + "\u2028" + ` \/ \ud83d\ude00 é","A":null,"":{},"list":[[],{}]}`

// wantParams holds the params that a server was told against those that were
// sent, with the one change that is the gateway's to make: the token, which it
// replaces, or puts in where there is none.
func wantParams(t *testing.T, line, sent, token string) {
	t.Helper()
	want := sent
	if token == "" {
		line = asSent(t, line)
	} else {
		want = strings.Replace(sent, `"progressToken":`+token, `"progressToken":`+raw(line, jsonrpc.MetaToken), 1)
	}
	if got := raw(line, jsonrpc.Params); got != want {
		t.Errorf("the server was told\n     %s\nwant %s", got, want)
	}
}

func TestC47NumbersAreKept(t *testing.T) {
	const result = `{"content":[],"structuredContent":` + numbers + `,"_meta":` + numbers + `}`
	const how = `"progress":0.1000,"total":1e400,"message":"1.0","_meta":` + numbers
	const failure = `{"code":-32000.0,"message":"<&>","data":` + numbers + `}`
	for name, open := range bindings {
		for _, slow := range []time.Duration{0, time.Second} { // as JSON, as an event stream
			t.Run(fmt.Sprint(name, slow), func(t *testing.T) {
				f := &farm{tools: map[string]func(*fakeCall){
					"numbers": func(c *fakeCall) { c.pause(slow); c.progress(how); c.reply(result) },
					"plain":   func(c *fakeCall) { c.pause(slow); c.reply(result) },
					"fail": func(c *fakeCall) {
						c.pause(slow)
						c.k.line(`{"jsonrpc":"2.0","id":` + c.id + `,"error":` + failure + `}`)
					},
				}}
				virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
					c := open(b, v06)
					meta := `{"n":` + numbers + `,"progressToken":"t"}`
					sent := fmt.Sprintf(`{"name":"numbers","arguments":%s,"_meta":%s}`, numbers, meta)
					if got, want := c.ask(body("1", "tools/call", sent)), `{"jsonrpc":"2.0","id":1,"result":`+result+`}`; got != want {
						t.Errorf("got  %s\nwant %s", got, want)
					}
					wantParams(t, f.told(`"numbers"`)[0], sent, `"t"`)
					want := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t",` + how + `}}`
					if got := c.find("notifications/progress"); len(got) != 1 || got[0].raw != want {
						t.Errorf("progress: got %v\nwant %s", got, want)
					}
					if got, want := c.ask(toolCall("2", "plain", `{}`, "")), `{"jsonrpc":"2.0","id":2,"result":`+result+`}`; got != want {
						t.Errorf("got  %s\nwant %s", got, want)
					}
					if got, want := c.ask(toolCall("3", "fail", `{}`, "")), `{"jsonrpc":"2.0","id":3,"error":`+failure+`}`; got != want {
						t.Errorf("got  %s\nwant %s", got, want)
					}
				})
			})
		}
	}
}

func TestC48FieldsAndTextAreKept(t *testing.T) {
	const tools = `{"tools":[{"name":"t","title":"<T> & co","inputSchema":` + odd + `,"outputSchema":` + odd +
		`,"icons":[{"src":"data:,","sizes":["any"]}],"execution":{"taskSupport":"optional"},"x-unknown":` + odd + `}],"ttl":1.0}`
	const result = `{"structuredContent":` + odd + `,"content":[{"type":"text","text":"<a>&b","_meta":` + odd +
		`},{"type":"hologram","x":` + odd + `}],"_meta":{"vendor/x":` + odd + `},"resultType":"odd"}`
	newFarm := func() *farm {
		return &farm{
			tools: map[string]func(*fakeCall){"odd": func(c *fakeCall) { c.reply(result) }},
			methods: map[string]func(*fake, *jsonrpc.Message){
				"tools/list": func(k *fake, m *jsonrpc.Message) { k.reply(string(m.Raw(jsonrpc.ID)), tools) },
				"vendor/own": func(k *fake, m *jsonrpc.Message) {
					k.line(`{"jsonrpc":"2.0","extra":` + odd + `,"result":` + odd + `,"id":` + string(m.Raw(jsonrpc.ID)) + `,"more":1.0}`)
				},
			},
		}
	}
	for name, open := range bindings {
		t.Run(name, func(t *testing.T) {
			f := newFarm()
			virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
				c := open(b, v06)
				if got, want := c.ask(body("1", "tools/list", `{"cursor":"<&>","x":`+odd+`}`)), `{"jsonrpc":"2.0","id":1,"result":`+tools+`}`; got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
				wantParams(t, f.told("tools/list")[0], `{"cursor":"<&>","x":`+odd+`}`, "")
				sent := `{"_meta":{"vendor/x":` + odd + `,"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},"x":` +
					odd + `,"arguments":` + odd + `,"name":"odd"}`
				if got, want := c.ask(body("2", "tools/call", sent)), `{"jsonrpc":"2.0","id":2,"result":`+result+`}`; got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
				wantParams(t, f.told(`tools/call`)[0], sent, "")
				got := c.ask(`{"x":` + odd + `,"params":` + odd + `,"method":"vendor/own","id":"3","jsonrpc":"2.0","Result":1}`)
				if want := `{"jsonrpc":"2.0","extra":` + odd + `,"result":` + odd + `,"id":"3","more":1.0}`; got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
				line := f.told("vendor/own")[0]
				if !strings.HasPrefix(line, `{"x":`+odd+`,"params":`+odd+`,"method":"vendor/own","id":`) || !strings.HasSuffix(line, `,"jsonrpc":"2.0","Result":1}`) {
					t.Errorf("the server was told %s", line)
				}
				c.send(`{"jsonrpc":"2.0","method":"notifications/vendor","params":` + odd + `}`)
				b.within(bound, "the notification", func() bool {
					return len(f.told(`{"jsonrpc":"2.0","method":"notifications/vendor","params":`+odd+`}`)) == 1
				})
				f.all()[0].line(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":` + odd + `}}`)
				if name == "streamable" {
					c.listen("/mcp", "")
				}
				if got := c.await("notifications/message").raw; !strings.HasSuffix(got, `"data":`+odd+`}}`) {
					t.Errorf("got %s", got)
				}
			})
		})
	}
}

// batchOf are a ping and a list in one array.
func batchOf(first, second string) string {
	return `[` + body(first, "ping", "") + ` , ` + body(second, "tools/list", `{"batched":1}`) + `]`
}

// C50. A batch of stateless requests is refused, too: C68.
func TestC50Batches(t *testing.T) {
	for name, open := range bindings {
		for _, version := range []string{v2024, v03, v06, v11} {
			t.Run(name+version, func(t *testing.T) {
				f := &farm{}
				virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
					c := open(b, version)
					s := c.send(`[]`)
					c.await("-32600")
					if s.done(); name != "stdio" && s.status != http.StatusBadRequest {
						t.Errorf("[]: answered with %d", s.status)
					}
					s = c.send(batchOf("1", `"2"`))
					if version == v03 {
						if got := c.answer("1"); got != `{"jsonrpc":"2.0","id":1,"result":{}}` {
							t.Errorf("got %s", got)
						}
						if got := c.answer(`"2"`); got != `{"jsonrpc":"2.0","id":"2","result":{"tools":[]}}` {
							t.Errorf("got %s", got)
						}
						return
					}
					c.await("-32600", "batch", version)
					if s.done(); name != "stdio" && s.status != http.StatusBadRequest {
						t.Errorf("answered with %d %s", s.status, s.body)
					}
					if got := f.told("batched"); len(got) > 0 {
						t.Errorf("the server was told %q", got)
					}
				})
			})
		}
	}
}

// Policy holds for each message of a batch, and every request of it is answered.
func TestC50BatchesOfEveryKind(t *testing.T) {
	f := &farm{}
	virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
		c := b.streamable(v03)
		notes := c.send(`[` + initialized + `,{"jsonrpc":"2.0","method":"notifications/x"}]`).done()
		if notes.status != http.StatusAccepted || len(notes.body) > 0 {
			t.Errorf("notifications only: answered with %d %q", notes.status, notes.body)
		}
		mixed := c.send(`[` + toolCall("1", "sleep", `{"ms":2000}`, "") + `,` + initialized + `,` + body("2", "ping", "") + `]`)
		c.answer("1")
		if mixed.done(); !strings.HasPrefix(mixed.header.Get("Content-Type"), "text/event-stream") {
			t.Errorf("a slow batch was answered with %s", mixed.header.Get("Content-Type"))
		}
		quick := c.send(batchOf("3", "4")).done()
		if got := string(quick.body); !strings.HasPrefix(got, "[{") || !strings.HasSuffix(got, "}]") {
			t.Errorf("a quick batch was answered with %s", got)
		}
		for what, bad := range map[string]string{
			"initialize":     `[` + hello("5", v03, "{}") + `]`,
			"modern marks":   `[` + body("6", "tools/list", `{"batched":1,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`) + `]`,
			"no message":     `[{"batched":1}]`,
			"duplicate name": `[` + body("7", "tools/call", `{"name":"batched","name":"echo"}`) + `]`,
			"within a batch": `[[` + body("8", "tools/list", `{"batched":1}`) + `]]`,
			"good and bad":   `[` + body("9", "tools/list", `{"batched":2}`) + `,1]`,
		} {
			before := len(f.told("batched"))
			if s := c.send(bad).done(); s.status != http.StatusBadRequest || !strings.Contains(string(s.body), `"error"`) {
				t.Errorf("%s: answered with %d %s", what, s.status, s.body)
			}
			if got := f.told("batched")[before:]; len(got) > 0 {
				t.Errorf("%s: the server was told %q", what, got)
			}
		}
	})
}

// Without a session there is no revision that would have batches but the
// assumed one.
func TestC50BatchWithoutSession(t *testing.T) {
	virtually(t, setup{farm: &farm{}}, func(t *testing.T, b *bench) {
		c := b.client()
		pings := func(id string) string { return `[` + body(id, "ping", "") + `]` }
		if s := c.send(pings("1")).done(); s.status != http.StatusOK || string(s.body) != `[{"jsonrpc":"2.0","id":1,"result":{}}]` {
			t.Errorf("answered with %d %s", s.status, s.body)
		}
		wantRefused(t, v06, c.send(pings("2"), "MCP-Protocol-Version", v06), http.StatusBadRequest, "-32600")
	})
}

func TestC51CaseAndDuplicates(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{%s}}`
	for name, open := range bindings {
		t.Run(name, func(t *testing.T) {
			f := &farm{}
			virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
				c := open(b, v06)
				for i, params := range []string{ // unknown members, whoever reads them
					`"name":"echo","Name":"secret","arguments":{}`,
					`"NAME":"secret","name":"echo","arguments":{}`,
					`"name":"echo","arguments":{},"Arguments":{"x":1},"_Meta":{"progressToken":1}`,
				} {
					if got, want := c.ask(fmt.Sprintf(call, i, params)), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":{}}}`, i); got != want {
						t.Errorf("%s: answered with %s", params, got)
					}
					lines := f.told("tools/call")
					wantParams(t, lines[len(lines)-1], `{`+params+`}`, "")
				}
				got := c.ask(`{"jsonrpc":"2.0","id":10,"method":"ping","Method":"tools/call","param\u017f":{"name":"x"},"paramſ":1,"ID":11}`)
				if got != `{"jsonrpc":"2.0","id":10,"result":{}}` {
					t.Errorf("answered with %s", got)
				}
				before := len(f.told("tools/"))
				for i, bad := range []string{
					`{"jsonrpc":"2.0","id":%d,"Method":"tools/list"}`,
					`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","name":"secret","arguments":{}}}`,
					`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","na\u006de":"secret","arguments":{}}}`,
					`{"jsonrpc":"2.0","id":%d,"method":"tools/list","method":"ping"}`,
					`{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{},"params":{"a":1}}`,
					`{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{"_meta":{"progressToken":1,"progressToken":2}}}`,
					`{"Jsonrpc":"2.0","id":%d,"method":"tools/list"}`,
				} {
					id := fmt.Sprint(20 + i)
					s := c.send(fmt.Sprintf(bad, 20+i))
					if got := c.answer(id); !strings.Contains(got, "-32600") {
						t.Errorf("%s: answered with %s", bad, got)
					}
					if s.done(); name != "stdio" && s.status != http.StatusBadRequest {
						t.Errorf("%s: answered with %d", bad, s.status)
					}
				}
				if got := c.ask(`{"jsonrpc":"2.0","id":30,"method":"tools/list","id":31}`); !strings.Contains(got, "-32600") {
					t.Errorf("two ids: answered with %s", got)
				}
				if got := f.told("tools/")[before:]; len(got) > 0 {
					t.Errorf("the server was told %q", got)
				}
			})
		})
	}
}
