package holdfast_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// The matrix: each client era and binding before each server era and transport.
// A cell is named client/server/operation.

// speaker is a client of one era over one binding.
type speaker struct {
	name      string
	connect   func(b *bench) *client
	stateless bool
	answered  bool // a cancelled call is answered, as HTTP needs an end
}

func speakers() []speaker {
	session := func(binding, version string) func(b *bench) *client {
		return func(b *bench) *client {
			connect := map[string]func(b *bench) *client{"streamable": newcomers["mcp"], "sse": newcomers["sse"], "stdio": newcomers["stdio"]}[binding]
			c := connect(b)
			c.handshake(version, `{"elicitation":{}}`)
			if binding == "streamable" {
				c.listen("/mcp", "")
			}
			return c
		}
	}
	return []speaker{
		{"2024-11-05 over SSE", session("sse", v2024), false, false},
		{"2025-03-26 over HTTP", session("streamable", v03), false, true},
		{"2025-06-18 over HTTP", session("streamable", v06), false, true},
		{"2025-11-25 over HTTP", session("streamable", v11), false, true},
		{"2026-07-28 over HTTP", newcomers["mcp"], true, false},
		{"2025-11-25 over stdio", session("stdio", v11), false, false},
		{"2026-07-28 over stdio", newcomers["stdio"], true, false},
	}
}

// place is where a server is: of which era, and behind which transport.
type place struct {
	name string
	era  string
	path string                                 // of the URL; "" for a child's pipes
	door func(http.ResponseWriter, []byte) bool // refuses what a server of the era would
}

func places() []place {
	return []place{
		{"handshake over HTTP", "handshake", "/mcp", refuseStateless},
		{"handshake over SSE", "handshake", "/sse", refuseStateless},
		{"stateless over HTTP", "stateless", "/mcp", refuseHandshake},
		{"handshake over stdio", "handshake", "", nil},
		{"stateless over stdio", "stateless", "", nil},
	}
}

const statelessMark = `"io.modelcontextprotocol/protocolVersion"`

// refuseStateless is how servers of the handshake era take what names no
// session.
func refuseStateless(w http.ResponseWriter, body []byte) bool {
	return bytes.Contains(body, []byte(statelessMark)) && refuse(w, -32000, "Bad Request: Server not initialized")
}

// refuseHandshake is how servers of the stateless era take what names no
// version.
func refuseHandshake(w http.ResponseWriter, body []byte) bool {
	return !bytes.Contains(body, []byte(statelessMark)) && refuse(w, -32602, "params._meta names no version")
}

func refuse(w http.ResponseWriter, code int, text string) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":%q}}`, code, text)
	return true
}

// behind puts a door before a handler, and makes of one path all there is.
func behind(next http.Handler, path string, door func(http.ResponseWriter, []byte) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		posted := r.URL.Path != "/message" && r.URL.Path != path
		switch {
		case err != nil, posted, r.URL.Path == "/message" && path != "/sse":
			w.WriteHeader(http.StatusNotFound)
			return
		case r.Method == http.MethodPost && door(w, body):
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// back is a gateway that stands for a server on the network.
func back(t *testing.T, serve func(ctx context.Context, r io.ReadCloser, w io.WriteCloser) error, wrap func(http.Handler) http.Handler) *httptest.Server {
	t.Helper()
	in := holdfast.InProcess(serve)
	in.Warm = -1
	g, err := holdfast.New(holdfast.Options{Server: in, Timers: holdfast.Timers{Drain: -1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(wrap(g))
	t.Cleanup(func() {
		_ = g.Stop(context.Background())
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

// matrixTools are those that the cells need.
func matrixTools(era string) map[string]func(*fakeCall) {
	return map[string]func(*fakeCall){
		"report": func(c *fakeCall) {
			c.progress(`"progress":1,"total":2`)
			c.progress(`"progress":2,"total":2`)
			c.reply(`{"content":[],"resultType":"complete","structuredContent":"reported"}`)
		},
		"hang": func(c *fakeCall) { <-c.k.ctx.Done() },
		"ask":  askIn(era),
		"touch": func(c *fakeCall) {
			updated := `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://1"%s}}`
			for _, listen := range c.k.farm.told("subscriptions/listen", "x://1") {
				c.k.line(fmt.Sprintf(updated, `,"_meta":{"io.modelcontextprotocol/subscriptionId":`+raw(listen, jsonrpc.ID)+`}`))
			}
			if era == "handshake" {
				c.k.line(fmt.Sprintf(updated, ""))
			}
			c.reply(`{"content":[],"resultType":"complete"}`)
		},
		"say": func(c *fakeCall) {
			c.k.line(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","data":"said"}}`)
			c.reply(`{"content":[],"resultType":"complete"}`)
		},
	}
}

// askIn is a tool that asks its user, in the way of its era.
func askIn(era string) func(*fakeCall) {
	if era == "handshake" {
		return func(c *fakeCall) {
			c.k.line(`{"jsonrpc":"2.0","id":"q<1>","method":"elicitation/create","params":{"message":"who?"}}`)
			for len(c.k.told(`"id":"q<1>"`)) == 0 && c.pause(time.Millisecond) {
			}
			answers := c.k.told(`"id":"q<1>"`)
			if len(answers) > 0 {
				c.reply(`{"content":[],"structuredContent":` + answers[0] + `}`)
			}
		}
	}
	return func(c *fakeCall) {
		if answers := jsonrpc.Get([]byte(c.params), "inputResponses"); answers != nil {
			c.reply(`{"content":[],"resultType":"complete","structuredContent":` + string(answers) + `}`)
			return
		}
		c.reply(`{"resultType":"input_required","requestState":"s","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"who?"}}}}`)
	}
}

func TestMatrix(t *testing.T) {
	for _, s := range speakers() {
		for _, p := range places() {
			t.Run(s.name+"/"+p.name, func(t *testing.T) {
				t.Parallel()
				f := eras[p.era]()
				f.tools = matrixTools(p.era)
				where := setup{options: holdfast.Options{Server: holdfast.InProcess(f.serve)}}
				if p.path != "" {
					server := back(t, f.serve, func(next http.Handler) http.Handler { return behind(next, p.path, p.door) })
					where = setup{options: holdfast.Options{Server: holdfast.Upstream(server.URL + p.path)}}
				}
				really(t, where, func(t *testing.T, b *bench) {
					c := s.connect(b)
					for name, cell := range map[string]func(*testing.T, *bench, speaker, *client, *farm){
						"list": listCell, "call": callCell, "progress": progressCell, "cancel": cancelCell,
						"question": questionCell, "update": updateCell, "log": logCell,
					} {
						t.Run(name, func(t *testing.T) { cell(t, b, s, c, f) })
					}
				})
				for tool, n := range f.executed() {
					if n != 1 && tool != "ask" { // which is called again with the answer
						t.Errorf("%s was executed %d times", tool, n)
					}
				}
			})
		}
	}
}

// request sends a request as the speaker's era does.
func (s speaker) request(c *client, id, method, params, meta string) *stream {
	if s.stateless {
		if meta != "" {
			meta = "," + meta
		}
		return c.sendModern(modern(id, method, params, `"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}`+meta))
	}
	if meta != "" {
		params += `,"_meta":{` + meta + `}`
	}
	return c.send(body(id, method, "{"+params+"}"))
}

func listCell(t *testing.T, _ *bench, s speaker, c *client, _ *farm) {
	s.request(c, `"list"`, "tools/list", "", "")
	got := c.answer(`"list"`)
	if !strings.Contains(got, `"tools":[]`) || s.stateless && !strings.Contains(got, `"resultType":"complete"`) {
		t.Errorf("answered %s", got)
	}
}

func callCell(t *testing.T, _ *bench, s speaker, c *client, _ *farm) {
	const args = `{"b":1e400,"a":-0,"text":"Łódź \u2028"}`
	s.request(c, `"call"`, "tools/call", `"name":"echo","arguments":`+args, "")
	if got := c.answer(`"call"`); !strings.Contains(got, `"structuredContent":`+args) {
		t.Errorf("answered %s", got)
	}
}

func progressCell(t *testing.T, _ *bench, s speaker, c *client, _ *farm) {
	s.request(c, `"progress"`, "tools/call", `"name":"report","arguments":{}`, `"progressToken":"mine"`)
	if got := c.answer(`"progress"`); !strings.Contains(got, `"reported"`) {
		t.Errorf("answered %s", got)
	}
	reports := c.find(`"notifications/progress"`, `"progressToken":"mine"`, `"total":2`)
	if len(reports) != 2 || !strings.Contains(reports[0].raw, `"progress":1`) || !strings.Contains(reports[1].raw, `"progress":2`) {
		t.Errorf("reported %v", reports)
	}
}

// questionCell holds that the server's question reaches the client in the way of
// the client's era, and the answer the server.
func questionCell(t *testing.T, _ *bench, s speaker, c *client, _ *farm) {
	const params, answer = `"name":"ask","arguments":{}`, `{"action":"accept","content":{"name":"me"}}`
	s.request(c, `"question"`, "tools/call", params, "")
	if s.stateless {
		asked := c.answer(`"question"`)
		result := jsonrpc.Get([]byte(asked), "result")
		members := jsonrpc.Members(jsonrpc.Get(result, "inputRequests"))
		if len(members) != 1 || !strings.Contains(asked, `"input_required"`) || !strings.Contains(asked, "who?") {
			t.Fatalf("asked by %s", asked)
		}
		retry := fmt.Sprintf(`%s,"inputResponses":{%q:%s}`, params, members[0].Key, answer)
		if state := jsonrpc.Get(result, "requestState"); state != nil {
			retry += `,"requestState":` + string(state)
		}
		s.request(c, `"answer"`, "tools/call", retry, "")
		if got := c.answer(`"answer"`); !strings.Contains(got, `"name":"me"`) {
			t.Errorf("answered %s", got)
		}
		return
	}
	q := c.await(`"elicitation/create"`, "who?")
	c.send(`{"jsonrpc":"2.0","id":` + raw(q.raw, jsonrpc.ID) + `,"result":` + answer + `}`)
	if got := c.answer(`"question"`); !strings.Contains(got, `"name":"me"`) {
		t.Errorf("answered %s", got)
	}
}

// updateCell holds that a subscription is made, and an update comes.
func updateCell(t *testing.T, b *bench, s speaker, c *client, f *farm) {
	if s.stateless {
		listening := s.request(c, `"listen"`, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["x://1"]}`, "")
		c.waive(`"listen"`)
		defer func() {
			if c.pipe == nil {
				listening.cut()
			} else {
				c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"listen"}}`)
			}
		}()
		c.await("notifications/subscriptions/acknowledged")
	} else {
		s.request(c, `"subscribe"`, "resources/subscribe", `"uri":"x://1"`, "")
		if got := c.answer(`"subscribe"`); !strings.Contains(got, `"result"`) {
			t.Fatalf("answered %s", got)
		}
	}
	b.within(bound, "the subscription at the server", func() bool {
		return len(f.told("resources/subscribe", "x://1"))+len(f.told("subscriptions/listen", "x://1")) > 0
	})
	s.request(c, `"touch"`, "tools/call", `"name":"touch","arguments":{}`, "")
	c.answer(`"touch"`)
	got := c.await("notifications/resources/updated", `"uri":"x://1"`)
	if s.stateless != strings.Contains(got.raw, `"io.modelcontextprotocol/subscriptionId":"listen"`) {
		t.Errorf("updated by %s", got.raw)
	}
}

// logCell holds that a log message comes to a client that asked for it.
func logCell(t *testing.T, _ *bench, s speaker, c *client, _ *farm) {
	meta := ""
	if s.stateless {
		meta = `"io.modelcontextprotocol/logLevel":"info"`
	} else {
		s.request(c, `"level"`, "logging/setLevel", `"level":"info"`, "")
		c.answer(`"level"`)
	}
	s.request(c, `"say"`, "tools/call", `"name":"say","arguments":{}`, meta)
	c.answer(`"say"`)
	c.await("notifications/message", `"data":"said"`)
}

// cancelCell holds that the server hears of it, under the id that it knows.
func cancelCell(t *testing.T, b *bench, s speaker, c *client, f *farm) {
	call := s.request(c, `"cancel"`, "tools/call", `"name":"hang","arguments":{}`, "")
	b.within(bound, "the call at the server", func() bool { return len(f.told("tools/call", `"hang"`)) == 1 })
	if !s.answered {
		c.waive(`"cancel"`)
	}
	if s.stateless && c.pipe == nil {
		call.cut()
	} else {
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"cancel","reason":"enough"}}`)
	}
	id := raw(f.told("tools/call", `"hang"`)[0], jsonrpc.ID)
	b.within(bound, "the cancellation at the server", func() bool {
		return slices.ContainsFunc(f.told("notifications/cancelled"), func(line string) bool { return raw(line, jsonrpc.RequestID) == id })
	})
	if s.answered {
		if got := c.answer(`"cancel"`); !strings.Contains(got, `"code":-32800`) {
			t.Errorf("answered %s", got)
		}
	}
}
