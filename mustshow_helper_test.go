package holdfast_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/internal/lineserver"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
)

// gate starts a gateway on a loopback port, and returns where it is. It stops
// with the test.
func gate(t testing.TB, o holdfast.Options) (base string) {
	t.Helper()
	o.Listen = "127.0.0.1:0"
	g, err := holdfast.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Stop(stopped()) })
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return "http://" + g.Addr().String()
}

// stopped is a context for a Stop that does not wait for calls in flight.
func stopped() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// memGate is gate on a network in memory, for a bubble.
func memGate(t testing.TB, o holdfast.Options) *testkit.MemListener {
	t.Helper()
	g, err := holdfast.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := testkit.NewMemListener()
	srv := &http.Server{Handler: g}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(l) }() // ends with srv.Close
	t.Cleanup(func() {
		_ = g.Stop(stopped())
		_ = srv.Close()
		<-served
	})
	return l
}

// scriptedServer is testkit's server in this process.
func scriptedServer(o testkit.Options) holdfast.Server {
	return holdfast.InProcess(func(ctx context.Context, r io.ReadCloser, w io.WriteCloser) error {
		return testkit.Serve(ctx, r, w, o)
	})
}

// scriptedChild is the same as a process of its own.
func scriptedChild(flags ...string) holdfast.Server {
	path, argv, env := testkit.Command(flags...)
	s := holdfast.Command(path, argv...)
	s.Env = env
	return s
}

// newcomer is a client of the endpoint, closed with the test.
func newcomer(t testing.TB, url string, dial testkit.DialFunc) *testkit.Client {
	t.Helper()
	c := testkit.NewClient(url, dial)
	t.Cleanup(c.Close)
	return c
}

// sessionOf opens a Streamable HTTP session.
func sessionOf(t testing.TB, url, version, capabilities string, dial testkit.DialFunc) *testkit.Client {
	t.Helper()
	c := newcomer(t, url, dial)
	if _, err := c.Initialize(t.Context(), version, capabilities); err != nil {
		t.Fatal(err)
	}
	return c
}

// streamOf opens an HTTP+SSE session.
func streamOf(t testing.TB, url, version string, dial testkit.DialFunc) *testkit.SSE {
	t.Helper()
	s, err := newcomer(t, url, dial).ConnectSSE(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Initialize(t.Context(), version, `{}`); err != nil {
		t.Fatal(err)
	}
	return s
}

// identity asks a server what it was told, and what it is.
func identity(t testing.TB, c *testkit.Client, id string) (who testkit.Identity) {
	t.Helper()
	m, err := c.Call(t.Context(), id, testkit.CallTool(id, "whoami", `{}`))
	if err == nil {
		err = json.Unmarshal([]byte(m.Text()), &who)
	}
	if err != nil {
		t.Fatalf("whoami: %v: %s", err, m.Bytes)
	}
	return who
}

// fuse is a connection that breaks after some more bytes have come, once it is
// lit: in the middle of an event as well as between two.
type fuse struct {
	net.Conn
	left atomic.Int64
}

// unlit is more than comes in a test.
const unlit = 1 << 50

// fuses makes connections and remembers them.
type fuses struct {
	mu  sync.Mutex // guards the field below
	all []*fuse
}

func (f *fuses) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	one := &fuse{Conn: conn}
	one.left.Store(unlit)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, one)
	return one, nil
}

// light makes all connections break after n more bytes.
func (f *fuses) light(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.all {
		one.left.Store(n)
	}
	f.all = nil
}

func (f *fuse) Read(b []byte) (int, error) {
	left := f.left.Load()
	if left <= 0 {
		if tcp, ok := f.Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // with a RST
		}
		_ = f.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	// By little, so that what is already read does not outlive the cut.
	n, err := f.Conn.Read(b[:min(int64(len(b)), left, 300)])
	if left < unlit/2 {
		f.left.Add(int64(-n))
	}
	return n, err
}

// parrot is a server whose answers and progress say whose they are. A
// notification notifications/go makes it send a thousand log messages.
func parrot(ctx context.Context, r io.ReadCloser, w io.WriteCloser) error {
	return lineserver.Serve(ctx, r, w, lineserver.Options{Receive: func(c *lineserver.Conn, m lineserver.Message) {
		switch m.Method {
		case "initialize":
			_ = c.Reply(m, json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"parrot","version":"1"}}`), nil)
		case "tools/call":
			c.Go(m, func(context.Context) (any, error) { return repeat(c, m.Params) })
		case "notifications/go":
			for n := range thousand {
				_ = c.Notify("notifications/message", json.RawMessage(fmt.Sprintf(`{"level":"info","data":{"n":%d,"pad":%q}}`, n+1, pad)))
			}
		case "ping":
			_ = c.Reply(m, struct{}{}, nil)
		}
	}})
}

const thousand = 1000

// pad keeps what a client reads at once from being many messages.
var pad = strings.Repeat("x", 1000)

// repeat sends progress that says the argument, then it as the answer.
func repeat(c *lineserver.Conn, raw json.RawMessage) (any, error) {
	var p struct {
		Arguments struct {
			Text string `json:"text"`
		} `json:"arguments"`
		Meta struct {
			Token json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, err
	}
	if p.Meta.Token != nil {
		for n := range 2 {
			err := c.Notify("notifications/progress", json.RawMessage(fmt.Sprintf(`{"progressToken":%s,"progress":%d,"message":%q}`, p.Meta.Token, n+1, p.Arguments.Text)))
			if err != nil {
				return nil, err
			}
		}
	}
	return map[string]any{"content": []any{map[string]string{"type": "text", "text": p.Arguments.Text}}}, nil
}

// soon bounds what is waited for in real time.
const soon = 30 * time.Second
