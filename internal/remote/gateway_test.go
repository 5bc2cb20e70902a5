package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/internal/remote"
	"github.com/holdfast-mcp/holdfast/internal/stdio"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
)

const bound = 20 * time.Second

// wire hands lines on to what sends them.
type wire struct {
	send   func(line []byte) error
	closed chan error
}

func (w wire) Line(line []byte)     { _ = w.send(append([]byte(nil), line...)) }
func (w wire) Oversize([]byte, int) {}
func (w wire) Closed(err error) {
	if w.closed != nil {
		w.closed <- err
	}
}

// through is an in-process server that is in truth a link.
func through(o remote.Options) func(ctx context.Context, r io.ReadCloser, w io.WriteCloser) error {
	return func(ctx context.Context, r io.ReadCloser, w io.WriteCloser) error {
		var link *remote.Link
		up := make(chan struct{})
		conn := stdio.NewConn(r, w, stdio.ConnOptions{}, wire{send: func(line []byte) error { <-up; return link.SendRaw(line) }})
		closed := make(chan error, 1)
		var err error
		link, err = remote.Dial(o, wire{send: conn.SendRaw, closed: closed})
		close(up)
		if err != nil {
			return err
		}
		defer link.Stop()
		select {
		case err = <-conn.Ended():
		case err = <-closed:
		case <-ctx.Done():
		}
		conn.Finish(time.Second)
		return err
	}
}

// gateway is a gateway on a port of its own, with the pieces that a test works
// on.
func gateway(t *testing.T, serve func(ctx context.Context, r io.ReadCloser, w io.WriteCloser) error) *httptest.Server {
	t.Helper()
	gw, err := holdfast.New(holdfast.Options{
		Server: holdfast.Server{Name: "s", Serve: serve, Warm: -1},
		Timers: holdfast.Timers{Drain: -1, Heartbeat: 500 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := gw.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gw)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()
		if err := gw.Stop(ctx); err != nil {
			t.Error(err)
		}
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

// pair is a gateway before a gateway, with a way between them that can be cut.
func pair(t *testing.T, path string) (front string, way *testkit.CutProxy, counts string) {
	t.Helper()
	counts = filepath.Join(t.TempDir(), "counts")
	back := gateway(t, func(ctx context.Context, r io.ReadCloser, w io.WriteCloser) error {
		return testkit.Serve(ctx, r, w, testkit.Options{CountFile: counts})
	})
	u, err := url.Parse(back.URL)
	if err != nil {
		t.Fatal(err)
	}
	way, err = testkit.NewCutProxy(u.Host, testkit.CutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = way.Close() })
	o := remote.Options{URL: way.URL(path), ReconnectWait: 10 * time.Second}
	return gateway(t, through(o)).URL, way, counts
}

func TestGatewayBeforeGateway(t *testing.T) {
	for _, path := range []string{"/mcp", "/sse"} {
		t.Run(strings.Trim(path, "/"), func(t *testing.T) {
			t.Parallel()
			front, way, counts := pair(t, path)
			ctx, cancel := context.WithTimeout(t.Context(), 2*bound)
			defer cancel()
			c := testkit.NewClient(front+"/mcp", nil)
			defer c.Close()
			if _, err := c.Initialize(ctx, "2025-11-25", `{"elicitation":{}}`); err != nil {
				t.Fatal(err)
			}
			listening, err := c.Get(ctx, "")
			if err != nil || listening.Stream == nil {
				t.Fatal(err, listening.Status)
			}
			defer listening.Stream.Close()
			raw := `{"raw":true,"a":9223372036854775807,"b":1.0,"c":1e400,"d":-0}`
			for id, tt := range map[string]struct{ body, want string }{
				"1": {string(testkit.Request("1", "tools/list", "{}")), `"b":1e400,"a":-0`},
				"2": {string(testkit.CallTool("2", "echo", raw)), raw},
				"3": {string(testkit.CallTool("3", "progress", `{"n":3,"intervalMs":200}`)), "emitted=3"},
				"4": {string(testkit.Request("4", "resources/subscribe", `{"uri":"test://1"}`)), `"result":{}`},
				"5": {string(testkit.CallTool("5", "touch", `{"uri":"test://1"}`)), `"result"`},
				"6": {string(testkit.CallTool("6", "error", `{"code":-32050}`)), `-32050`},
				"7": {string(testkit.Request("7", "x/y", `{"deep":[1.0]}`)), `{"deep":[1.0]}`},
			} {
				got, err := c.Call(ctx, id, []byte(tt.body))
				if err != nil || !strings.Contains(string(got.Bytes), tt.want) {
					t.Errorf("%s was answered %s, %v; want %s", tt.body, got.Bytes, err, tt.want)
				}
			}
			asks(ctx, t, c)
			throughCut(ctx, t, c, way, counts)
		})
	}
}

// asks lets the server ask the client.
func asks(ctx context.Context, t *testing.T, c *testkit.Client) {
	t.Helper()
	resp, err := c.Post(ctx, testkit.CallTool("20", "ask", `{"message":"who?"}`))
	if err != nil || resp.Stream == nil {
		t.Fatal(err, string(resp.Body))
	}
	defer resp.Stream.Close()
	for {
		m, _, err := resp.Stream.Message(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if m.Method == "elicitation/create" {
			if err := c.Deliver(ctx, testkit.Reply(string(m.ID), `{"action":"accept","content":{"name":"me"}}`)); err != nil {
				t.Fatal(err)
			}
		}
		if m.IsAnswer("20") {
			if !strings.Contains(string(m.Bytes), `accept`) {
				t.Errorf("answered %s", m.Bytes)
			}
			return
		}
	}
}

// throughCut cuts every connection between the gateways while calls are long.
func throughCut(ctx context.Context, t *testing.T, c *testkit.Client, way *testkit.CutProxy, counts string) {
	t.Helper()
	const calls = 5
	type outcome struct {
		got testkit.Message
		err error
	}
	answers := make(chan outcome, calls)
	began := time.Now()
	for i := range calls {
		go func() { // ends with ctx
			id := fmt.Sprint(30 + i)
			got, err := c.Call(ctx, id, testkit.CallToolWithToken(id, "sleep", fmt.Sprintf(`{"ms":3000,"key":"k%d"}`, i), id))
			answers <- outcome{got, err}
		}()
	}
	testkit.Eventually(t, bound, "all calls run", func() bool {
		for i := range calls {
			if n, err := testkit.ReadCounts(counts, fmt.Sprint("k", i)); err != nil || n.Start != 1 {
				return false
			}
		}
		return time.Since(began) > time.Second // long after the answer grace: every call has its stream
	})
	if way.CutAll() == 0 {
		t.Error("nothing was cut")
	}
	for range calls {
		select {
		case o := <-answers:
			if o.err != nil || !strings.Contains(string(o.got.Bytes), "slept") {
				t.Errorf("answered %s, %v", o.got.Bytes, o.err)
			}
		case <-ctx.Done():
			t.Fatal(errors.New("a call hangs"))
		}
	}
	for i := range calls {
		if n, err := testkit.ReadCounts(counts, fmt.Sprint("k", i)); err != nil || n.Start != 1 {
			t.Errorf("call %d was executed %d times, %v", i, n.Start, err)
		}
	}
	if got, err := c.Call(ctx, "40", testkit.CallTool("40", "echo", `{"text":"still here"}`)); err != nil || !strings.Contains(string(got.Bytes), "still here") {
		t.Errorf("after that: %s, %v", got.Bytes, err)
	}
}

func TestStatelessThroughTwoGateways(t *testing.T) {
	t.Parallel()
	front, way, counts := pair(t, "/mcp")
	lines := make(chan string, 100)
	link, err := remote.Dial(remote.Options{URL: front + "/mcp"}, wire{send: func(line []byte) error { lines <- string(line); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer link.Stop()
	ask := func(id, method, params, want string) string {
		t.Helper()
		const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}`
		if err := link.SendRaw([]byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params + meta + `}}`)); err != nil {
			t.Fatal(err)
		}
		limit := time.After(bound)
		for {
			select {
			case line := <-lines:
				if m, err := testkit.Parse([]byte(line)); err != nil || !m.IsAnswer(id) {
					continue
				}
				if !strings.Contains(line, want) {
					t.Errorf("%s was answered %s, want %s", method, line, want)
				}
				return line
			case <-limit:
				t.Fatalf("no answer to %s", method)
			}
		}
	}
	ask("1", "server/discover", "", `"2026-07-28"`)
	ask("2", "tools/list", "", `"resultType":"complete"`)
	ask("3", "tools/call", `"name":"echo","arguments":{"text":"Łódź"},`, "Łódź")
	ask("4", "resources/unknown", "", `-32601`)
	ask("5", "tools/call", `"name":"ask","arguments":{"message":"who?"},`, `"resultType":"input_required"`)
	go func() { // ends with the first cut, or with the test
		_ = untilRuns(t.Context(), counts, "k")
		way.CutAll()
	}()
	ask("6", "tools/call", `"name":"sleep","arguments":{"ms":2000,"key":"k"},`, `"outcome":"unknown"`)
	ask("7", "tools/call", `"name":"echo","arguments":{"text":"still here"},`, "still here")
	if n, err := testkit.ReadCounts(counts, "k"); err != nil || n.Start != 1 {
		t.Errorf("executed %d times, %v", n.Start, err)
	}
}

// untilRuns returns once the counted tool runs.
func untilRuns(ctx context.Context, counts, key string) error {
	for {
		if n, err := testkit.ReadCounts(counts, key); err == nil && n.Start > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
