package holdfast_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// The servers of the matrix.

// place is where a server is: of which revision, and behind which transport.
type place struct{ at }

// road is the way to a server on the network. It can be cut.
type road struct {
	*testkit.CutProxy
	resumed atomic.Int64 // streams that were asked for from an event on
}

// setup is a gateway before the server, and the road between them, nil to a pipe.
func (p place) setup(t *testing.T, f *farm) (setup, *road) {
	t.Helper()
	server := holdfast.InProcess(f.serve)
	server.Warm = -1
	var r *road
	if path := map[string]string{waySSE: "/sse", wayHTTP: "/mcp"}[p.way]; path != "" {
		r = &road{}
		behind := back(t, f.serve, func(next http.Handler) http.Handler { return p.behind(next, path, r) })
		proxy, err := testkit.NewCutProxy(behind.Listener.Addr().String(), testkit.CutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = proxy.Close() })
		r.CutProxy = proxy
		server = holdfast.Upstream(proxy.URL(path))
	}
	server.Tools = []holdfast.Tool{{Name: "job", Task: holdfast.TaskAlways}} // for who can take it
	return setup{options: holdfast.Options{Server: server, Timers: holdfast.Timers{ReconnectWait: 5 * time.Second, Drain: -1}}}, r
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

const statelessMark = `"io.modelcontextprotocol/protocolVersion"`

// behind makes of a gateway what a server of the revision is: one path, that
// lets nobody in who speaks another one.
func (p place) behind(next http.Handler, path string, road *road) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != path && (r.URL.Path != "/message" || path != "/sse") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if path == "/sse" { // there is no coming back to a stream
			r.Header.Del("Last-Event-ID")
		}
		if r.Method == http.MethodGet && r.Header.Get("Last-Event-ID") != "" {
			road.resumed.Add(1)
		}
		body, refusal := p.admit(r, body)
		if refusal != "" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(map[bool]int{true: http.StatusMethodNotAllowed, false: http.StatusBadRequest}[p.stateless() && r.Method != http.MethodPost])
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":null,"error":%s}`, refusal)
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		next.ServeHTTP(w, r)
	})
}

// admit returns what a server of the revision takes a body as, or the error that
// it refuses it with.
func (p place) admit(r *http.Request, body []byte) (taken []byte, refusal string) {
	marked := bytes.Contains(body, []byte(statelessMark))
	first := bytes.Contains(body, []byte(`"method":"initialize"`))
	version := r.Header.Get("MCP-Protocol-Version")
	switch {
	case p.stateless() && !marked:
		return nil, `{"code":-32602,"message":"params._meta names no version"}`
	case p.stateless():
	case marked:
		return nil, `{"code":-32000,"message":"Bad Request: Server not initialized"}`
	case first: // so that the gateway that stands for the server does not answer with what was asked for
		m, err := jsonrpc.Parse(body)
		if err != nil {
			return nil, `{"code":-32700,"message":"no message"}`
		}
		return m.Append(nil, jsonrpc.Edit{Field: jsonrpc.ProtocolVersion, With: []byte(`"` + p.era + `"`)}), ""
	case p.way == wayHTTP && p.era >= v06 && version != p.era:
		return nil, fmt.Sprintf(`{"code":-32000,"message":"MCP-Protocol-Version is %q, want %s"}`, version, p.era)
	}
	return body, ""
}

// farm makes the servers. open lets some of their tools go on.
func (p place) farm(open map[string]chan struct{}) *farm {
	f := &farm{tools: p.tools(open), methods: map[string]func(*fake, *jsonrpc.Message){}}
	complete := ""
	if p.stateless() {
		complete = `"resultType":"complete",`
		f.methods = modernOnly()
	}
	for method, result := range map[string]string{
		"tools/list":            `"tools":[{"name":"echo","inputSchema":{"type":"object"}}]`,
		"prompts/list":          `"prompts":[{"name":"greet","arguments":[{"name":"who"}]}]`,
		"resources/list":        `"resources":[{"uri":"x://1","name":"one"}]`,
		"prompts/get":           `"messages":[{"role":"user","content":{"type":"text","text":"Greet %s."}}]`,
		"completion/complete":   `"completion":{"values":["%sdź"]}`,
		"resources/unsubscribe": ``,
	} {
		if method == "resources/unsubscribe" && p.stateless() {
			continue
		}
		f.methods[method] = func(k *fake, m *jsonrpc.Message) {
			params := m.Raw(jsonrpc.Params)
			given := jsonrpc.Get(jsonrpc.Get(params, "arguments"), "who") // of a prompt
			if argument := jsonrpc.Get(params, "argument"); argument != nil {
				given = jsonrpc.Get(argument, "value")
			}
			text := strings.Replace(result, "%s", strings.Trim(string(given), `"`), 1)
			k.reply(string(m.Raw(jsonrpc.ID)), strings.TrimSuffix(`{`+complete+text, ",")+`}`)
		}
	}
	if p.stateless() {
		f.methods["server/discover"] = func(k *fake, m *jsonrpc.Message) {
			k.reply(string(m.Raw(jsonrpc.ID)), `{"resultType":"complete","supportedVersions":["`+p.era+`"],"capabilities":`+p.can()+
				`,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"kid","version":"2"}},"ttlMs":60000,"cacheScope":"public"}`)
		}
		return f
	}
	f.methods["initialize"] = func(k *fake, m *jsonrpc.Message) { // it speaks one revision, whatever is asked for
		k.reply(string(m.Raw(jsonrpc.ID)), `{"protocolVersion":"`+p.era+`","capabilities":`+p.can()+`,"serverInfo":{"name":"kid","version":"1"}}`)
	}
	return f
}

// can is what a server of the revision declares.
func (p place) can() string {
	if p.era == v2024 {
		return `{"tools":{},"prompts":{},"logging":{},"resources":{"subscribe":true}}`
	}
	return `{"tools":{},"prompts":{},"logging":{},"completions":{},"resources":{"subscribe":true}}`
}

// tools are those that the cells need.
func (p place) tools(open map[string]chan struct{}) map[string]func(*fakeCall) {
	const done = `{"content":[],"resultType":"complete","structuredContent":"done"}`
	waits := func(c *fakeCall) {
		c.progress(`"progress":1`)
		select {
		case <-open[c.name]:
			c.reply(done)
		case <-c.k.ctx.Done():
		}
	}
	tools := map[string]func(*fakeCall){
		"report": func(c *fakeCall) {
			c.progress(`"progress":1,"total":2`)
			c.progress(`"progress":2,"total":2`)
			c.reply(done)
		},
		"hang": func(c *fakeCall) { <-c.k.ctx.Done() },
		"touch": func(c *fakeCall) {
			updated := `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://1"%s}}`
			for _, listen := range c.k.farm.told("subscriptions/listen", "x://1") {
				c.k.line(fmt.Sprintf(updated, `,"_meta":{"io.modelcontextprotocol/subscriptionId":`+raw(listen, jsonrpc.ID)+`}`))
			}
			if !p.stateless() {
				c.k.line(fmt.Sprintf(updated, ""))
			}
			c.reply(done)
		},
		"say": func(c *fakeCall) {
			c.k.line(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","data":"said"}}`)
			c.reply(done)
		},
		"job": waits, "lost": waits,
	}
	for _, q := range questions {
		tools[q.method] = q.tool(p.stateless())
	}
	return tools
}

// inquiry is a question of a server, and its answer.
type inquiry struct{ method, params, answer string }

// questions are asked by tools of their methods' names.
var questions = map[string]inquiry{
	"elicitation": {"elicitation/create", `{"message":"who?","requestedSchema":{"type":"object","properties":{"n":{"type":"number"}}}}`,
		`{"action":"accept","content":{"n":1.0}}`},
	"sampling": {"sampling/createMessage", `{"messages":[{"role":"user","content":{"type":"text","text":"who?"}}],"maxTokens":1.0}`,
		`{"role":"assistant","content":{"type":"text","text":"\u006de"},"model":"m"}`},
	"roots": {"roots/list", `{"_meta":{"who":1.0}}`, `{"roots":[{"uri":"file:///\u0061"}]}`},
}

// tool asks in the way of the server's era, and returns what it was answered.
func (q inquiry) tool(stateless bool) func(*fakeCall) {
	if stateless {
		return func(c *fakeCall) {
			if answers := jsonrpc.Get([]byte(c.params), "inputResponses"); answers != nil {
				c.reply(`{"content":[],"resultType":"complete","structuredContent":` + string(answers) + `}`)
				return
			}
			c.reply(`{"resultType":"input_required","requestState":"s","inputRequests":{"k":{"method":"` + q.method + `","params":` + q.params + `}}}`)
		}
	}
	return func(c *fakeCall) {
		id := `"id":"<` + q.method + `>"`
		c.k.line(`{"jsonrpc":"2.0",` + id + `,"method":"` + q.method + `","params":` + q.params + `}`)
		for len(c.k.told(id)) == 0 && c.pause(time.Millisecond) {
		}
		if answers := c.k.told(id); len(answers) > 0 {
			c.reply(`{"content":[],"structuredContent":` + answers[0] + `}`)
		}
	}
}

// audit holds that a server was told nothing of another era than its own,
// besides what finds that out.
func (p place) audit(t *testing.T, f *farm) {
	t.Helper()
	for _, line := range f.told(`"method"`) {
		marked := strings.Contains(line, statelessMark)
		if p.stateless() != marked && !strings.Contains(line, `"server/discover"`) && !strings.Contains(line, `"initialize"`) && !strings.Contains(line, "notifications/cancelled") {
			t.Errorf("a server of %s was told %s", p, line)
		}
	}
}
