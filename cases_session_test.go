package holdfast_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Cases of kind g: a session ends when it should, and says so in the way that
// makes clients start over.

// wantRefused holds a response against a status and the code of its error.
func wantRefused(t *testing.T, what string, s *stream, status int, code string) {
	t.Helper()
	s.done()
	if s.status != status || !strings.Contains(string(s.body), `"error":{"code":`+code+`,`) {
		t.Errorf("%s: answered with %d %s (%v), want %d and error %s", what, s.status, s.body, s.err, status, code)
	}
}

// C39 (i), (iii) and (ii). Sessions bound to a principal wait for
// authentication (C43); a client's own way back from a 404 is C40.
func TestC39UnknownMissingAndEndedSessions(t *testing.T) {
	f := &farm{}
	virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
		ended := b.streamable(v06)
		ended.ask(toolCall("1", "echo", `{}`, ""))
		if s := ended.do(http.MethodDelete, "/mcp", "").done(); s.status != http.StatusNoContent {
			t.Errorf("DELETE was answered with %d %s", s.status, s.body)
		}
		c := b.client()
		for _, id := range []string{"gone", ended.header.Get("Mcp-Session-Id"), ""} {
			status, code := http.StatusNotFound, "-32001"
			if id == "" {
				status, code = http.StatusBadRequest, "-32600"
			}
			for what, s := range map[string]*stream{
				"request":      c.send(body(`"`+id+`"`, "tools/list", ""), "Mcp-Session-Id", id),
				"notification": c.send(initialized, "Mcp-Session-Id", id),
				"response":     c.send(`{"jsonrpc":"2.0","id":"hf-x-1","result":{}}`, "Mcp-Session-Id", id),
				"GET":          c.do(http.MethodGet, "/mcp", "", "Mcp-Session-Id", id),
				"DELETE":       c.do(http.MethodDelete, "/mcp", "", "Mcp-Session-Id", id),
			} {
				if id == "" && what == "response" {
					code = "-32600" // its own id must not come back as if we had asked
				}
				wantRefused(t, fmt.Sprintf("%s in session %.6q", what, id), s, status, code)
				if what == "request" && !strings.Contains(string(s.body), `"id":"`+id+`"`) {
					t.Errorf("the refusal does not name the request: %s", s.body)
				}
			}
		}
		if got := f.told("tools/list"); len(got) > 0 {
			t.Errorf("a server was told %q", got)
		}
	})
}

// The same for HTTP+SSE, where the session stands in the URL.
func TestC39UnknownSessionsOverSSE(t *testing.T) {
	virtually(t, setup{farm: &farm{}}, func(t *testing.T, b *bench) {
		c := b.client()
		wantRefused(t, "unknown", c.do(http.MethodPost, "/message?sessionId=gone", body("1", "tools/list", "")), http.StatusNotFound, "-32001")
		wantRefused(t, "missing", c.do(http.MethodPost, "/message", body("2", "tools/list", "")), http.StatusBadRequest, "-32600")
	})
}

// C39 (iv): a stale id must not keep a client from starting over.
func TestC39InitializeWithStaleSession(t *testing.T) {
	virtually(t, setup{farm: &farm{}}, func(t *testing.T, b *bench) {
		c := b.client()
		c.header.Set("Mcp-Session-Id", "gone")
		c.handshake(v11, "{}")
		if id := c.header.Get("Mcp-Session-Id"); id == "gone" || id == "" {
			t.Errorf("the new session's id is %q", id)
		}
		c.ask(toolCall("1", "echo", `{}`, ""))
	})
}

// C39 (v) and (vi), and methods that are unknown.
func TestC39SessionHeaderAndUnknownMethod(t *testing.T) {
	virtually(t, setup{farm: &farm{}}, func(t *testing.T, b *bench) {
		c := b.streamable(v11)
		id := c.header.Get("Mcp-Session-Id")
		c.header.Del("Mcp-Session-Id")
		for i, name := range []string{"mcp-session-id", "MCP-SESSION-ID", "mCP-sESSION-iD"} {
			s := c.send(body(fmt.Sprint(i), "tools/list", ""), name, id).done()
			if s.status != http.StatusOK {
				t.Errorf("%s: answered with %d %s", name, s.status, s.body)
			}
		}
		two := c.send(body(`"two"`, "tools/list", ""), "Mcp-Session-Id", id+"\n"+id)
		wantRefused(t, "two session headers", two, http.StatusBadRequest, "-32600")
		// A 404 would make the client initialize again.
		s := c.send(body(`"unknown"`, "no/such/method", ""), "Mcp-Session-Id", id).done()
		if s.status != http.StatusOK || !strings.Contains(string(s.body), "-32601") {
			t.Errorf("an unknown method is answered with %d %s", s.status, s.body)
		}
	})
}

// C42. A call in flight holds its session, whether anybody reads it or not; how
// long it runs on without a reader is for its tool to say.
func TestC42SessionsAreReapedUnlessBusy(t *testing.T) {
	const many, limit = 300, time.Minute // 1,000 real ones are a matter of load
	f := &farm{tools: map[string]func(*fakeCall){"kept": standard["sleep"]}}
	o := holdfast.Options{
		Server: holdfast.Server{MaxChildren: many + 10, Warm: -1, Tools: []holdfast.Tool{{Name: "kept", OnDisconnect: holdfast.DisconnectKeep}}},
		Timers: holdfast.Timers{SessionTimeout: limit, ReconnectGrace: limit, OrphanGrace: 2*limit + limit/2},
	}
	virtually(t, setup{options: o, farm: f}, func(t *testing.T, b *bench) {
		busy, listening, old := b.streamable(v11), b.streamable(v11), b.legacy(v2024)
		busy.send(toolCall("1", "sleep", `{"ms":600000}`, "")).open()
		begin := time.Now()
		alone, orphan := dropped(b, "sleep") // has server 3
		keeping, kept := dropped(b, "kept")
		get := listening.listen("/mcp", "")
		before := runtime.NumGoroutine()
		left := leave(b, many)
		if n := f.alive(); n != many+5 {
			t.Errorf("%d servers run, want %d", n, many+5)
		}
		<-time.After(2 * limit)
		if n := f.alive(); n != 5 || len(f.told("notifications/cancelled")) > 0 {
			t.Errorf("%d servers run, want the five that are in use, told %q", n, f.told("notifications/cancelled"))
		}
		if n := runtime.NumGoroutine(); n > before+5 {
			t.Errorf("%d goroutines, %d before", n, before)
		}
		wantForgotten(t, b.client(), left[:10])

		<-time.After(time.Until(begin.Add(3 * limit)))
		wantOrphaned(t, b, alone, orphan)
		<-time.After(2 * limit)
		if n := f.alive(); n != 4 {
			t.Errorf("%d servers run, want all but that of the cancelled call", n)
		}

		<-time.After(time.Until(begin.Add(10*limit + limit/2))) // a result may still be fetched for the idle time
		keeping.listen("/mcp", kept.position())
		if got := keeping.answer("1"); !strings.Contains(got, "slept") {
			t.Errorf("the kept call that nobody read was answered with %s", got)
		}
		<-time.After(20 * limit)
		if got := busy.answer("1"); !strings.Contains(got, "slept") {
			t.Errorf("the long call was answered with %s", got)
		}
		for what, c := range map[string]*client{"with a GET": listening, "with a stream of HTTP+SSE": old} {
			if got := c.ask(toolCall("2", "echo", `{"a":1}`, "")); !strings.Contains(got, `{"a":1}`) {
				t.Errorf("the session %s is gone: %s", what, got)
			}
		}
		get.cut()
		if got := f.told("notifications/cancelled"); len(got) != 1 {
			t.Errorf("the servers were told %q", got)
		}
	})
}

// leave opens sessions, every other one of HTTP+SSE, and leaves them without DELETE.
func leave(b *bench, many int) (left []*client) {
	for i := range many {
		c := b.client()
		if i%2 == 0 {
			c.listen("/sse", "")
		}
		c.handshake(v06, "{}")
		c.close()
		left = append(left, c)
	}
	return left
}

// dropped is a client whose call of 10 minutes has lost its connection.
func dropped(b *bench, tool string) (*client, *stream) {
	b.t.Helper()
	c := b.streamable(v11)
	s := c.send(toolCall("1", tool, `{"ms":600000}`, "")).open()
	b.within(bound, "an event id", func() bool { return s.position() != "" })
	s.cut()
	s.done()
	return c, s
}

// wantOrphaned holds that the call of such a client was cancelled, and that it
// finds an answer that says so when it comes back.
func wantOrphaned(t *testing.T, b *bench, c *client, s *stream) {
	t.Helper()
	its := b.farm.all()[3]
	told := its.told("notifications/cancelled", "orphan grace")
	if len(told) != 1 || raw(told[0], jsonrpc.RequestID) != raw(its.told("600000")[0], jsonrpc.ID) {
		t.Errorf("after the orphan grace, the server was told %q", told)
	}
	again := c.listen("/mcp", s.position())
	got := c.answer("1")
	for _, want := range []string{`"error":{"code":-32800,`, "orphan-grace", `"outcome":"unknown"`} {
		if !strings.Contains(got, want) {
			t.Errorf("the call that nobody read was answered with %s, want in it: %s", got, want)
		}
	}
	again.done() // a POST's stream ends with its answer, whoever reads it
}

// wantForgotten holds that sessions answer as ones that never were. Every other
// one, from the first, is of HTTP+SSE.
func wantForgotten(t *testing.T, c *client, left []*client) {
	t.Helper()
	for i, gone := range left {
		id := gone.header.Get("Mcp-Session-Id")
		if i%2 == 0 {
			_, id, _ = strings.Cut(gone.endpoint, "=")
			wantRefused(t, "left", c.do(http.MethodPost, "/message?sessionId="+id, initialized), http.StatusNotFound, "-32001")
			continue
		}
		wantRefused(t, "left", c.do(http.MethodGet, "/mcp", "", "Mcp-Session-Id", id), http.StatusNotFound, "-32001")
	}
}
