package holdfast_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// upstreamOptions are those of a gateway before a URL.
func upstreamOptions(url string) holdfast.Options {
	return holdfast.Options{Server: holdfast.Upstream(url), Timers: holdfast.Timers{ReconnectWait: 5 * time.Second}}
}

// open lets everybody in.
func open(h http.Handler) http.Handler { return h }

// A question of the server reaches the client through two gateways, and its
// answer the server.
func TestUpstreamAsks(t *testing.T) {
	for _, path := range []string{"/mcp", "/sse"} {
		for name, connect := range bindings {
			t.Run(name+" before "+path, func(t *testing.T) {
				t.Parallel()
				f := &farm{tools: map[string]func(*fakeCall){"ask": func(c *fakeCall) {
					c.k.line(`{"jsonrpc":"2.0","id":"q<1>","method":"elicitation/create","params":{"message":"who?","requestedSchema":{"n":1.0}}}`)
					for len(c.k.told(`"id":"q<1>"`)) == 0 && c.pause(time.Millisecond) {
					}
					c.reply(`{"content":[],"structuredContent":` + c.k.told(`"id":"q<1>"`)[0] + `}`)
				}}}
				server := back(t, f.serve, open)
				really(t, setup{options: upstreamOptions(server.URL + path)}, func(t *testing.T, b *bench) {
					c := connect(b, v11)
					c.send(toolCall("1", "ask", `{}`, ""))
					q := c.await(`"elicitation/create"`, `{"message":"who?","requestedSchema":{"n":1.0}}`)
					c.send(`{"jsonrpc":"2.0","id":` + raw(q.raw, jsonrpc.ID) + `,"result":{"action":"accept","content":{"n":-0}}}`)
					if got := c.answer("1"); !strings.Contains(got, `"result":{"action":"accept","content":{"n":-0}}`) {
						t.Errorf("answered %s", got)
					}
				})
			})
		}
	}
}

// A subscription is made at the server, and its updates reach the client.
func TestUpstreamSubscription(t *testing.T) {
	for _, path := range []string{"/mcp", "/sse"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			f := &farm{tools: map[string]func(*fakeCall){"touch": func(c *fakeCall) {
				c.k.line(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://0"}}`)
				c.reply(`{"content":[]}`)
			}}}
			server := back(t, f.serve, open)
			really(t, setup{options: upstreamOptions(server.URL + path)}, func(t *testing.T, b *bench) {
				c := b.streamable(v11)
				standing := c.listen("/mcp", "")
				defer standing.cut()
				c.ask(body("1", "resources/subscribe", `{"uri":"x://0"}`))
				c.ask(toolCall("2", "touch", `{}`, ""))
				c.await("resources/updated", "x://0")
			})
			if n := len(f.told("resources/subscribe")); n != 1 {
				t.Errorf("subscribed %d times", n)
			}
		})
	}
}

// redeployable is an address at which one gateway follows another.
type redeployable struct {
	t       *testing.T
	f       *farm
	address string
	g       *holdfast.Gateway
}

func deploy(t *testing.T, f *farm) *redeployable {
	d := &redeployable{t: t, f: f, address: "127.0.0.1:0"}
	d.start()
	d.address = d.g.Addr().String()
	t.Cleanup(d.stop)
	return d
}

func (d *redeployable) start() {
	d.t.Helper()
	in := holdfast.InProcess(d.f.serve)
	in.Warm = -1
	var err error
	for end := time.Now().Add(bound); ; { // the port may be in use for a moment
		d.g, err = holdfast.New(holdfast.Options{Server: in, Listen: d.address, Timers: holdfast.Timers{Drain: -1}})
		if err == nil || time.Now().After(end) {
			break
		}
		<-time.After(20 * time.Millisecond)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	if err := d.g.Start(context.Background()); err != nil {
		d.t.Fatal(err)
	}
}

func (d *redeployable) stop() { _ = d.g.Stop(context.Background()) }

func (d *redeployable) url(path string) string { return "http://" + d.address + path }

// C40: the server is deployed anew. A call in flight ends with what is known of
// it, the next one works, and what the client had told the old server the new
// one is told.
func TestC40UpstreamIsDeployedAnew(t *testing.T) {
	for _, path := range []string{"/mcp", "/sse"} {
		for name, connect := range bindings {
			t.Run(name+" before "+path, func(t *testing.T) {
				t.Parallel()
				f := &farm{}
				d := deploy(t, f)
				really(t, setup{options: upstreamOptions(d.url(path))}, func(t *testing.T, b *bench) {
					c := connect(b, v11)
					c.ask(body("1", "resources/subscribe", `{"uri":"x://1"}`))
					c.ask(body("2", "logging/setLevel", `{"level":"warning"}`))
					c.send(toolCall("3", "sleep", `{"ms":60000}`, ""))
					b.within(bound, "the call at the server", func() bool { return len(f.told(`"sleep"`)) == 1 })
					old := len(f.all())
					d.stop()
					if got := c.answer("3"); !strings.Contains(got, `"outcome":"unknown"`) {
						t.Errorf("the call in flight was answered %s", got)
					}
					d.start()
					if got := c.ask(toolCall("4", "echo", `{"n":1.0}`, "")); !strings.Contains(got, `"structuredContent":{"n":1.0}`) {
						t.Errorf("the next call was answered %s", got)
					}
					b.within(bound, "the new server to be told what the old one was", func() bool {
						kids := f.all()
						last := kids[len(kids)-1]
						return len(kids) == old+1 && len(last.told("resources/subscribe", "x://1")) == 1 && len(last.told("logging/setLevel", "warning")) == 1
					})
				})
				if n := f.executed()["sleep"]; n != 1 {
					t.Errorf("the call was executed %d times", n)
				}
			})
		}
	}
}

// A server that is away for a moment is waited for; one that stays away is said
// to, and the call not to have been executed.
func TestUpstreamIsAway(t *testing.T) {
	f := &farm{}
	d := deploy(t, f)
	options := upstreamOptions(d.url("/mcp"))
	options.Timers.ReconnectWait = 500 * time.Millisecond
	really(t, setup{options: options}, func(t *testing.T, b *bench) {
		c, young := b.streamable(v11), b.client()
		d.stop()
		if got := c.ask(toolCall("1", "echo", `{}`, "")); !strings.Contains(got, `"outcome":"not_executed"`) {
			t.Errorf("answered %s", got)
		}
		// What it speaks is not known by that: nothing is remembered.
		if got := young.askModern(modernCall("2", "echo", `{}`, "")); !strings.Contains(got, `"error"`) {
			t.Errorf("answered %s", got)
		}
		d.start()
		if got := young.askModern(modernCall("3", "echo", `{"n":1.0}`, "")); !strings.Contains(got, `"structuredContent":{"n":1.0}`) {
			t.Errorf("answered %s", got)
		}
		if got := b.log.lines("handshake era only"); len(got) != 0 && !strings.Contains(got[0], "upstream") {
			t.Errorf("an unreachable server was judged: %q", got)
		}
		if got := c.ask(toolCall("4", "echo", `{"n":1.0}`, "")); !strings.Contains(got, `"structuredContent":{"n":1.0}`) {
			t.Errorf("answered %s", got)
		}
	})
}

// Headers go with each request, as they are at that moment.
func TestUpstreamHeaders(t *testing.T) {
	f := &farm{}
	var token atomic.Value
	token.Store("one")
	server := back(t, f.serve, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+token.Load().(string) || r.Header.Get("X-Fixed") != "1" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	options := upstreamOptions(server.URL + "/mcp")
	options.Server.Header = http.Header{"X-Fixed": {"1"}, "Authorization": {"Bearer replaced"}}
	options.Server.HeaderFunc = func() http.Header { return http.Header{"authorization": {"Bearer " + token.Load().(string)}} }
	traced := make(chan string, 100)
	options.Server.Trace = func(toServer bool, message []byte) { traced <- strconv.FormatBool(toServer) + " " + string(message) }
	really(t, setup{options: options}, func(t *testing.T, b *bench) {
		c := b.streamable(v11)
		token.Store("two")
		if got := c.ask(toolCall("1", "echo", `{}`, "")); !strings.Contains(got, `"structuredContent":{}`) {
			t.Errorf("answered %s", got)
		}
		if got := b.client().askModern(modern("2", "server/discover", "", "")); !strings.Contains(got, `"result"`) {
			t.Errorf("answered %s", got)
		}
	})
	var all []string
	for len(traced) > 0 {
		all = append(all, <-traced)
	}
	text := strings.Join(all, "\n")
	for _, want := range []string{`true {"jsonrpc":"2.0","id":1,"method":"server/discover"`, `"method":"initialize"`, `false {"jsonrpc":"2.0","id":1,"result"`, `"method":"tools/call"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the trace has no %s:\n%s", want, text)
		}
	}
	if strings.Contains(text, "Bearer") {
		t.Errorf("the trace has credentials:\n%s", text)
	}
}

// What is no address to use is refused before anything is started.
func TestUpstreamOptions(t *testing.T) {
	for name, tt := range map[string]struct {
		server holdfast.Server
		want   string
	}{
		"no scheme":        {holdfast.Upstream("example.org/mcp"), "must be http(s)://"},
		"no URL":           {holdfast.Upstream("http://a b/"), "must be http(s)://"},
		"another scheme":   {holdfast.Upstream("ftp://example.org/"), "must be http(s)://"},
		"credentials":      {holdfast.Upstream("https://u:hidden@example.org/"), "Authorization"},
		"in the clear":     {holdfast.Upstream("http://example.org/"), "--insecure-http"},
		"two kinds":        {holdfast.Server{URL: "https://example.org/", Command: "x"}, "one of them"},
		"none":             {holdfast.Server{}, "one of them"},
		"arguments":        {holdfast.Server{URL: "https://example.org/", Args: []string{"x"}}, "are for a command"},
		"headers, no URL":  {holdfast.Server{Command: "x", Header: http.Header{"A": {"b"}}}, "are for a URL"},
		"no certificates":  {holdfast.Server{URL: "https://example.org/", CA: "upstream_test.go"}, "no PEM certificate"},
		"no such file":     {holdfast.Server{URL: "https://example.org/", CA: "nowhere.pem"}, "no such file"},
		"asked for":        {holdfast.Server{URL: "http://example.org/", InsecureHTTP: true}, ""},
		"this machine":     {holdfast.Upstream("http://localhost:1/x"), ""},
		"this machine, v6": {holdfast.Upstream("http://[::1]:1/x"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := holdfast.New(holdfast.Options{Server: tt.server})
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (!errors.Is(err, holdfast.ErrOptions) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hidden")):
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}

func TestReach(t *testing.T) {
	f := &farm{}
	server := back(t, f.serve, open)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	t.Cleanup(page.Close)
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mute.Close() })
	for name, tt := range map[string]struct {
		url, want string
	}{
		"streamable": {server.URL + "/mcp", ""},
		"sse":        {server.URL + "/sse", ""},
		"no MCP":     {page.URL, "no JSON-RPC message"},
		"no path":    {server.URL + "/none", "nothing is served"},
		"nobody":     {"http://127.0.0.1:1/", "refused"},
		"silence":    {"http://" + mute.Addr().String(), "in time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			err := holdfast.Upstream(tt.url).Reach(ctx)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}
