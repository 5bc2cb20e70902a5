package holdfast_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// A client without an SDK: one message a line to a server that is somewhere else.
func ExampleDial() {
	gw, err := holdfast.New(holdfast.Options{Server: holdfast.InProcess(greeter)})
	if err != nil {
		log.Fatal(err)
	}
	if err := gw.Start(context.Background()); err != nil {
		log.Fatal(err)
	}
	defer gw.Stop(context.Background())
	web := httptest.NewServer(gw) // in place of the network
	defer web.Close()

	conn, err := holdfast.Dial(context.Background(), holdfast.Options{Server: holdfast.Upstream(web.URL + "/mcp")})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	answers := bufio.NewScanner(conn)
	for _, message := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"example","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":"two","method":"tools/call","params":{"name":"greet"}}`,
	} {
		fmt.Fprintln(conn, message)
		if strings.Contains(message, `"id"`) && answers.Scan() {
			fmt.Println(answers.Text())
		}
	}
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"greeter","version":"1"}}}
	// {"jsonrpc":"2.0","id":"two","result":{"content":[{"type":"text","text":"Hello!"}]}}
}

// dialled is a Conn and what came over it.
type dialled struct {
	*holdfast.Conn
	t     *testing.T
	lines chan string // closed at the end of the connection
	end   error       // once lines is closed
}

func dial(t *testing.T, o holdfast.Options) *dialled {
	t.Helper()
	conn, err := holdfast.Dial(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	d := &dialled{Conn: conn, t: t, lines: make(chan string, 1000)}
	go func() { // ends with the connection
		defer close(d.lines)
		in := bufio.NewReader(conn)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				d.end = err
				return
			}
			d.lines <- line
		}
	}()
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		d.ends()
	})
	return d
}

func (d *dialled) send(line string) {
	d.t.Helper()
	if _, err := fmt.Fprintln(d, line); err != nil {
		d.t.Fatal(err)
	}
}

// answer waits for the answer to an id, as spelled.
func (d *dialled) answer(id string) string {
	d.t.Helper()
	limit := time.After(bound)
	for {
		select {
		case line, ok := <-d.lines:
			if !ok {
				d.t.Fatalf("the connection ended before the answer to %s: %v", id, d.end)
			}
			if strings.Contains(line, `"id":`+id+`,`) {
				return line
			}
		case <-limit:
			d.t.Fatalf("no answer to %s", id)
		}
	}
}

// ends waits for the end of the connection, whatever comes before.
func (d *dialled) ends() {
	d.t.Helper()
	limit := time.After(bound)
	for {
		select {
		case _, ok := <-d.lines:
			if !ok {
				return
			}
		case <-limit:
			d.t.Fatal("the connection has not ended")
		}
	}
}

func (d *dialled) handshake() {
	d.t.Helper()
	d.send(body("0", "initialize", `{"protocolVersion":"`+v11+`","capabilities":{},"clientInfo":{"name":"dial","version":"1"}}`))
	d.answer("0")
	d.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// goroutinesEnd fails the test if in the end more run than now. Tests with it
// are not parallel.
func goroutinesEnd(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		testkit.Eventually(t, bound, "goroutines as before", func() bool { return runtime.NumGoroutine() <= before })
	})
}

// A connection outlives the server's redeployment and a cut, in either era. Its
// bytes are the client's and the server's own.
func TestDial(t *testing.T) {
	goroutinesEnd(t)
	f := &farm{}
	d := deploy(t, f)
	p, err := testkit.NewCutProxy(d.address, testkit.CutOptions{Reset: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	for name, call := range map[string]func(id, tool, args string) string{
		"handshake": func(id, tool, args string) string { return toolCall(id, tool, args, "") },
		"stateless": func(id, tool, args string) string { return modernCall(id, tool, args, "") },
	} {
		t.Run(name, func(t *testing.T) {
			ran := f.executed()["sleep"]
			c := dial(t, upstreamOptions(p.URL("/mcp")))
			if name == "handshake" {
				c.handshake()
			}
			c.send(call(`"a<1>"`, "echo", `{"n":1.0,"s":"\u0041<"}`))
			if got := c.answer(`"a<1>"`); !strings.Contains(got, `{"n":1.0,"s":"\u0041<"}`) {
				t.Errorf("answered %s", got)
			}
			c.send(call("2", "sleep", `{"ms":60000}`))
			testkit.Eventually(t, bound, "the call at the server", func() bool { return f.executed()["sleep"] > ran })
			d.stop()
			if got := c.answer("2"); !strings.Contains(got, `"outcome":"unknown"`) {
				t.Errorf("the call in flight was answered %s", got)
			}
			p.CutAll()
			d.start()
			c.send(call("3", "echo", `{"n":-0}`))
			if got := c.answer("3"); !strings.Contains(got, `{"n":-0}`) {
				t.Errorf("the call after it was answered %s", got)
			}
			if n := f.executed()["sleep"] - ran; n != 1 {
				t.Errorf("executed %d times", n)
			}
		})
	}
}

// Close gives calls in flight up, ends all that runs, and may come twice.
func TestDialClose(t *testing.T) {
	goroutinesEnd(t)
	f := &farm{}
	d := deploy(t, f)
	c := dial(t, upstreamOptions(d.url("/mcp")))
	c.handshake()
	c.send(toolCall("1", "sleep", `{"ms":60000}`, ""))
	testkit.Eventually(t, bound, "the call at the server", func() bool { return f.executed()["sleep"] > 0 })
	begin := time.Now()
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("Close took %s", took)
	}
	c.ends()
	if !errors.Is(c.end, io.EOF) {
		t.Errorf("Read returned %v", c.end)
	}
	if _, err := c.Write([]byte("{}\n")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Write returned %v", err)
	}
}

// A server that comes back as another one ends the connection, and Read says so.
func TestDialServerIsAnother(t *testing.T) {
	goroutinesEnd(t)
	var another atomic.Bool
	f := &farm{methods: map[string]func(k *fake, m *jsonrpc.Message){"initialize": func(k *fake, m *jsonrpc.Message) {
		if !another.Load() {
			k.welcome(m)
			return
		}
		k.reply(string(m.Raw(jsonrpc.ID)), `{"protocolVersion":"`+v03+`","capabilities":{},"serverInfo":{"name":"another","version":"1"}}`)
	}}}
	d := deploy(t, f)
	c := dial(t, upstreamOptions(d.url("/mcp")))
	c.handshake()
	d.stop()
	another.Store(true)
	d.start()
	c.send(toolCall("1", "echo", `{}`, ""))
	if got := c.answer("1"); !strings.Contains(got, `"outcome":"not_executed"`) {
		t.Errorf("answered %s", got)
	}
	c.ends()
	if c.end == nil || errors.Is(c.end, io.EOF) {
		t.Errorf("Read returned %v", c.end)
	}
	if _, err := fmt.Fprintln(c, `{"jsonrpc":"2.0","id":2,"method":"ping"}`); err == nil {
		t.Error("Write still takes messages")
	}
}

// A server that is not there is said to be, by answers; one for which there is
// no address, by Dial.
func TestDialInVain(t *testing.T) {
	goroutinesEnd(t)
	web := httptest.NewServer(nil)
	defer web.Close()
	for url, want := range map[string]string{
		web.URL + "/none":      "HTTP 404",
		"http://127.0.0.1:1/x": "not_executed",
	} {
		o := upstreamOptions(url)
		o.Timers.ReconnectWait = 50 * time.Millisecond
		c := dial(t, o)
		c.send(body("0", "initialize", `{"protocolVersion":"`+v11+`","capabilities":{},"clientInfo":{"name":"dial","version":"1"}}`))
		if got := c.answer("0"); !strings.Contains(got, `"error"`) || !strings.Contains(got, want) {
			t.Errorf("%s: answered %s", url, got)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		ctx  context.Context
		o    holdfast.Options
		want error
	}{
		"no URL":      {t.Context(), upstreamOptions("example.org"), holdfast.ErrOptions},
		"two servers": {t.Context(), holdfast.Options{Servers: make([]holdfast.Server, 2)}, holdfast.ErrOptions},
		"too late":    {over, upstreamOptions(web.URL), context.Canceled},
	} {
		if _, err := holdfast.Dial(tt.ctx, tt.o); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
