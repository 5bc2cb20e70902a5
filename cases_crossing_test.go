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

// C68 (i): a client without a handshake before a server that wants one. The
// gateway shakes hands for it, and says what the client's era wants to hear.
func TestC68StatelessClientHandshakeServer(t *testing.T) {
	for binding, connect := range newcomers {
		t.Run(binding, func(t *testing.T) {
			early := false
			f := &farm{}
			f.methods = map[string]func(*fake, *jsonrpc.Message){"tools/list": func(k *fake, m *jsonrpc.Message) {
				early = early || len(k.told("notifications/initialized")) == 0
				k.reply(string(m.Raw(jsonrpc.ID)), `{"tools":[]}`)
			}, "resources/read": func(k *fake, m *jsonrpc.Message) {
				k.line(`{"jsonrpc":"2.0","id":` + string(m.Raw(jsonrpc.ID)) + `,"error":{"code":-32002,"message":"none","data":{"uri":"x://"}}}`)
			}}
			virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
				c := connect(b)
				const can = `"io.modelcontextprotocol/clientCapabilities":{"roots":{}},"io.modelcontextprotocol/clientInfo":{"name":"young","version":"1"}`
				got := c.askModern(modern("1", "tools/list", "", can))
				for _, want := range []string{`"resultType":"complete"`, `"ttlMs":0`, `"cacheScope":"private"`, `"io.modelcontextprotocol/serverInfo":{"name":"kid"`} {
					if !strings.Contains(got, want) {
						t.Errorf("tools/list was answered %s, without %s", got, want)
					}
				}
				if early {
					t.Error("the server was asked before it was told that the handshake is over")
				}
				hello := f.told(`"method":"initialize"`)
				if len(hello) != 1 || !strings.Contains(hello[0], `"protocolVersion":"2025-11-25"`) || !strings.Contains(hello[0], `"capabilities":{"roots":{}}`) || !strings.Contains(hello[0], `"young"`) {
					t.Errorf("greeted with %q", hello)
				}
				if got := c.askModern(modern("2", "resources/read", `"uri":"x://"`, can)); !strings.Contains(got, `"code":-32602`) || !strings.Contains(got, `"data":{"uri":"x://"}`) {
					t.Errorf("a missing resource: %s", got)
				}
				if got := c.askModern(strings.Replace(modern("3", "tools/list", "", can), v2026, "1900-01-01", 1)); !strings.Contains(got, `"supported":["2026-07-28"],"requested":"1900-01-01"`) {
					t.Errorf("an unknown version: %s", got)
				}
				for _, line := range f.told("io.modelcontextprotocol/") {
					if !strings.Contains(line, "server/discover") {
						t.Errorf("the server was told %s", line)
					}
				}
			})
		})
	}
}

// C68 (ii): a client of the handshake era, over each binding, before a server
// that speaks the stateless era only.
func TestC68HandshakeClientStatelessServer(t *testing.T) {
	for _, isolation := range []holdfast.Isolation{holdfast.PerSession, holdfast.Shared} {
		for name, open := range bindings {
			t.Run(name+", "+string(isolation), func(t *testing.T) {
				f := &farm{methods: modernOnly()}
				f.tools = map[string]func(*fakeCall){"ask": func(c *fakeCall) {
					if state := jsonrpc.Get([]byte(c.params), "requestState"); state != nil {
						c.reply(fmt.Sprintf(`{"resultType":"complete","structuredContent":[%s,%s]}`, state, jsonrpc.Get([]byte(c.params), "inputResponses")))
						return
					}
					c.reply(`{"resultType":"input_required","requestState":"a b==\u2028","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"who?"}}}}`)
				}}
				virtually(t, setup{options: holdfast.Options{Server: holdfast.Server{Isolation: isolation}}, farm: f}, func(t *testing.T, b *bench) {
					crossed(t, b, f, open(b, v06))
				})
			})
		}
	}
}

func crossed(t *testing.T, b *bench, f *farm, c *client) {
	t.Helper()
	if got := c.answer(`"hello"`); !strings.Contains(got, `"serverInfo":{"name":"new-kid","version":"2"}`) || !strings.Contains(got, `"protocolVersion":"`+v06+`"`) {
		t.Errorf("initialize was answered %s", got)
	}
	for id, tt := range map[string]struct{ request, want string }{
		"1": {body("1", "ping", ""), `{"jsonrpc":"2.0","id":1,"result":{}}`},
		"2": {body("2", "tools/list", ""), `{"jsonrpc":"2.0","id":2,"result":{"tools":[]}}`},
		"3": {toolCall("3", "echo", `{"n":1.0}`, ""), `{"jsonrpc":"2.0","id":3,"result":{"content":[],"structuredContent":{"n":1.0}}}`},
		"4": {body("4", "resources/subscribe", `{"uri":"x://1"}`), `{"jsonrpc":"2.0","id":4,"result":{}}`},
		"5": {body("5", "logging/setLevel", `{"level":"error"}`), `{"jsonrpc":"2.0","id":5,"result":{}}`},
	} {
		if got := c.ask(tt.request); got != tt.want {
			t.Errorf("request %s was answered %s, want %s", id, got, tt.want)
		}
	}
	c.ask(toolCall("6", "echo", `{}`, ""))
	for _, line := range f.told("tools/call") {
		for _, want := range []string{`"io.modelcontextprotocol/protocolVersion":"2026-07-28"`, `"io.modelcontextprotocol/clientCapabilities":{}`, `"io.modelcontextprotocol/clientInfo":{"name":"raw"`} {
			if !strings.Contains(line, want) {
				t.Errorf("the server was sent %s, without %s", line, want)
			}
		}
	}
	if n := len(f.told("tools/call", `"io.modelcontextprotocol/logLevel":"error"`)); n == 0 {
		t.Error("the log level does not go along")
	}
	// What it subscribed to comes as it knows it.
	b.within(bound, "a subscription", func() bool { return len(f.told("subscriptions/listen", "x://1")) == 1 })
	line := f.told("subscriptions/listen", "x://1")[0]
	for _, k := range f.all() {
		if len(k.told("subscriptions/listen", "x://1")) > 0 {
			k.line(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://1","_meta":{"io.modelcontextprotocol/subscriptionId":` + raw(line, jsonrpc.ID) + `}}}`)
		}
	}
	if c.pipe == nil && c.endpoint == "" {
		c.listen("/mcp", "")
	}
	c.await(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://1"}}`)
	for _, word := range []string{"notifications/initialized", `"method":"ping"`, "resources/subscribe", "logging/setLevel"} {
		if got := f.told(word); len(got) > 0 {
			t.Errorf("the server was told %q", got)
		}
	}
	// It did not declare that it answers questions.
	if got := c.ask(toolCall("8", "ask", `{}`, "")); !strings.Contains(got, `"code":-32603`) || !strings.Contains(got, "elicitation/create") {
		t.Errorf("a question that it cannot answer: %s", got)
	}
	if got := c.find(`"method":"elicitation/create"`); len(got) > 0 {
		t.Errorf("it was asked %v", got)
	}
}

// C68 (iii): the methods of HTTP that a revision does without are refused by
// what they name it as, and leave the session of the other era alone.
func TestC68MethodsOfTheOtherEra(t *testing.T) {
	virtually(t, setup{farm: &farm{}}, func(t *testing.T, b *bench) {
		c := b.streamable(v11)
		for _, version := range []string{v2026, "2027-01-01"} {
			for _, method := range []string{http.MethodGet, http.MethodDelete} {
				for who, from := range map[string]*client{"without a session": b.client(), "in a session": c} {
					s := from.do(method, "/mcp", "", "MCP-Protocol-Version", version)
					wantRefused(t, method+" "+who, s, http.StatusMethodNotAllowed, "-32600")
					if got := s.header.Get("Allow"); got != "POST" || !strings.Contains(s.bytes(), version) {
						t.Errorf("%s %s: Allow is %q, answered %s", method, who, got, s.bytes())
					}
				}
			}
		}
		c.ask(toolCall("1", "echo", `{}`, "")) // it lives
	})
}

// C68 (ii), C70: its questions come as requests, and its state goes back byte
// for byte.
func TestC68QuestionsOfAStatelessServer(t *testing.T) {
	for name, connect := range newcomers {
		t.Run(name, func(t *testing.T) {
			f := &farm{methods: modernOnly()}
			f.tools = map[string]func(*fakeCall){"ask": func(c *fakeCall) {
				if state := jsonrpc.Get([]byte(c.params), "requestState"); state != nil {
					c.reply(fmt.Sprintf(`{"resultType":"complete","structuredContent":[%s,%s]}`, state, jsonrpc.Get([]byte(c.params), "inputResponses")))
					return
				}
				c.reply(`{"resultType":"input_required","requestState":"a b==\u2028","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"who?"}},"l":{"method":"roots/list"}}}`)
			}}
			virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
				c := connect(b)
				c.handshake(v11, `{"elicitation":{},"roots":{}}`)
				c.send(toolCall("1", "ask", `{}`, ""))
				for method, answer := range map[string]string{"elicitation/create": `{"action":"accept"}`, "roots/list": `{"roots":[]}`} {
					q := c.await(`"method":"` + method + `"`)
					c.send(`{"jsonrpc":"2.0","id":` + raw(q.raw, jsonrpc.ID) + `,"result":` + answer + `}`).done()
				}
				got := c.answer("1")
				if !strings.Contains(got, `"structuredContent":["a b==\u2028",{`) || !strings.Contains(got, `"k":{"action":"accept"}`) || !strings.Contains(got, `"l":{"roots":[]}`) {
					t.Errorf("answered %s", got)
				}
				c.mu.Lock()
				c.tools["ask"]++ // the gateway calls it again, with the answers
				c.mu.Unlock()
				if calls := f.told("tools/call"); len(calls) != 2 || raw(calls[0], jsonrpc.ID) == raw(calls[1], jsonrpc.ID) {
					t.Errorf("the server was sent %q", calls)
				}
			})
		})
	}
}

// mirroredHeaders are requests, with the headers that differ from the right ones.
var mirroredHeaders = []struct {
	what, message string
	headers       []string
	ok            bool
}{
	{"(i) policy on the header, execution on the body", modernCall("ID", "echo", `{}`, ""), []string{"Mcp-Name", "read_file"}, false},
	{"(ii) encoded", modern("ID", "resources/read", `"uri":"file:///Zał.pdf"`, ""), []string{"Mcp-Name", "=?base64?ZmlsZTovLy9aYcWCLnBkZg==?="}, true},
	{"(iii) no method", modernCall("ID", "echo", `{}`, ""), []string{"Mcp-Method", ""}, false},
	{"(iv) in capitals", modern("ID", "resources/read", `"uri":"file:///Zał.pdf"`, ""), []string{"Mcp-Name", "=?BASE64?ZmlsZTovLy9aYcWCLnBkZg==?="}, false},
	{"(v) a task", modern("ID", "tasks/get", `"taskId":"t1"`, ""), []string{"Mcp-Name", "t1"}, true},
	{"(v) another task", modern("ID", "tasks/get", `"taskId":"t1"`, ""), []string{"Mcp-Name", "t2"}, false},
	{"(vii) an unknown parameter", modernCall("ID", "echo", `{}`, ""), []string{"Mcp-Param-X", "y"}, true},
	{"a parameter", modernCall("ID", "echo", `{"zone":"eu"}`, ""), []string{"Mcp-Param-Zone", "eu"}, true},
	{"another parameter", modernCall("ID", "echo", `{"zone":"eu"}`, ""), []string{"Mcp-Param-Zone", "us"}, false},
	{"a parameter is missing", modernCall("ID", "echo", `{"zone":"eu"}`, ""), nil, false},
	{"(viii) a sentinel for a name, bare", modern("ID", "resources/read", `"uri":"=?base64?Zm9v?="`, ""), []string{"Mcp-Name", "=?base64?Zm9v?="}, false},
	{"(viii) encoded", modern("ID", "resources/read", `"uri":"=?base64?Zm9v?="`, ""), []string{"Mcp-Name", "=?base64?PT9iYXNlNjQ/Wm05dj89?="}, true},
	{"names in other letters", modernCall("ID", "echo", `{}`, ""), []string{"Mcp-Name", "", "mCP-nAME", "echo", "Mcp-Method", "", "MCP-METHOD", "tools/call"}, true},
}

// C69. What is mirrored in headers says what the body says, or nothing of the
// request reaches the server.
func TestC69MirroredHeaders(t *testing.T) {
	for name, farmOf := range eras {
		t.Run(name, func(t *testing.T) {
			f := farmOf()
			if f.methods == nil {
				f.methods = map[string]func(*fake, *jsonrpc.Message){}
			}
			answer := func(k *fake, m *jsonrpc.Message) {
				k.reply(string(m.Raw(jsonrpc.ID)), `{"resultType":"complete","contents":[]}`)
			}
			f.methods["resources/read"], f.methods["tasks/get"] = answer, answer
			f.methods["tools/list"] = func(k *fake, m *jsonrpc.Message) {
				k.reply(string(m.Raw(jsonrpc.ID)), `{"resultType":"complete","tools":[{"name":"echo","inputSchema":{"type":"object","properties":{"zone":{"type":"string","x-mcp-header":"Zone"}}}}]}`)
			}
			virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
				c := b.client()
				for i, tt := range mirroredHeaders {
					id := fmt.Sprint(i)
					message := strings.Replace(tt.message, `"id":ID`, `"id":`+id, 1)
					before := len(f.told("tools/call")) + len(f.told("resources/read")) + len(f.told("tasks/get"))
					s := c.sendModern(message, tt.headers...)
					got := c.answer(id)
					after := len(f.told("tools/call")) + len(f.told("resources/read")) + len(f.told("tasks/get"))
					s.done()
					if !tt.ok && (s.status != http.StatusBadRequest || !strings.Contains(got, `"code":-32020`) || after != before) {
						t.Errorf("%s: answered %d %s; %d requests forwarded", tt.what, s.status, got, after-before)
					}
					if tt.what == "(v) a task" && name == "handshake" { // its servers have no such tasks: the headers are right, and the client lacks the extension
						if s.status != http.StatusBadRequest || !strings.Contains(got, `"code":-32021`) || after != before {
							t.Errorf("%s: answered %d %s; %d requests forwarded", tt.what, s.status, got, after-before)
						}
						continue
					}
					if tt.ok && (s.status != http.StatusOK || !strings.Contains(got, `"result"`) || after != before+1) {
						t.Errorf("%s: answered %d %s; %d requests forwarded", tt.what, s.status, got, after-before)
					}
				}
				if got := f.told("resources/read", `"uri":"file:///Zał.pdf"`); len(got) != 1 {
					t.Errorf("(ii) the server was sent %q", got)
				}
				// (vi) The older era has no such headers: they are looked at by nobody.
				old := b.streamable(v06)
				old.send(toolCall("99", "echo", `{}`, ""), "Mcp-Name", "read_file", "Mcp-Method", "tools/list")
				if got := old.answer("99"); !strings.Contains(got, `"result"`) {
					t.Errorf("(vi) answered %s", got)
				}
			})
		})
	}
}

// A heartbeat on every stream of the stateless era, too: C01 and C06 there.
func TestStatelessHeartbeats(t *testing.T) {
	for name, farmOf := range eras {
		t.Run(name, func(t *testing.T) {
			virtually(t, setup{farm: farmOf()}, func(t *testing.T, b *bench) {
				patience := 20 * time.Second // of the proxy in between
				c := b.client(impatient(patience))
				c.askModern(modern("1", "tools/list", "", ""))
				listen := c.sendModern(modern(`"s"`, "subscriptions/listen", `"notifications":{"toolsListChanged":true}`, ""))
				c.waive(`"s"`)
				c.sendModern(modernCall("2", "sleep", `{"ms":150000}`, ""))
				if got := c.answer("2"); !strings.Contains(got, "slept") {
					t.Errorf("answered %s", got)
				}
				select {
				case <-listen.ended:
					t.Errorf("the subscription's stream ended: %v", listen.err)
				default:
				}
				listen.cut()
				listen.done()
			})
		})
	}
}
