package streamable_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/conversation"
	"github.com/holdfast-mcp/holdfast/internal/era/streamable"
	"github.com/holdfast-mcp/holdfast/internal/httpstream"
	"github.com/holdfast-mcp/holdfast/internal/observe"
	"github.com/holdfast-mcp/holdfast/internal/route"
	"github.com/holdfast-mcp/holdfast/internal/session"
	"github.com/holdfast-mcp/holdfast/internal/stdio"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
	"github.com/holdfast-mcp/holdfast/internal/wire"
)

const (
	grace     = 100 * time.Millisecond
	heartbeat = 15 * time.Second
)

// endpoint is an MCP endpoint on a network in memory, with the scripted server
// behind it.
type endpoint struct {
	t    *testing.T
	l    *testkit.MemListener
	host *session.Host
}

// serve runs f on an endpoint, in virtual time.
func serve(t *testing.T, o testkit.Options, f func(t *testing.T, e *endpoint)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		host := &session.Host{
			Name:     "kid",
			Sessions: session.NewRegistry(session.RegistryOptions{Timeout: time.Hour, Grace: time.Hour, Max: 100, Log: log}),
			Pool: conversation.NewPool(conversation.PoolOptions{Max: 10, Options: conversation.Options{
				Dial:         func(h stdio.Handler) (conversation.Link, error) { return dial(o, h), nil },
				Name:         "kid",
				StartTimeout: time.Minute,
				MaxMessage:   1 << 20,
				Log:          log,
			}}),
		}
		var streams sync.WaitGroup
		srv := &http.Server{Handler: streamable.New(streamable.Options{
			Host: host, Limits: wire.Limits{MaxBody: 1 << 20, WriteTimeout: time.Minute},
			Stream: &httpstream.Options{WriteTimeout: time.Minute, Log: log},
			Routes: route.New(route.Options{Heartbeat: heartbeat, Observe: func(observe.Event) {}, Log: log}), AnswerGrace: grace,
			Retry: time.Second, StartLimit: time.Minute, Draining: func() bool { return false }, Go: streams.Go, Log: log,
		})}
		e := &endpoint{t: t, l: testkit.NewMemListener(), host: host}
		served := make(chan struct{})
		go func() { defer close(served); _ = srv.Serve(e.l) }() // ends with srv.Close
		defer func() {
			host.Sessions.Close(session.ErrShutdown)
			host.Pool.Close(session.ErrShutdown)
			_ = srv.Close()
			<-served
			streams.Wait()
			time.Sleep(2 * time.Minute) // what waits for a client that gave up
		}()
		f(t, e)
	})
}

// dial starts a scripted server.
func dial(o testkit.Options, h stdio.Handler) conversation.Link {
	ctx, cancel := context.WithCancel(context.Background())
	in, out, wait := testkit.Pipe(ctx, o)
	return stdio.Connect(out, in, closer(func() { _ = in.Close(); _ = out.Close(); cancel(); _ = wait() }), stdio.ConnOptions{}, h)
}

type closer func()

func (c closer) Close() error { c(); return nil }

// open begins a session. No version: none.
func (e *endpoint) open(version string) *testkit.Client {
	e.t.Helper()
	c := testkit.NewClient(e.l.URL("/mcp"), e.l.Dial)
	e.t.Cleanup(c.Close)
	if version == "" {
		return c
	}
	if _, err := c.Initialize(e.t.Context(), version, `{}`); err != nil {
		e.t.Fatal(err)
	}
	return c
}

// post sends a request with an Accept header, and returns the answer and how
// long its head took.
func (e *endpoint) post(c *testkit.Client, accept string, body []byte) (*testkit.Response, time.Duration) {
	e.t.Helper()
	begin := time.Now()
	header := http.Header{}
	if accept != "" {
		header.Set("Accept", accept)
	}
	resp, err := c.Do(e.t.Context(), http.MethodPost, c.URL, body, header)
	if err != nil {
		e.t.Fatal(err)
	}
	return resp, time.Since(begin)
}

const both, jsonOnly, eventsOnly = "", "application/json", "text/event-stream"

// TestAnswerGrace: quick and quiet is one JSON body; late, or with something to
// say before, is a stream, whose head goes out at once.
func TestAnswerGrace(t *testing.T) {
	ms := time.Millisecond
	for _, tc := range []struct {
		name, accept string
		tool, args   string
		stream       bool
		head, end    time.Duration // when the head and the answer come
	}{
		{"at once", both, "echo", `{}`, false, 0, 0},
		{"just in time", both, "sleep", `{"ms":99}`, false, 99 * ms, 99 * ms},
		{"just too late", both, "sleep", `{"ms":101}`, true, grace, 101 * ms},
		{"much too late", both, "sleep", `{"ms":90000}`, true, grace, 90 * time.Second},
		{"progress before an answer in time", both, "progress", `{"n":1,"intervalMs":50}`, true, 50 * ms, 50 * ms},
		{"JSON only, late", jsonOnly, "sleep", `{"ms":5000}`, false, 5 * time.Second, 5 * time.Second},
		{"JSON only, progress", jsonOnly, "progress", `{"n":3,"intervalMs":1000}`, false, 3 * time.Second, 3 * time.Second},
		{"events only, at once", eventsOnly, "echo", `{}`, true, 0, 0},
		{"events only, late", eventsOnly, "sleep", `{"ms":5000}`, true, 0, 5 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			serve(t, testkit.Options{}, func(t *testing.T, e *endpoint) {
				c := e.open("2025-06-18")
				begin := time.Now()
				resp, head := e.post(c, tc.accept, testkit.CallToolWithToken("7", tc.tool, tc.args, `"t"`))
				if resp.Status != http.StatusOK || (resp.Stream != nil) != tc.stream || head != tc.head {
					t.Fatalf("%d after %v, a stream %v: %s", resp.Status, head, resp.Stream != nil, resp.Body)
				}
				var answer testkit.Message
				var err error
				if resp.Stream != nil {
					answer, _, err = resp.Stream.Await(t.Context(), "7")
					if _, end := resp.Stream.Next(t.Context()); end != io.EOF {
						t.Errorf("after its answer the stream goes on: %v", end)
					}
				} else {
					answer, err = resp.Message()
				}
				if err != nil || !answer.IsAnswer("7") || answer.Error != nil || time.Since(begin) != tc.end {
					t.Errorf("after %v: %s, %v", time.Since(begin), answer.Bytes, err)
				}
			})
		})
	}
}

// TestFirstEvent: the first byte of a stream is there with the head. An event
// without data primes the clients of 2025-11-25 alone: older ones choke on it.
func TestFirstEvent(t *testing.T) {
	for version, primes := range map[string]bool{"2024-11-05": false, "2025-03-26": false, "2025-06-18": false, "2025-11-25": true} {
		t.Run(version, func(t *testing.T) {
			serve(t, testkit.Options{}, func(t *testing.T, e *endpoint) {
				c := e.open(version)
				begin := time.Now()
				resp, _ := e.post(c, both, testkit.CallTool("1", "sleep", `{"ms":20000}`))
				event, err := resp.Stream.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if primes {
					if event.ID != "1-0" || len(event.Data) > 0 || event.Retry != time.Second || time.Since(begin) != grace {
						t.Errorf("after %v: %+v", time.Since(begin), event)
					}
				} else if event.ID != "1-1" || len(event.Data) == 0 {
					t.Errorf("after %v: %+v", time.Since(begin), event)
				}
				if !primes && resp.Stream.Comments() != 2 { // one with the head, one heartbeat
					t.Errorf("%d comments before the answer, want 2", resp.Stream.Comments())
				}
				if longest := resp.Stream.Longest(); longest > heartbeat {
					t.Errorf("%v without a byte", longest)
				}
				resp.Stream.Close()
				get, err := c.Get(t.Context(), "")
				if err != nil {
					t.Fatal(err)
				}
				if primes {
					if event, err = get.Stream.Next(t.Context()); err != nil || event.ID != "0-0" || len(event.Data) > 0 {
						t.Errorf("GET begins with %+v, %v", event, err)
					}
				}
				get.Stream.Close()
			})
		})
	}
}

// TestClientGivesUpWithinTheGrace: no event id was given out, so nobody can come
// back for the answer; the call goes on all the same.
func TestClientGivesUpWithinTheGrace(t *testing.T) {
	serve(t, testkit.Options{}, func(t *testing.T, e *endpoint) {
		c := e.open("2025-06-18")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := c.Post(ctx, testkit.CallTool("1", "sleep", `{"ms":10000,"key":"k"}`)); err == nil {
			t.Fatal("answered")
		}
		synctest.Wait()
		if n := e.host.Sessions.InFlight(); n != 1 {
			t.Errorf("%d calls in flight", n)
		}
		time.Sleep(11 * time.Second)
		m, err := c.Call(t.Context(), "2", testkit.CallTool("2", "count", `{"key":"k"}`))
		if err != nil || m.Text() != `{"start":1,"end":1,"cancel":0}` {
			t.Errorf("%s, %v", m.Text(), err)
		}
	})
}

// TestInitializeIsTakenOver: C18. A client that gave up and tries again gets
// the server that its first try began to start, under the id of the new try.
func TestInitializeIsTakenOver(t *testing.T) {
	serve(t, testkit.Options{InitDelay: 4 * time.Second}, func(t *testing.T, e *endpoint) {
		c := e.open("")
		hello := func(id, name string) []byte {
			return testkit.Request(id, "initialize", testkit.InitializeParams("2025-06-18", `{}`, name))
		}
		begin := time.Now()
		for id := range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			if resp, err := c.Post(ctx, hello(fmt.Sprint(id), "a")); err != nil || resp.Stream == nil {
				t.Fatalf("a slow initialize: %v", err)
			} else if _, _, err := resp.Stream.Message(ctx); err == nil {
				t.Fatal("answered early")
			}
			cancel()
			synctest.Wait()
		}
		other := make(chan time.Duration, 1)
		go func() { // another client is not given it
			_, _ = e.open("").Call(t.Context(), "9", hello("9", "b"))
			other <- time.Since(begin)
		}()
		m, err := c.Call(t.Context(), `"x"`, hello(`"x"`, "a"))
		if err != nil || m.Error != nil || time.Since(begin) != 4*time.Second {
			t.Errorf("after %v: %s, %v", time.Since(begin), m.Bytes, err)
		}
		if took := <-other; took != 7*time.Second {
			t.Errorf("the other client was answered after %v", took)
		}
		if n := e.host.Pool.Live(); n != 2 {
			t.Errorf("%d servers were started for two clients", n)
		}
	})
}

// TestInitializeThatNobodyComesBackFor ends its session after a while.
func TestInitializeThatNobodyComesBackFor(t *testing.T) {
	serve(t, testkit.Options{InitDelay: time.Hour}, func(t *testing.T, e *endpoint) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		resp, err := e.open("").Post(ctx, testkit.Request("1", "initialize", testkit.InitializeParams("2025-06-18", `{}`, "a")))
		if err != nil {
			t.Fatal(err)
		}
		_, _, _ = resp.Stream.Message(ctx)
		synctest.Wait()
		if n := e.host.Sessions.Len(); n != 1 {
			t.Errorf("%d sessions", n)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n, live := e.host.Sessions.Len(), e.host.Pool.Live(); n != 0 || live != 0 {
			t.Errorf("%d sessions, %d servers", n, live)
		}
	})
}

// TestRetryAfterTheShutdown: the end of a stream tells clients of 2025-11-25
// when to come back, and then it ends in order.
func TestRetryAfterTheShutdown(t *testing.T) {
	for version, want := range map[string]string{"2025-11-25": "retry: 1000\n\n", "2025-06-18": ""} {
		serve(t, testkit.Options{}, func(t *testing.T, e *endpoint) {
			c := e.open(version)
			get, err := c.Get(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(time.Second, func() { e.host.Sessions.Close(session.ErrShutdown) })
			for {
				if _, err = get.Stream.Next(t.Context()); err != nil {
					break
				}
			}
			ms, given := get.Stream.Retry()
			if err != io.EOF || want != "" && (!given || ms != time.Second) || want == "" && given {
				t.Errorf("%s: %v, retry %v %v", version, err, ms, given)
			}
		})
	}
}

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

// refusals: C39, C50, C60 and the rest of what an endpoint says no to.
var refusals = []struct {
	name, method, body string
	from               string // a session of 2025-06-18; "old": of 2025-03-26; "none"
	header             http.Header
	status             int
	want               string
}{
	{"no session", "POST", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "none", nil, 400, `"id":1,"error":{"code":-32600`},
	{"no session, GET", "GET", "", "none", http.Header{"Accept": {"text/event-stream"}}, 400, "Mcp-Session-Id is missing"},
	{"no session, DELETE", "DELETE", "", "none", nil, 400, "Mcp-Session-Id is missing"},
	{"no session, notification", "POST", `{"jsonrpc":"2.0","method":"notifications/x"}`, "none", nil, 400, "Mcp-Session-Id is missing"},
	{"unknown session", "POST", `{"jsonrpc":"2.0","id":"a","method":"tools/list"}`, "", http.Header{"Mcp-Session-Id": {"gone"}}, 404, `"id":"a","error":{"code":-32001`},
	{"unknown session, ping", "POST", ping, "", http.Header{"Mcp-Session-Id": {"gone"}}, 404, "-32001"},
	{"unknown session, notification", "POST", `{"jsonrpc":"2.0","method":"notifications/x"}`, "", http.Header{"Mcp-Session-Id": {"gone"}}, 404, "-32001"},
	{"unknown session, GET", "GET", "", "", http.Header{"Mcp-Session-Id": {"gone"}, "Accept": {"text/event-stream"}}, 404, "-32001"},
	{"unknown session, DELETE", "DELETE", "", "", http.Header{"Mcp-Session-Id": {"gone"}}, 404, "-32001"},
	{"two sessions", "POST", ping, "", http.Header{"Mcp-Session-Id": {"a", "b"}}, 400, "more than one"},
	{"initialized twice", "POST", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`, "", nil, 400, "initialized already"},
	{"unknown version", "POST", ping, "", http.Header{"Mcp-Protocol-Version": {"1999-01-01"}}, 400, "1999-01-01"},
	{"unknown version, GET", "GET", "", "", http.Header{"Mcp-Protocol-Version": {"x"}, "Accept": {"text/event-stream"}}, 400, "unknown revision"},
	{"unknown version, DELETE", "DELETE", "", "", http.Header{"Mcp-Protocol-Version": {"x"}}, 400, "unknown revision"},
	{"modern header", "POST", ping, "", http.Header{"Mcp-Protocol-Version": {"2026-07-28"}}, 400, `-32000`},
	{"modern body", "POST", `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, "none", nil, 400, `"id":1,"error":{"code":-32000`},
	{"modern initialize", "POST", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, "none", nil, 400, `-32000`},
	{"batch", "POST", "[" + ping + "]", "", nil, 400, "-32600"},
	{"empty batch", "POST", "[]", "old", nil, 400, "-32600"},
	{"broken batch", "POST", "[" + ping, "old", nil, 400, "-32700"},
	{"initialize in a batch", "POST", `[{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}]`, "none", nil, 400, "-32600"},
	{"not JSON", "POST", "{", "", nil, 400, "-32700"},
	{"not JSON-RPC", "POST", `{"id":1,"method":"x"}`, "", nil, 400, `"id":1,"error":{"code":-32600`},
	{"fractional id", "POST", `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, "", nil, 400, "-32600"},
	{"nothing", "POST", ``, "", nil, 400, "-32700"},
	{"accepts nothing of ours", "POST", ping, "", http.Header{"Accept": {"text/html"}}, 406, "text/event-stream"},
	{"GET that takes no events", "GET", "", "", http.Header{"Accept": {"application/json"}}, 406, "text/event-stream"},
	{"a form", "POST", ping, "", http.Header{"Content-Type": {"text/plain"}}, 415, "application/json"},
	{"compressed", "POST", ping, "", http.Header{"Content-Encoding": {"gzip"}}, 415, "uncompressed"},
	{"too long", "POST", strings.Repeat(" ", 1<<20) + ping, "", nil, 413, "--max-body"},
	{"PUT", "PUT", ping, "", nil, 405, "GET, POST and DELETE"},
	{"an event id of nobody", "GET", "", "", http.Header{"Accept": {"text/event-stream"}, "Last-Event-Id": {"7-7"}}, 400, "never given out"},
	{"an event id of nothing", "GET", "", "", http.Header{"Accept": {"text/event-stream"}, "Last-Event-Id": {"x\x01"}}, 400, ""},
}

// TestRefusals: none of what is refused makes or ends a session.
func TestRefusals(t *testing.T) {
	serve(t, testkit.Options{}, func(t *testing.T, e *endpoint) {
		from := map[string]*testkit.Client{"": e.open("2025-06-18"), "old": e.open("2025-03-26"), "none": e.open("")}
		for _, tc := range refusals {
			var body []byte
			if tc.body != "" {
				body = []byte(tc.body)
			}
			resp, err := from[tc.from].Do(t.Context(), tc.method, e.l.URL("/mcp"), body, tc.header)
			if tc.want == "" && err != nil { // net/http would not send it
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", tc.name, err)
				continue
			}
			if resp.Status != tc.status || !strings.Contains(string(resp.Body), tc.want) || resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: %d %s", tc.name, resp.Status, resp.Body)
			}
			if m, err := resp.Message(); err != nil || m.Error == nil {
				t.Errorf("%s: no JSON-RPC error: %s", tc.name, resp.Body)
			}
		}
		if n := e.host.Sessions.Len(); n != 2 {
			t.Errorf("%d sessions, want the two from before", n)
		}
	})
}
