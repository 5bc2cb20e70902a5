package stateless

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/eventlog"
	"github.com/holdfast-mcp/holdfast/internal/conversation"
	"github.com/holdfast-mcp/holdfast/internal/exchange"
	"github.com/holdfast-mcp/holdfast/internal/httpstream"
	"github.com/holdfast-mcp/holdfast/internal/observe"
	"github.com/holdfast-mcp/holdfast/internal/route"
	"github.com/holdfast-mcp/holdfast/internal/stdio"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
	"github.com/holdfast-mcp/holdfast/internal/wire"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// bench is the binding with scripted servers behind it, on a network in memory.
type bench struct {
	t        *testing.T
	troupe   *testkit.Troupe
	host     *exchange.Host
	client   *testkit.Client
	draining bool
	wg       sync.WaitGroup
}

const (
	beat  = 15 * time.Second
	grace = 100 * time.Millisecond
)

// on runs a test in virtual time.
func on(t *testing.T, troupe *testkit.Troupe, f func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, troupe: troupe}
		log := slog.New(slog.DiscardHandler)
		pool := conversation.NewPool(conversation.PoolOptions{Max: 8, Options: conversation.Options{
			Dial: func(h stdio.Handler) (conversation.Link, error) { return troupe.Start(h), nil },
			Name: "kid", ClientInfo: []byte(`{"name":"holdfast","version":"1"}`), StartTimeout: time.Minute, MaxMessage: 1 << 20, Log: log,
		}})
		block, _ := aes.NewCipher([]byte("0123456789abcdef"))
		seal, _ := cipher.NewGCM(block)
		b.host = exchange.New(exchange.Options{Pool: pool, Name: "kid", Patience: time.Second, StartTimeout: time.Minute, QuestionTimeout: time.Minute,
			Idle: time.Hour, MaxWaiting: 10, Seal: seal, Log: log})
		s := New(Options{Host: b.host, Limits: wire.Limits{MaxBody: 1 << 20, WriteTimeout: time.Minute},
			Retained: eventlog.Limits{Events: 1000, Bytes: 1 << 20}, Stream: &httpstream.Options{WriteTimeout: time.Minute, Log: log},
			Routes:    route.New(route.Options{Heartbeat: beat, Observe: func(observe.Event) {}, Log: log}),
			Heartbeat: beat, AnswerGrace: grace, Draining: func() bool { return b.draining }, Go: b.wg.Go, Log: log})
		l := testkit.NewMemListener()
		srv := &http.Server{ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, refusal := wire.ReadBody(w, r, s.o.Limits)
			if refusal != nil {
				refusal.Write(w)
				return
			}
			m, err := jsonrpc.Parse(body.Bytes)
			if err != nil {
				t.Errorf("the test sent %s: %v", body.Bytes, err)
			}
			s.Serve(w, r, m)
		})}
		b.wg.Go(func() { _ = srv.Serve(l) }) // ends with Close
		b.client = testkit.NewClient(l.URL("/mcp"), l.Dial)
		f(t, b)
		over := errors.New("the test is over")
		b.host.Close(over)
		pool.Close(over)
		b.client.Close()
		_ = srv.Close()
		b.wg.Wait()
	})
}

// post sends a request with the headers that belong to it; more come in pairs.
func (b *bench) post(ctx context.Context, body string, more ...string) *testkit.Response {
	b.t.Helper()
	m := parsed(b.t, "%s", body)
	h := http.Header{"Mcp-Protocol-Version": {string(m.Text(jsonrpc.MetaVersion))}, "Mcp-Method": {string(m.Text(jsonrpc.Method))}}
	if name := m.Text(jsonrpc.Name); name != nil {
		h.Set("Mcp-Name", string(name))
	}
	if uri := m.Text(jsonrpc.URI); uri != nil {
		h.Set("Mcp-Name", encoded(string(uri)))
	}
	for i := 0; i < len(more); i += 2 {
		h.Del(more[i])
		if more[i+1] != "" {
			h.Set(more[i], more[i+1])
		}
	}
	resp, err := b.client.Do(ctx, http.MethodPost, b.client.URL, []byte(body), h)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp
}

// ask is a request with all that it must say. params are members of an object.
func ask(id, method, params string) string { return askWith(id, method, params, "") }

func askWith(id, method, params, meta string) string {
	if params != "" {
		params += ","
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
		`"io.modelcontextprotocol/clientInfo":{"name":"a","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}%s}}}`, id, method, params, meta)
}

// both runs a test before servers of both eras.
func both(t *testing.T, tools map[string]func(*testkit.ToolCall), f func(t *testing.T, b *bench)) {
	t.Helper()
	for _, stateless := range []bool{false, true} {
		t.Run(fmt.Sprintf("stateless=%v", stateless), func(t *testing.T) {
			on(t, &testkit.Troupe{Stateless: stateless, Handshake: !stateless, Tools: tools}, f)
		})
	}
}

// TestStatuses: what each request is answered with, in JSON.
func TestStatuses(t *testing.T) {
	refusing := map[string]func(*testkit.ToolCall){}
	for _, code := range []int{-32601, -32602, -32603, -32020, -32021, -32022, -32000, 7} {
		refusing[fmt.Sprint(code)] = func(c *testkit.ToolCall) { c.Refuse(c.ID, code, "no") }
	}
	refused := func(code string) string { return ask(`"r"`, "tools/call", `"name":"`+code+`"`) }
	tests := []struct {
		what, body string
		headers    []string
		status     int
		words      string
	}{
		{"a call", ask("1", "tools/call", `"name":"echo","arguments":{"n":1.0}`), nil, 200, `"structuredContent":{"n":1.0}`},
		{"discover", ask("1", "server/discover", ""), nil, 200, `"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]`},
		{"an unknown method", ask("1", "no/such", ""), nil, 404, "-32601"},
		{"a removed method", ask("1", "initialize", ""), nil, 404, "-32601"},
		{"ping", ask("1", "ping", ""), nil, 404, "-32601"},
		{"no capabilities", `{"jsonrpc":"2.0","id":"x","method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, nil, 400, `"id":"x","error":{"code":-32602`},
		{"no version in the body", `{"jsonrpc":"2.0","id":"x","method":"tools/list"}`, []string{"Mcp-Protocol-Version", "2026-07-28"}, 400, "-32602"},
		{"an unknown version", strings.ReplaceAll(ask("1", "tools/list", ""), "2026-07-28", "1900-01-01"), nil, 400, `"code":-32022`},
		{"a header mismatch", ask("1", "tools/call", `"name":"echo"`), []string{"Mcp-Name", "other"}, 400, "-32020"},
		{"no headers", ask(`"x"`, "tools/list", ""), []string{"Mcp-Protocol-Version", "", "Mcp-Method", ""}, 400, `"id":"x","error":{"code":-32020`},
		{"nothing acceptable", ask("1", "tools/list", ""), []string{"Accept", "text/html"}, 406, "Accept"},
		{"JSON alone", ask("1", "tools/list", ""), []string{"Accept", "application/json"}, 200, `"tools"`},
		{"an error of the server's", refused("-32603"), nil, 200, "-32603"},
		{"bad params, says the server", refused("-32602"), nil, 200, "-32602"},
		{"no such method, says the server", refused("-32601"), nil, 404, "-32601"},
		{"a capability is missing, says the server", refused("-32021"), nil, 400, "-32021"},
		{"its own code", refused("-32000"), nil, 200, "-32000"},
		{"a code of nobody's", refused("7"), nil, 200, `"code":7`},
		{"a session and an event id are ignored", ask("1", "tools/list", ""), []string{"Mcp-Session-Id", "nonsense", "Last-Event-Id", "9-9"}, 200, `"tools"`},
	}
	both(t, refusing, func(t *testing.T, b *bench) {
		b.post(t.Context(), ask("0", "tools/list", ""), "Accept", "application/json") // waits for the verdict, however long it takes
		for _, tt := range tests {
			resp := b.post(t.Context(), tt.body, tt.headers...)
			if resp.Stream != nil {
				t.Errorf("%s: answered with a stream", tt.what)
				resp.Stream.Close()
				continue
			}
			if resp.Status != tt.status || !strings.Contains(string(resp.Body), tt.words) || resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: answered %d %s %s, want %d with %s", tt.what, resp.Status, resp.Header.Get("Content-Type"), resp.Body, tt.status, tt.words)
			}
			if resp.Header.Get("Mcp-Session-Id") != "" {
				t.Errorf("%s: a session was minted", tt.what)
			}
			if _, err := jsonrpc.Parse(resp.Body); err != nil {
				t.Errorf("%s: %v", tt.what, err)
			}
		}
		b.draining = true
		if resp := b.post(t.Context(), ask("1", "tools/list", "")); resp.Status != 503 || resp.Header.Get("Retry-After") == "" {
			t.Errorf("while draining: %d %s", resp.Status, resp.Body)
		}
	})
}

// slowToStart is servers of one era that take their time to answer the first
// request there is.
func slowToStart(stateless bool, d time.Duration) *testkit.Troupe {
	answer := func(result string) func(*testkit.Actor, *jsonrpc.Message) {
		return func(a *testkit.Actor, m *jsonrpc.Message) {
			time.Sleep(d)
			a.Reply(string(m.Raw(jsonrpc.ID)), result)
		}
	}
	refuse := func(code int) func(*testkit.Actor, *jsonrpc.Message) {
		return func(a *testkit.Actor, m *jsonrpc.Message) { a.Refuse(string(m.Raw(jsonrpc.ID)), code, "no") }
	}
	on := map[string]func(*testkit.Actor, *jsonrpc.Message){
		"prompts/list": refuse(-32601), "resources/list": refuse(-32021)}
	if stateless {
		on["server/discover"] = answer(`{"supportedVersions":["2026-07-28"],"capabilities":{}}`)
	} else {
		on["initialize"] = answer(`{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`)
	}
	return &testkit.Troupe{Stateless: stateless, Handshake: !stateless, On: on}
}

// TestGraceOfAServerThatStarts begins when it has the request: the status must
// tell a method that does not exist. But the client, and who is on the way, does
// not wait for the first byte longer than a heartbeat.
func TestGraceOfAServerThatStarts(t *testing.T) {
	for _, stateless := range []bool{false, true} {
		for _, tt := range []struct {
			method string
			start  time.Duration
			status int
			code   string
		}{
			{"prompts/list", 5 * time.Second, 404, "-32601"},
			{"resources/list", 14 * time.Second, 400, "-32021"},
			{"tools/list", 5 * time.Second, 200, `"tools"`},
			{"prompts/list", 40 * time.Second, 200, "-32601"},
		} {
			on(t, slowToStart(stateless, tt.start), func(t *testing.T, b *bench) {
				began := time.Now()
				resp := b.post(t.Context(), ask(`"x"`, tt.method, ""))
				took, wait := time.Since(began), min(tt.start, beat)
				if late := resp.Stream != nil; resp.Status != tt.status || late != (tt.start > beat) || took < wait || took > wait+grace {
					t.Errorf("stateless %v, %v: after %v answered %d, as a stream: %v", stateless, tt, took, resp.Status, late)
				}
				body := string(resp.Body)
				if resp.Stream != nil {
					m, _, err := resp.Stream.Await(t.Context(), `"x"`)
					if err != nil {
						t.Fatal(err)
					}
					body = string(m.Bytes)
					resp.Stream.Close()
				}
				if !strings.Contains(body, tt.code) {
					t.Errorf("stateless %v, %v: answered %s", stateless, tt, body)
				}
			})
		}
	}
}

// TestNotificationsAndResponses: neither has a place in this binding.
func TestNotificationsAndResponses(t *testing.T) {
	both(t, nil, func(t *testing.T, b *bench) {
		for _, body := range []string{
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, `{"jsonrpc":"2.0","method":"notifications/x"}`,
		} {
			if resp := b.post(t.Context(), body); resp.Status != 202 || len(resp.Body) != 0 {
				t.Errorf("%s: answered %d %s", body, resp.Status, resp.Body)
			}
		}
		resp := b.post(t.Context(), `{"jsonrpc":"2.0","id":"q","result":{}}`)
		if resp.Status != 400 || strings.Contains(string(resp.Body), `"id"`) {
			t.Errorf("a response: %d %s", resp.Status, resp.Body)
		}
		if n := len(b.troupe.Actors()); n != 0 {
			t.Errorf("%d servers were started", n)
		}
	})
}

// reporting are tools that take their time.
func reporting() map[string]func(*testkit.ToolCall) {
	return map[string]func(*testkit.ToolCall){
		"report": func(c *testkit.ToolCall) {
			c.Progress(`"progress":1`)
			c.Progress(`"progress":2`)
			c.Text("done")
		},
		"stubborn": func(c *testkit.ToolCall) {
			<-c.Context.Done()
			c.Text("late")
		},
	}
}

// TestStreams: an answer that is late, or not alone, comes on an event stream
// that ends with it.
func TestStreams(t *testing.T) {
	both(t, reporting(), func(t *testing.T, b *bench) {
		b.post(t.Context(), ask("0", "tools/list", ""), "Accept", "application/json")
		token := `,"progressToken":"t"`
		for what, tt := range map[string]struct {
			body, accept string
			stream       bool
			progress     int
		}{
			"quick":               {ask(`"x"`, "tools/call", `"name":"sleep","arguments":{"ms":50}`), "", false, 0},
			"slow":                {ask(`"x"`, "tools/call", `"name":"sleep","arguments":{"ms":150}`), "", true, 0},
			"slow, JSON alone":    {ask(`"x"`, "tools/call", `"name":"sleep","arguments":{"ms":5000}`), "application/json", false, 0},
			"quick, events alone": {ask(`"x"`, "tools/call", `"name":"sleep","arguments":{"ms":1}`), "text/event-stream", true, 0},
			"reporting":           {askWith(`"x"`, "tools/call", `"name":"report"`, token), "", true, 2},
			"reporting, to JSON":  {askWith(`"x"`, "tools/call", `"name":"report"`, token), "application/json", false, 0},
		} {
			headers := []string{}
			if tt.accept != "" {
				headers = []string{"Accept", tt.accept}
			}
			resp := b.post(t.Context(), tt.body, headers...)
			if resp.Status != 200 || (resp.Stream != nil) != tt.stream {
				t.Errorf("%s: answered %d, with a stream: %v", what, resp.Status, resp.Stream != nil)
			}
			if resp.Stream == nil {
				continue
			}
			if resp.Header.Get("X-Accel-Buffering") != "no" || !strings.Contains(resp.Header.Get("Cache-Control"), "no-cache") {
				t.Errorf("%s: headers %v", what, resp.Header)
			}
			m, before, err := resp.Stream.Await(t.Context(), `"x"`)
			if err != nil || m.Error != nil || len(before) != tt.progress {
				t.Errorf("%s: %s after %q, %v", what, m.Bytes, before, err)
			}
			if _, err := resp.Stream.Next(t.Context()); err == nil {
				t.Errorf("%s: the stream goes on after the answer", what)
			}
			resp.Stream.Close()
		}
	})
}

// TestHeartbeats: comments on every stream that is quiet, at once and then each
// time the heartbeat's time is over.
func TestHeartbeats(t *testing.T) {
	both(t, nil, func(t *testing.T, b *bench) {
		b.post(t.Context(), ask("0", "tools/list", ""), "Accept", "application/json")
		listen := ask(`"x"`, "subscriptions/listen", `"notifications":{"toolsListChanged":true}`)
		call := ask(`"x"`, "tools/call", `"name":"sleep","arguments":{"ms":3600000}`)
		for what, body := range map[string]string{"listen": listen, "call": call} {
			ctx, cancel := context.WithCancel(t.Context())
			resp := b.post(ctx, body)
			if resp.Stream == nil {
				t.Fatalf("%s: answered %d %s", what, resp.Status, resp.Body)
			}
			ended := make(chan int, 1)
			go func() { // ends with ctx
				events := 0
				for {
					if _, err := resp.Stream.Next(ctx); err != nil {
						ended <- events
						return
					}
					events++
				}
			}()
			before := resp.Stream.Received()
			time.Sleep(10*beat + beat/2)
			synctest.Wait()
			if quiet, n := resp.Stream.Longest(), resp.Stream.Received()-before; quiet > beat || quiet < beat/2 || n > 300 {
				t.Errorf("%s: quiet for %v, %d bytes in ten and a half heartbeats", what, quiet, n)
			}
			cancel()
			if n := <-ended; n > 1 {
				t.Errorf("%s: %d events, heartbeats are none", what, n)
			}
			synctest.Wait()
		}
	})
}

// TestClosingTheStreamCancels: Must show 4, with the stream in every state that
// it can be in.
func TestClosingTheStreamCancels(t *testing.T) {
	both(t, reporting(), func(t *testing.T, b *bench) {
		b.post(t.Context(), ask("0", "tools/list", ""), "Accept", "application/json")
		for i, tt := range []struct {
			what   string
			accept string
			after  time.Duration
		}{
			{"before anything is sent", "", grace / 2},
			{"on an open stream", "", 2 * time.Second},
			{"after heartbeats", "", 3 * beat},
			{"JSON alone", "application/json", 2 * time.Second},
			{"events alone", "text/event-stream", 0},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				m := ask(fmt.Sprint(100+i), "tools/call", `"name":"stubborn"`)
				h := http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"stubborn"}}
				if tt.accept != "" {
					h.Set("Accept", tt.accept)
				}
				resp, err := b.client.Do(ctx, http.MethodPost, b.client.URL, []byte(m), h)
				if err == nil && resp.Stream != nil {
					_, _, err = resp.Stream.Await(context.Background(), fmt.Sprint(100+i))
				}
				ended <- err
			}()
			synctest.Wait()
			calls := b.troupe.Told(`"stubborn"`)
			if len(calls) != i+1 {
				t.Fatalf("%s: %d calls", tt.what, len(calls))
			}
			up := string(parsed(t, "%s", calls[i]).Raw(jsonrpc.ID))
			time.Sleep(tt.after)
			synctest.Wait()
			if n := len(b.troupe.Told("notifications/cancelled")); n != i {
				t.Fatalf("%s: %d cancellations before it", tt.what, n)
			}
			cancel()
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			got := b.troupe.Told("notifications/cancelled")
			if len(got) != i+1 || string(parsed(t, "%s", got[i]).Raw(jsonrpc.RequestID)) != up {
				t.Fatalf("%s: within 100 ms the server was told %q, want its id %s", tt.what, got, up)
			}
			if err := <-ended; err == nil {
				t.Errorf("%s: the client was answered", tt.what)
			}
		}
		time.Sleep(time.Minute)
		if n := b.host.InFlight(); n != 0 {
			t.Errorf("%d in flight", n)
		}
	})
}

// TestListenStream: the acknowledgement is the first event, the result the last.
func TestListenStream(t *testing.T) {
	both(t, nil, func(t *testing.T, b *bench) {
		resp := b.post(t.Context(), ask(`"s"`, "subscriptions/listen", `"notifications":{"toolsListChanged":true}`))
		if resp.Status != 200 || resp.Stream == nil {
			t.Fatalf("answered %d %s", resp.Status, resp.Body)
		}
		first, err := resp.Stream.Next(t.Context())
		if err != nil || !strings.Contains(string(first.Data), "notifications/subscriptions/acknowledged") {
			t.Fatalf("first came %s, %v", first.Data, err)
		}
		b.host.Close(errors.New("shutting down"))
		m, before, err := resp.Stream.Await(t.Context(), `"s"`)
		if err != nil || len(before) != 0 || !strings.Contains(string(m.Result), `"io.modelcontextprotocol/subscriptionId":"s"`) {
			t.Errorf("then came %q and %s, %v", before, m.Bytes, err)
		}
		if _, err := resp.Stream.Next(t.Context()); err == nil {
			t.Error("the stream goes on after the result")
		}
	})
}
