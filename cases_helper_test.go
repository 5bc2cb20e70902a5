package holdfast_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/internal/cli"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// TestMain makes the test binary five programs: the tests, the scripted MCP
// server of testkit, the one of TestChaosChildren, a client with tasks, and
// holdfast itself.
func TestMain(m *testing.M) {
	testkit.Main()
	if len(os.Args) == 3 && os.Args[1] == "chaos" {
		os.Exit(chaosChild(os.Args[2]))
	}
	if len(os.Args) > 3 && os.Args[1] == "caller" {
		os.Exit(callerMain(os.Args[2:]))
	}
	if len(os.Args) > 1 && (os.Args[1] == "serve" || os.Args[1] == "companion") {
		os.Exit(cli.Main(os.Args))
	}
	os.Exit(m.Run())
}

// The revisions that are served.
const (
	v2024 = "2024-11-05"
	v03   = "2025-03-26"
	v06   = "2025-06-18"
	v11   = "2025-11-25"
)

// bound is the longest that anything may take that a test waits for; where time
// is virtual, what a test makes long by itself is waited for longer.
const bound = 20 * time.Second

func (b *bench) patience() time.Duration {
	if b.virtual {
		return 10 * bound
	}
	return bound
}

// setup describes a bench. Zero fields mean the default.
type setup struct {
	options holdfast.Options
	farm    *farm                           // serves in this process; nil: options say what is served
	real    bool                            // real time and real sockets
	wrap    func(http.Handler) http.Handler // stands before the gateway; not with real
	server  func(*http.Server)              // changes the server; not with real
}

// bench is one gateway under test, its clients, and what its servers were told.
type bench struct {
	t       *testing.T
	g       *holdfast.Gateway
	farm    *farm
	log     *logbook
	dial    func(context.Context) (net.Conn, error)
	h2      bool
	virtual bool // time
	clients []*client
	ends    []func()
	closed  bool
}

// virtually runs f on a bench whose time is virtual: timers cost nothing.
// Afterwards it holds the two invariants against what happened.
func virtually(t *testing.T, s setup, f func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { onBench(t, s, f) })
}

// really is virtually with real time, sockets and processes.
func really(t *testing.T, s setup, f func(t *testing.T, b *bench)) {
	t.Helper()
	s.real = true
	onBench(t, s, f)
}

func onBench(t *testing.T, s setup, f func(t *testing.T, b *bench)) {
	t.Helper()
	b := newBench(t, s)
	defer b.close()
	f(t, b)
	b.settle()
}

func newBench(t *testing.T, s setup) *bench {
	t.Helper()
	b := &bench{t: t, farm: s.farm, log: &logbook{}, virtual: !s.real}
	o := s.options
	if s.farm != nil {
		s.farm.reset()
		in := holdfast.InProcess(s.farm.serve)
		in.Name, in.Isolation, in.MaxChildren, in.Warm = "kid", o.Server.Isolation, o.Server.MaxChildren, o.Server.Warm
		in.StartTimeout, in.Tools = o.Server.StartTimeout, o.Server.Tools
		o.Server = in
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if s.real {
		o.Listen = "127.0.0.1:0"
	}
	g, err := holdfast.New(o)
	if err != nil {
		t.Fatal(err)
	}
	b.g = g
	if s.real {
		b.dial = func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", g.Addr().String())
		}
	} else {
		b.serve(s)
	}
	if err := g.Start(t.Context()); err != nil {
		b.close()
		t.Fatal(err)
	}
	return b
}

// serve puts an http.Server with a network in memory before the gateway.
func (b *bench) serve(s setup) {
	l := testkit.NewMemListener()
	var h http.Handler = b.g
	if s.wrap != nil {
		h = s.wrap(h)
	}
	srv := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	if s.server != nil {
		s.server(srv)
	}
	b.h2 = srv.Protocols != nil && srv.Protocols.UnencryptedHTTP2()
	ended := make(chan struct{})
	go func() { defer close(ended); _ = srv.Serve(l) }() // ends with srv.Close
	b.ends = append(b.ends, func() { _ = srv.Close(); <-ended })
	b.dial = func(ctx context.Context) (net.Conn, error) { return l.Dial(ctx, "", "") }
}

// settle holds the invariants against what happened: each id was answered once
// within a bound, and no tool ran more often than it was called.
func (b *bench) settle() {
	b.t.Helper()
	for _, c := range b.clients {
		b.within(bound, "every request is answered; open: "+strings.Join(c.open(), " "), func() bool { return len(c.open()) == 0 })
	}
	b.close() // what comes late comes now
	asked := map[string]int{}
	for _, c := range b.clients {
		c.audit(b.t)
		for tool, n := range c.tools {
			asked[tool] += n
		}
	}
	if b.farm == nil {
		return
	}
	for tool, n := range b.farm.executed() {
		if n > asked[tool] {
			b.t.Errorf("tool %q was called %d times and ran %d times", tool, asked[tool], n)
		}
	}
}

// close ends everything and waits for it.
func (b *bench) close() {
	if b.closed {
		return
	}
	b.closed = true
	if b.g != nil {
		_ = b.g.Stop(context.Background())
	}
	for _, c := range b.clients {
		c.close()
	}
	for _, end := range b.ends {
		end()
	}
	if b.t.Failed() {
		b.t.Logf("the gateway's log:\n%s", b.log)
	}
}

// within fails the test unless cond comes true in time.
func (b *bench) within(d time.Duration, what string, cond func() bool) {
	b.t.Helper()
	for end := time.Now().Add(d); !cond(); {
		if time.Now().After(end) {
			b.t.Fatalf("not within %v: %s", d, what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// link is what stands between a client and the gateway.
type link func(net.Conn) net.Conn

// impatient is a proxy that ends a connection on which nothing came for a while.
func impatient(after time.Duration) link {
	return func(c net.Conn) net.Conn { return &impatientConn{Conn: c, after: after} }
}

type impatientConn struct {
	net.Conn
	after time.Duration
}

func (c *impatientConn) Read(p []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(c.after))
	n, err := c.Conn.Read(p)
	if err != nil {
		_ = c.Close()
	}
	return n, err
}

// withholding passes the head of a response on only together with the first
// byte of its body.
func withholding(c net.Conn) net.Conn { return &withholdingConn{Conn: c} }

type withholdingConn struct {
	net.Conn
	held []byte
	body bool // has begun
}

func (c *withholdingConn) Read(p []byte) (int, error) {
	for !c.body {
		part := make([]byte, 4<<10)
		n, err := c.Conn.Read(part)
		if err != nil {
			return 0, err
		}
		c.held = append(c.held, part[:n]...)
		head := bytes.Index(c.held, []byte("\r\n\r\n"))
		c.body = head >= 0 && len(c.held) > head+4
	}
	if len(c.held) > 0 {
		n := copy(p, c.held)
		c.held = c.held[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// logbook keeps what the gateway logged.
type logbook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// lines returns those that hold all the words.
func (l *logbook) lines(words ...string) (out []string) {
next:
	for line := range strings.Lines(l.String()) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue next
			}
		}
		out = append(out, line)
	}
	return out
}

// body is a request, put together as text so that no encoder has its way.
func body(id, method, params string) string {
	if params == "" {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q}`, id, method)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params)
}

// toolCall is a tools/call. meta is raw JSON, "" for none.
func toolCall(id, name, args, meta string) string {
	if meta != "" {
		return body(id, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s,"_meta":%s}`, name, args, meta))
	}
	return body(id, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, args))
}

// hello is an initialize request.
func hello(id, version, capabilities string) string {
	return body(id, "initialize", fmt.Sprintf(`{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":"raw","version":"1"}}`, version, capabilities))
}

const initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

// asSent takes out of a request that a server was told what the gateway has put
// into each tools/call of a client that asks for no progress: a token of its
// own, before all else in params or, where there is one, in their _meta. Every
// other byte stays. A call without it fails the test.
func asSent(t *testing.T, line string) string {
	t.Helper()
	m, err := jsonrpc.Parse([]byte(line))
	if err != nil {
		t.Fatalf("the server was told %q: %v", line, err)
	}
	if !m.Is("tools/call") {
		return line
	}
	token := `"progressToken":` + string(m.Raw(jsonrpc.MetaToken))
	for _, added := range []struct{ whole, object string }{
		{`{"_meta":{` + token + `}`, string(m.Raw(jsonrpc.Params))},
		{`{` + token, string(m.Raw(jsonrpc.Meta))},
	} {
		if rest, ok := strings.CutPrefix(added.object, added.whole); ok && (rest[0] == ',' || rest == "}") {
			return strings.Replace(line, added.object, "{"+strings.TrimPrefix(rest, ","), 1)
		}
	}
	t.Errorf("the server was not asked for progress: %s", line)
	return line
}
