package holdfast_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// The cases whose client side takes a whole gateway, which is the client of a
// server on the network. Those of the link alone are in internal/remote.

// beforeUpstream runs a test with clients of each binding of a gateway before
// each transport of a server on the network.
func beforeUpstream(t *testing.T, f func() *farm, run func(t *testing.T, b *bench, f *farm, c *client)) {
	t.Helper()
	for _, path := range []string{"/mcp", "/sse"} {
		for name, connect := range bindings {
			t.Run(name+" before "+path, func(t *testing.T) {
				t.Parallel()
				f := f()
				server := back(t, f.serve, open)
				really(t, setup{options: upstreamOptions(server.URL + path)}, func(t *testing.T, b *bench) {
					run(t, b, f, connect(b, v06))
				})
			})
		}
	}
}

// C42: clients that leave without a word leave no session at the server either;
// one that calls, and one that listens, keep theirs.
func TestC42UpstreamSessionsEndWithTheirClients(t *testing.T) {
	t.Parallel()
	const many, limit = 30, 500 * time.Millisecond
	f := &farm{}
	server := back(t, f.serve, open)
	options := upstreamOptions(server.URL + "/mcp")
	options.Timers.SessionTimeout, options.Timers.OrphanGrace = limit, limit
	really(t, setup{options: options}, func(t *testing.T, b *bench) {
		busy, listening := b.streamable(v11), b.streamable(v11)
		stream := busy.send(toolCall("1", "sleep", fmt.Sprintf(`{"ms":%d}`, (4*limit).Milliseconds()), "")).open()
		standing := listening.listen("/mcp", "")
		defer standing.cut()
		var left []*client
		for range many {
			c := b.streamable(v11)
			c.close()
			left = append(left, c)
		}
		if n := len(f.all()); n < many+2 {
			t.Errorf("%d sessions at the server", n)
		}
		b.within(bound, "the end of their sessions", func() bool { return f.alive() == 2 })
		for _, gone := range left[:3] {
			wantRefused(t, "left", b.client().do(http.MethodGet, "/mcp", "", "Mcp-Session-Id", gone.header.Get("Mcp-Session-Id")), http.StatusNotFound, "-32001")
		}
		stream.done()
		if got := busy.answer("1"); !strings.Contains(got, "slept") {
			t.Errorf("the long call was answered %s", got)
		}
		if got := listening.ask(toolCall("2", "echo", `{"n":1.0}`, "")); !strings.Contains(got, `"structuredContent":{"n":1.0}`) {
			t.Errorf("who listens was answered %s", got)
		}
	})
	if n := f.executed()["sleep"]; n != 1 {
		t.Errorf("the call was executed %d times", n)
	}
}

// C45: clients that use the same ids and tokens at once share one session at the
// server. The first to be asked is the last to answer.
func TestC45EqualIDsBeforeOneUpstream(t *testing.T) {
	for _, path := range []string{"/mcp", "/sse"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			f := &farm{tools: map[string]func(*fakeCall){"mirror": func(c *fakeCall) {
				c.progress(`"progress":1,"message":` + string(jsonrpc.Get([]byte(c.args), "who")))
				d := 200 * time.Millisecond
				if strings.Contains(c.args, "slow") {
					d *= 3
				}
				if c.pause(d) {
					c.reply(`{"structuredContent":` + c.args + `}`)
				}
			}}}
			server := back(t, f.serve, open)
			options := upstreamOptions(server.URL + path)
			options.Server.Isolation = holdfast.Shared
			really(t, setup{options: options}, func(t *testing.T, b *bench) {
				clients := map[string]*client{"slow A": b.streamable(v11), "B": b.streamable(v06), "slow C": b.legacy(v2024), "D": b.piped(v03)}
				for who, c := range clients {
					c.send(toolCall("1", "mirror", `{"who":"`+who+`"}`, `{"progressToken":1}`))
				}
				for who, c := range clients {
					if got, want := c.answer("1"), `{"jsonrpc":"2.0","id":1,"result":{"structuredContent":{"who":"`+who+`"}}}`; got != want {
						t.Errorf("%s got %s", who, got)
					}
					c.await("notifications/progress", `"progressToken":1,`, `"`+who+`"`)
					for other := range clients {
						if got := c.find(`"` + other + `"`); other != who && len(got) > 0 {
							t.Errorf("%s received %s", who, got[0].raw)
						}
					}
				}
			})
			if n := len(f.all()); n != 1 {
				t.Errorf("%d sessions at the server", n)
			}
		})
	}
}

// C47: what numbers are spelled like is kept on the way to a server and back, in
// answers, errors and progress.
func TestC47NumbersThroughAnUpstream(t *testing.T) {
	const result = `{"content":[],"structuredContent":` + numbers + `,"_meta":` + numbers + `}`
	const how = `"progress":0.1000,"total":1e400,"message":"1.0","_meta":` + numbers
	const failure = `{"code":-32000.0,"message":"<&>","data":` + numbers + `}`
	beforeUpstream(t, func() *farm {
		return &farm{tools: map[string]func(*fakeCall){
			"numbers": func(c *fakeCall) { c.progress(how); c.reply(result) },
			"fail":    func(c *fakeCall) { c.k.line(`{"jsonrpc":"2.0","id":` + c.id + `,"error":` + failure + `}`) },
		}}
	}, func(t *testing.T, b *bench, f *farm, c *client) {
		sent := fmt.Sprintf(`{"name":"numbers","arguments":%s,"_meta":{"n":%s,"progressToken":"t"}}`, numbers, numbers)
		if got, want := c.ask(body("1", "tools/call", sent)), `{"jsonrpc":"2.0","id":1,"result":`+result+`}`; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		wantParams(t, f.told(`"numbers"`)[0], sent, `"t"`)
		want := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t",` + how + `}}`
		if got := c.await("notifications/progress").raw; got != want {
			t.Errorf("progress: got %s\nwant %s", got, want)
		}
		if got, want := c.ask(toolCall("2", "fail", `{}`, "")), `{"jsonrpc":"2.0","id":2,"error":`+failure+`}`; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// C48: fields that nobody knows, and what an encoder would escape.
func TestC48FieldsThroughAnUpstream(t *testing.T) {
	const tools = `{"tools":[{"name":"t","title":"<T> & co","inputSchema":` + odd + `,"outputSchema":` + odd +
		`,"icons":[{"src":"data:,","sizes":["any"]}],"execution":{"taskSupport":"optional"},"x-unknown":` + odd + `}],"ttl":1.0}`
	const result = `{"structuredContent":` + odd + `,"content":[{"type":"hologram","x":` + odd + `}],"_meta":{"vendor/x":` + odd + `},"resultType":"odd"}`
	beforeUpstream(t, func() *farm {
		return &farm{
			tools: map[string]func(*fakeCall){"odd": func(c *fakeCall) { c.reply(result) }},
			methods: map[string]func(*fake, *jsonrpc.Message){
				"tools/list": func(k *fake, m *jsonrpc.Message) { k.reply(string(m.Raw(jsonrpc.ID)), tools) },
				"vendor/own": func(k *fake, m *jsonrpc.Message) {
					k.line(`{"jsonrpc":"2.0","extra":` + odd + `,"result":` + odd + `,"id":` + string(m.Raw(jsonrpc.ID)) + `,"more":1.0}`)
				},
			},
		}
	}, func(t *testing.T, b *bench, f *farm, c *client) {
		if got, want := c.ask(body("1", "tools/list", `{"x":`+odd+`}`)), `{"jsonrpc":"2.0","id":1,"result":`+tools+`}`; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		wantParams(t, f.told("tools/list")[0], `{"x":`+odd+`}`, "")
		sent := `{"_meta":{"vendor/x":` + odd + `,"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},"x":` + odd + `,"arguments":` + odd + `,"name":"odd"}`
		if got, want := c.ask(body("2", "tools/call", sent)), `{"jsonrpc":"2.0","id":2,"result":`+result+`}`; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		wantParams(t, f.told(`tools/call`)[0], sent, "")
		got := c.ask(`{"x":` + odd + `,"params":` + odd + `,"method":"vendor/own","id":"3","jsonrpc":"2.0","Result":1}`)
		if want := `{"jsonrpc":"2.0","extra":` + odd + `,"result":` + odd + `,"id":"3","more":1.0}`; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		c.send(`{"jsonrpc":"2.0","method":"notifications/vendor","params":` + odd + `}`)
		b.within(bound, "the notification", func() bool {
			return len(f.told(`{"jsonrpc":"2.0","method":"notifications/vendor","params":`+odd+`}`)) == 1
		})
	})
}

// door is an HTTP server before a gateway that stands for a server on the
// network. It keeps what it was sent, and may answer itself.
type door struct {
	answer func(w http.ResponseWriter, r *http.Request, m *jsonrpc.Message) bool // reports whether it did

	mu   sync.Mutex // guards the field below
	seen []request
}

// request is what a door was sent; m is nil where that is no message.
type request struct {
	verb   string
	header http.Header
	m      *jsonrpc.Message
}

func (d *door) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := peek(r)
		d.mu.Lock()
		d.seen = append(d.seen, request{r.Method, r.Header.Clone(), m})
		d.mu.Unlock()
		if d.answer == nil || !d.answer(w, r, m) {
			next.ServeHTTP(w, r)
		}
	})
}

// posts are the messages with a method that the door was sent, all for "".
func (d *door) posts(method string) (out []request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.seen {
		if r.m != nil && (method == "" || r.m.Is(method)) {
			out = append(out, r)
		}
	}
	return out
}

// probePatience is how long the probe of a test waits.
const probePatience = 300 * time.Millisecond

// probed is a server on the network in the eyes of a probe. late is closed when
// what was held up may pass.
type probed struct {
	farm     func() *farm
	all      bool                                                                    // initialize is held up, too
	discover func(w http.ResponseWriter, r *http.Request, late <-chan struct{}) bool // reports whether it has answered
}

func (p probed) door(late <-chan struct{}) *door {
	return &door{answer: func(w http.ResponseWriter, r *http.Request, m *jsonrpc.Message) bool {
		switch {
		case m == nil:
			return false
		case p.all && m.Is("initialize"):
			<-late
		}
		return m.Is("server/discover") && p.discover(w, r, late)
	}}
}

// probes are a server that is silent, one that goes away, one that is only slow to
// start, whose answers may overtake each other, and one that answers late.
var probes = map[string]probed{
	"silence": {eras["handshake"], false, func(_ http.ResponseWriter, r *http.Request, _ <-chan struct{}) bool {
		<-r.Context().Done()
		return true
	}},
	"the end of the connection": {eras["handshake"], false, func(w http.ResponseWriter, _ *http.Request, _ <-chan struct{}) bool {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
		}
		return true
	}},
	"a slow start": {eras["stateless"], true, func(_ http.ResponseWriter, _ *http.Request, late <-chan struct{}) bool {
		<-late
		<-time.After(probePatience / 10)
		return false
	}},
	"a late answer": {eras["handshake"], false, func(w http.ResponseWriter, _ *http.Request, late <-chan struct{}) bool {
		<-late
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"unknown method"}}`))
		return true
	}},
}

// C65: the probe of a server on the network. The verdict is kept.
func TestC65ProbeOfAnUpstream(t *testing.T) {
	for name, p := range probes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			late := make(chan struct{})
			pass := sync.OnceFunc(func() { close(late) })
			defer pass()
			if p.all {
				time.AfterFunc(3*probePatience, pass)
			}
			f, d := p.farm(), p.door(late)
			server := back(t, f.serve, d.before)
			options := upstreamOptions(server.URL + "/mcp")
			options.Timers.ProbeTimeout = probePatience
			really(t, setup{options: options}, func(t *testing.T, b *bench) {
				c := b.client()
				begin := time.Now()
				for i := range 3 {
					if got := c.askModern(modernCall(fmt.Sprint(i), "echo", `{"n":1.0}`, "")); !strings.Contains(got, `"structuredContent":{"n":1.0}`) {
						t.Errorf("call %d was answered %s", i, got)
					}
					pass()
				}
				if took := time.Since(begin); took > 5*time.Second {
					t.Errorf("that took %v", took)
				}
			})
			if n := len(d.posts("server/discover")); n == 0 || n > 1 && !strings.Contains(name, "end of") || n > 5 {
				t.Errorf("probed %d times", n) // where the connection ends, it is tried again meanwhile
			}
			for _, r := range d.posts("tools/call") {
				if r.m.Has(jsonrpc.MetaVersion) != p.all {
					t.Errorf("sent %s", r.m.Bytes())
				}
			}
			wantExecuted(t, f, "echo", 3)
		})
	}
}

// C68 (i): a client without a handshake before a server on the network that wants
// a session. The gateway makes one, and what it sends has no marks of the other
// era.
func TestC68StatelessClientBeforeAnUpstreamWithSessions(t *testing.T) {
	for name, connect := range newcomers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, d := &farm{}, &door{}
			d.answer = func(w http.ResponseWriter, _ *http.Request, m *jsonrpc.Message) bool {
				stateless := m != nil && m.Has(jsonrpc.MetaVersion)
				if stateless { // as a server of that era
					http.Error(w, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Mcp-Session-Id header is required"},"id":null}`, http.StatusBadRequest)
				}
				return stateless
			}
			server := back(t, f.serve, d.before)
			really(t, setup{options: upstreamOptions(server.URL + "/mcp")}, func(t *testing.T, b *bench) {
				c := connect(b)
				for i := range 2 {
					got := c.askModern(modernCall(fmt.Sprint(i), "echo", `{"n":1.0}`, `"io.modelcontextprotocol/clientInfo":{"name":"young","version":"1"}`))
					if !strings.Contains(got, `"structuredContent":{"n":1.0}`) || !strings.Contains(got, `"resultType":"complete"`) {
						t.Errorf("answered %s", got)
					}
				}
			})
			hello := d.posts("initialize")
			if len(hello) != 1 || !strings.Contains(string(hello[0].m.Bytes()), `"young"`) || len(d.posts("notifications/initialized")) != 1 {
				t.Fatalf("%d handshakes, %d initialized", len(hello), len(d.posts("notifications/initialized")))
			}
			for _, r := range d.posts("tools/call") {
				if r.header.Get("Mcp-Session-Id") == "" || strings.Contains(string(r.m.Bytes()), "io.modelcontextprotocol/") {
					t.Errorf("sent %s with %v", r.m.Bytes(), r.header)
				}
			}
		})
	}
}

// C68 (ii): clients with a handshake before a server on the network that takes
// none: every POST has the marks and the headers that belong to it.
func TestC68HandshakeClientBeforeAStatelessUpstream(t *testing.T) {
	for name, connect := range bindings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, d := eras["stateless"](), &door{}
			f.tools = map[string]func(*fakeCall){"ask": func(c *fakeCall) {
				if state := jsonrpc.Get([]byte(c.params), "requestState"); state != nil {
					c.reply(fmt.Sprintf(`{"resultType":"complete","structuredContent":[%s,%s]}`, state, jsonrpc.Get([]byte(c.params), "inputResponses")))
					return
				}
				c.reply(`{"resultType":"input_required","requestState":"a b==\u2028","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"who?"}}}}`)
			}}
			d.answer = func(w http.ResponseWriter, _ *http.Request, m *jsonrpc.Message) bool {
				handshake := m != nil && !m.Has(jsonrpc.MetaVersion)
				if handshake {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(http.StatusBadRequest)
					_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"params._meta names no version"}}`, m.Raw(jsonrpc.ID))
				}
				return handshake
			}
			server := back(t, f.serve, d.before)
			really(t, setup{options: upstreamOptions(server.URL + "/mcp")}, func(t *testing.T, b *bench) {
				c := connect(b, v06)
				crossed(t, b, f, c)
				if name != "stdio" { // crossed shakes hands without capabilities, and stdio has one client
					asker := b.client()
					if name == "sse" {
						asker.listen("/sse", "")
					}
					asker.handshake(v11, `{"elicitation":{}}`)
					asker.send(toolCall("1", "ask", `{}`, ""))
					q := asker.await("elicitation/create")
					asker.send(`{"jsonrpc":"2.0","id":` + raw(q.raw, jsonrpc.ID) + `,"result":{"action":"accept"}}`)
					if got := asker.answer("1"); !strings.Contains(got, `"structuredContent":["a b==\u2028",{"k":{"action":"accept"}}]`) {
						t.Errorf("answered %s", got)
					}
				}
			})
			for _, r := range d.posts("") {
				method, name := string(r.m.Text(jsonrpc.Method)), string(r.m.Text(jsonrpc.Name))
				if !r.m.Has(jsonrpc.MetaVersion) {
					if method != "initialize" {
						t.Errorf("sent %s", r.m.Bytes())
					}
					continue
				}
				if r.header.Get("Mcp-Protocol-Version") != v2026 || r.header.Get("Mcp-Method") != method || r.header.Get("Mcp-Name") != name ||
					r.header.Get("Mcp-Session-Id") != "" || !r.m.Has(jsonrpc.MetaCapabilities) {
					t.Errorf("sent %s with %v", r.m.Bytes(), r.header)
				}
			}
		})
	}
}

// C70: two servers on the network with tasks of the same id. Each is asked for its
// own, and for no faster than it wants; who declares no tasks gets none.
func TestC70TasksOfTwoUpstreams(t *testing.T) {
	t.Parallel()
	var servers []holdfast.Server
	farms := map[string]*farm{"a": {}, "b": {}}
	for name, f := range farms {
		looks := 0
		f.methods, f.tools = modernOnly(), map[string]func(*fakeCall){"job": func(c *fakeCall) {
			c.reply(`{"resultType":"task","taskId":"t1","status":"working","createdAt":"x","lastUpdatedAt":"x","ttlMs":null,"pollIntervalMs":200}`)
		}}
		f.methods["tasks/get"] = func(k *fake, m *jsonrpc.Message) {
			state := `"status":"working","pollIntervalMs":400`
			if looks++; looks > 2 {
				state = `"status":"completed","pollIntervalMs":400,"result":{"content":[],"structuredContent":"done by ` + name + `"}`
			}
			if string(jsonrpc.Get(m.Raw(jsonrpc.Params), "taskId")) != `"t1"` {
				k.line(`{"jsonrpc":"2.0","id":` + string(m.Raw(jsonrpc.ID)) + `,"error":{"code":-32602,"message":"no such task"}}`)
				return
			}
			k.reply(string(m.Raw(jsonrpc.ID)), `{"resultType":"complete","taskId":"t1","createdAt":"x","lastUpdatedAt":"x","ttlMs":null,`+state+`}`)
		}
		server := back(t, f.serve, open)
		u := holdfast.Upstream(server.URL + "/mcp")
		u.Name = name
		servers = append(servers, u)
	}
	really(t, setup{options: holdfast.Options{Servers: servers}}, func(t *testing.T, b *bench) {
		for name, f := range farms {
			able, unable := b.client(), b.client()
			post := func(c *client, message string, header ...string) string {
				m, _ := jsonrpc.Parse([]byte(message))
				c.do(http.MethodPost, "/"+name+"/mcp", message, append(header, "Mcp-Protocol-Version", v2026, "Mcp-Method", string(m.Text(jsonrpc.Method)))...)
				return c.answer(string(m.Raw(jsonrpc.ID)))
			}
			begin := time.Now()
			got := post(unable, modernCall("1", "job", `{}`, ""), "Mcp-Name", "job")
			wantAnswer(t, got, `"done by `+name+`"`, "!taskId")
			if d := time.Since(begin); d < time.Second { // 200 + 400 + 400 ms
				t.Errorf("the task was done after %v", d)
			}
			got = post(able, modernCall("1", "job", `{}`, takesTasks), "Mcp-Name", "job")
			wantAnswer(t, got, `"taskId":"t1"`, `"ttlMs":null,"pollIntervalMs":200`)
			got = post(able, modern("2", "tasks/get", `"taskId":"t1"`, takesTasks), "Mcp-Name", "t1")
			wantAnswer(t, got, `"done by `+name+`"`)
			got = post(able, modern("3", "tasks/get", `"taskId":"t2"`, takesTasks), "Mcp-Name", "t2")
			wantAnswer(t, got, `"code":-32602`)
			got = post(unable, modern("4", "tasks/get", `"taskId":"hf-task-x"`, ""), "Mcp-Name", "hf-task-x")
			wantAnswer(t, got, `"code":-32021`)
			wantExecuted(t, f, "job", 2)
		}
	})
}

// peek reads a request's message, and leaves it to be read again.
func peek(r *http.Request) *jsonrpc.Message {
	whole, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(whole))
	m, bad := jsonrpc.Parse(whole)
	if err != nil || bad != nil {
		return nil
	}
	return m
}
