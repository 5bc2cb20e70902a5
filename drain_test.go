package holdfast_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
)

// draining is a gateway in virtual time, with what a test wants to know of its
// end.
type draining struct {
	t       *testing.T
	g       *holdfast.Gateway
	l       *testkit.MemListener
	stopped chan time.Duration // receives how long Stop took
}

// drainGate runs f before a gateway that is given ten seconds to drain.
func drainGate(t *testing.T, f func(t *testing.T, d *draining)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g, err := holdfast.New(holdfast.Options{Server: scriptedServer(testkit.Options{}), Timers: holdfast.Timers{Drain: 10 * time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		d := &draining{t: t, g: g, l: testkit.NewMemListener(), stopped: make(chan time.Duration, 1)}
		srv := &http.Server{Handler: g}
		served := make(chan struct{})
		go func() { defer close(served); _ = srv.Serve(d.l) }() // ends with srv.Close
		f(t, d)
		_ = g.Stop(stopped())
		_ = srv.Close()
		<-served
	})
}

// stop begins to stop the gateway.
func (d *draining) stop() {
	go func() { // ends when all is over
		begin := time.Now()
		_ = d.g.Stop(context.Background())
		d.stopped <- time.Since(begin)
	}()
	synctest.Wait()
}

// refused demands that a request gets 503 and is told to come again.
func (d *draining) refused(what string, c *testkit.Client, body []byte) {
	d.t.Helper()
	resp, err := c.Post(d.t.Context(), body)
	if err != nil || resp.Status != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(resp.Body), `"code":-32000`) {
		d.t.Errorf("%s while draining: %+v, %v", what, resp, err)
	}
}

// TestDrainLetsCallsEnd: what ends within the drain time is delivered, over a
// resumed stream too; nothing new begins; Stop waits no longer than it must.
func TestDrainLetsCallsEnd(t *testing.T) {
	drainGate(t, func(t *testing.T, d *draining) {
		c := sessionOf(t, d.l.URL("/mcp"), "2025-11-25", `{}`, d.l.Dial)
		legacy := streamOf(t, d.l.URL("/sse"), "2024-11-05", d.l.Dial)
		post, err := c.Post(t.Context(), testkit.CallTool("1", "sleep", `{"ms":6000}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := legacy.Deliver(t.Context(), testkit.CallTool("1", "sleep", `{"ms":7000}`)); err != nil {
			t.Fatal(err)
		}
		prime, err := post.Stream.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		d.stop()
		d.refused("a call", c, testkit.CallTool("2", "echo", `{}`))
		d.refused("a session", newcomer(t, d.l.URL("/mcp"), d.l.Dial), testkit.Request("1", "initialize", testkit.InitializeParams("2025-11-25", `{}`, "late")))
		if resp, err := newcomer(t, d.l.URL("/sse"), d.l.Dial).Get(t.Context(), ""); err != nil || resp.Status != http.StatusServiceUnavailable {
			t.Errorf("a new /sse stream while draining: %+v, %v", resp, err)
		}
		if resp, err := newcomer(t, d.l.URL("/readyz"), d.l.Dial).Get(t.Context(), ""); err != nil || resp.Status != http.StatusServiceUnavailable {
			t.Errorf("/readyz while draining: %+v, %v", resp, err)
		}
		if resp, err := newcomer(t, d.l.URL("/healthz"), d.l.Dial).Get(t.Context(), ""); err != nil || resp.Status != http.StatusOK {
			t.Errorf("/healthz while draining: %+v, %v", resp, err)
		}
		post.Stream.Cut()
		time.Sleep(3 * time.Second)
		again, err := c.Get(t.Context(), prime.ID)
		if err != nil || again.Stream == nil {
			t.Fatalf("a resumption while draining: %+v, %v", again, err)
		}
		var streams sync.WaitGroup
		streams.Go(func() { // ends with its answer
			if m, _, err := again.Stream.Await(t.Context(), "1"); err != nil || m.Text() != "slept" {
				t.Errorf("the resumed call: %s, %v", m.Bytes, err)
			}
			_, _ = again.Stream.Next(t.Context()) // to the end: nothing between has a buffer
		})
		streams.Go(func() { // ends with its answer
			if m, _, err := legacy.Await(t.Context(), "1"); err != nil || m.Text() != "slept" {
				t.Errorf("the call over HTTP+SSE: %s, %v", m.Bytes, err)
			}
			_, _ = legacy.Next(t.Context())
		})
		streams.Wait()
		if took := <-d.stopped; took < 6*time.Second || took > 7500*time.Millisecond {
			t.Errorf("Stop took %v for a call of 7 s", took)
		}
	})
}

// TestDrainEnds: past the drain time a call gets an error, each stream is told
// when to come back, where its revision knows that, and ends in order.
func TestDrainEnds(t *testing.T) {
	drainGate(t, func(t *testing.T, d *draining) {
		var streams sync.WaitGroup
		over := func(kind string, st *testkit.Stream, id string, retry bool) {
			streams.Go(func() { // ends with the stream
				if id != "" {
					m, _, err := st.Await(t.Context(), id)
					if err != nil || m.Error == nil || m.Error.Code != -32000 || string(m.Error.Data) != `{"outcome":"unknown"}` {
						t.Errorf("%s: %s, %v", kind, m.Bytes, err)
					}
				}
				for {
					if _, err := st.Next(t.Context()); err != nil {
						if d, given := st.Retry(); err != io.EOF || given != retry || given && d != time.Second {
							t.Errorf("%s ended with %v, retry %v, %v", kind, err, d, given)
						}
						return
					}
				}
			})
		}
		for version, retry := range map[string]bool{"2025-06-18": false, "2025-11-25": true} {
			c := sessionOf(t, d.l.URL("/mcp"), version, `{}`, d.l.Dial)
			get, err := c.Get(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			over("GET "+version, get.Stream, "", retry)
			post, err := c.Post(t.Context(), testkit.CallTool("1", "sleep", `{"ms":60000}`))
			if err != nil {
				t.Fatal(err)
			}
			over("POST "+version, post.Stream, "1", retry)
		}
		legacy := streamOf(t, d.l.URL("/sse"), "2024-11-05", d.l.Dial)
		if err := legacy.Deliver(t.Context(), testkit.CallTool("1", "sleep", `{"ms":60000}`)); err != nil {
			t.Fatal(err)
		}
		over("/sse", legacy.Stream, "1", true) // EventSource knows retry since there are event streams
		d.stop()
		streams.Wait()
		if took := <-d.stopped; took < 10*time.Second || took > 12*time.Second {
			t.Errorf("Stop took %v with a drain time of 10 s", took)
		}
	})
}

// TestStopIsIdempotent and may be hurried.
func TestStopIsIdempotent(t *testing.T) {
	drainGate(t, func(t *testing.T, d *draining) {
		c := sessionOf(t, d.l.URL("/mcp"), "2025-11-25", `{}`, d.l.Dial)
		post, err := c.Post(t.Context(), testkit.CallTool("1", "sleep", `{"ms":60000}`))
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { _ = d.g.Stop(stopped()) })
		}
		if m, _, err := post.Stream.Await(t.Context(), "1"); err != nil || m.Error == nil {
			t.Errorf("%s, %v", m.Bytes, err)
		}
		post.Stream.Close()
		all.Wait()
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("a Stop in a hurry took %v", took)
		}
		if err := d.g.Start(t.Context()); err == nil {
			t.Error("started again")
		}
	})
}

// TestGraceOfALostStream: C16 (iii). A call over HTTP+SSE outlives its stream
// for the grace; then the server hears once, under its own id, that nobody
// waits any more.
func TestGraceOfALostStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := t.TempDir() + "/counts"
		l := memGate(t, holdfast.Options{
			Server: scriptedServer(testkit.Options{CountFile: file}),
			Timers: holdfast.Timers{ReconnectGrace: 2 * time.Minute, RequestTimeout: -1, RequestMax: -1},
		})
		s := streamOf(t, l.URL("/sse"), "2024-11-05", l.Dial)
		if err := s.Deliver(t.Context(), testkit.CallTool(`"x"`, "sleep", `{"ms":3600000,"key":"k"}`)); err != nil {
			t.Fatal(err)
		}
		go func() { // ends with the stream; nothing between has a buffer
			for err := error(nil); err == nil; {
				_, _, err = s.Message(t.Context()) // pings
			}
		}()
		time.Sleep(time.Hour / 2)
		s.Cut()
		expect := func(what string, want testkit.Counts) {
			t.Helper()
			synctest.Wait()
			if n, err := testkit.ReadCounts(file, "k"); err != nil || n != want {
				t.Errorf("%s: %+v, %v, want %+v", what, n, err, want)
			}
		}
		time.Sleep(2*time.Minute - time.Second)
		expect("within the grace", testkit.Counts{Start: 1})
		time.Sleep(32 * time.Second) // swept each 30 s at most
		expect("after it", testkit.Counts{Start: 1, Cancel: 1})
		time.Sleep(2 * time.Hour)
		expect("much later", testkit.Counts{Start: 1, Cancel: 1})
		resp, err := s.Post(t.Context(), testkit.Request("1", "ping", ""))
		if err != nil || resp.Status != http.StatusNotFound {
			t.Errorf("the session afterwards: %+v, %v", resp, err)
		}
	})
}

// TestBodyThatNeverComes: a request that is refused before its body is read is
// answered within the read time-out, whatever refuses it.
func TestBodyThatNeverComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memGate(t, holdfast.Options{Server: scriptedServer(testkit.Options{}), Timers: holdfast.Timers{ReadTimeout: 20 * time.Second}})
		for _, tc := range []struct{ name, head, want string }{
			{"a message of no session", "POST /message?sessionId=gone HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n", "HTTP/1.1 404"},
			{"a path of nothing", "POST /nothing HTTP/1.1\r\nHost: localhost\r\n", "HTTP/1.1 404"},
			{"another host", "POST /mcp HTTP/1.1\r\nHost: evil.example\r\n", "HTTP/1.1 403"},
			{"another type", "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n", "HTTP/1.1 415"},
			{"a message", "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n", "HTTP/1.1 408"},
			{"a DELETE", "DELETE /mcp HTTP/1.1\r\nHost: localhost\r\n", "HTTP/1.1 400"},
		} {
			conn, err := l.Dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			if _, err := io.WriteString(conn, tc.head+"Content-Length: 100\r\n\r\n{"); err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(conn)
			if !strings.HasPrefix(string(got), tc.want) || time.Since(begin) > 20*time.Second {
				t.Errorf("%s: after %v: %.100q", tc.name, time.Since(begin), got)
			}
			_ = conn.Close()
		}
	})
}
