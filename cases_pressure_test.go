package holdfast_test

import (
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Cases of kind k: one client that does not read is that client's trouble.

// valve is a link whose client can stop reading.
type valve struct {
	mu   sync.Mutex // guards the field below
	shut chan struct{}
}

func (v *valve) close() { v.mu.Lock(); defer v.mu.Unlock(); v.shut = make(chan struct{}) }
func (v *valve) open()  { v.mu.Lock(); defer v.mu.Unlock(); close(v.shut); v.shut = nil }

func (v *valve) link(c net.Conn) net.Conn { return valveConn{c, v} }

type valveConn struct {
	net.Conn
	v *valve
}

func (c valveConn) Read(p []byte) (int, error) {
	c.v.mu.Lock()
	shut := c.v.shut
	c.v.mu.Unlock()
	if shut != nil {
		<-shut
	}
	return c.Conn.Read(p)
}

// flooding is a tool that sends so many updates of so many bytes each.
func flooding(n, size int) *farm {
	pad := strings.Repeat("p", size)
	return &farm{tools: map[string]func(*fakeCall){"flood": func(c *fakeCall) {
		for i := range n {
			if i == n/4 { // in the middle, where it would be the first to go
				c.reply(`"flooded"`)
			}
			c.k.line(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://flood","n":%d,"pad":%q}}`, i, pad))
		}
	}}}
}

// C63 over a network without any buffer, so that a reader who stops is felt at
// once. The server is shared: a queue in its way would stop everybody.
func TestC63ReaderThatStops(t *testing.T) {
	const many = 10_000 // more than is retained, by number and by bytes
	o := shared()
	o.Timers.WriteTimeout = time.Second
	for _, binding := range []string{"streamable", "sse"} {
		t.Run(binding, func(t *testing.T) {
			virtually(t, setup{options: o, farm: flooding(many, 1<<10)}, func(t *testing.T, b *bench) {
				var v valve
				other := b.streamable(v11)
				before := runtime.NumGoroutine()
				var slow *client
				var s *stream
				if binding == "sse" {
					slow = b.legacy(v2024, v.link)
					s = slow.main
				} else {
					slow = b.streamable(v11, v.link)
					s = slow.listen("/mcp", "")
				}
				slow.ask(body("1", "resources/subscribe", `{"uri":"x://flood"}`))
				v.close()
				slow.send(toolCall("2", "flood", `{}`, "")) // its answer must outlive what it floods
				begin := time.Now()
				for i := range 100 {
					other.ask(toolCall(fmt.Sprint(i), "echo", `{}`, ""))
				}
				if d := time.Since(begin); d > time.Second {
					t.Errorf("100 calls of the other client took %v", d)
				}
				<-time.After(5 * time.Second)
				v.open()
				s.done() // the gateway has given it up
				wantCaughtUp(t, b, slow, s, binding, many)
				slow.close()
				b.within(bound, "goroutines as before", func() bool { return runtime.NumGoroutine() <= before+3 })
			})
		})
	}
}

// wantCaughtUp comes back to a stream that was given up.
func wantCaughtUp(t *testing.T, b *bench, slow *client, s *stream, binding string, many int) {
	t.Helper()
	got := len(slow.find("resources/updated"))
	path := map[string]string{"streamable": "/mcp", "sse": "/sse"}[binding]
	again := slow.listen(path, s.position())
	if answer := slow.answer("2"); !strings.Contains(answer, "flooded") {
		t.Errorf("answered with %.200s", answer)
	}
	slow.await("no longer retained")
	last := fmt.Sprintf(`"n":%d,`, many-1)
	b.within(bound, "the newest update", func() bool { return len(slow.find(last)) == 1 })
	rest := len(slow.find("resources/updated")) - got
	if rest == 0 || rest > 4096 || got+rest >= many {
		t.Errorf("%d updates came before, %d afterwards", got, rest)
	}
	if loss := slow.find("no longer retained"); len(loss) != 1 || !strings.Contains(loss[0].raw, fmt.Sprint(many-got-rest, " messages")) {
		t.Errorf("told of the loss: %v, want %d messages", loss, many-got-rest)
	}
	again.cut()
}

// C63 with real sockets, whose buffers fill before anybody notices.
func TestC63SocketThatIsNotRead(t *testing.T) {
	o := shared()
	o.Timers.WriteTimeout = 500 * time.Millisecond
	really(t, setup{options: o, farm: flooding(2000, 10<<10)}, func(t *testing.T, b *bench) {
		other, slow := b.streamable(v11), b.streamable(v11)
		slow.ask(body("1", "resources/subscribe", `{"uri":"x://flood"}`))
		before := runtime.NumGoroutine()
		conn, err := net.Dial("tcp", b.g.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		_, err = fmt.Fprintf(conn, "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nMcp-Session-Id: %s\r\n\r\n", slow.header.Get("Mcp-Session-Id"))
		if err != nil {
			t.Fatal(err)
		}
		b.within(bound, "the stream", func() bool { return runtime.NumGoroutine() > before })
		flood := other.send(toolCall(`"flood"`, "flood", `{}`, ""))
		worst := time.Duration(0)
		for i := 0; len(b.log.lines("stream ended", "timeout")) == 0; i++ {
			begin := time.Now()
			if got := other.ask(toolCall(fmt.Sprint(i), "echo", `{}`, "")); !strings.Contains(got, "result") {
				t.Fatalf("answered with %s", got)
			}
			worst = max(worst, time.Since(begin))
			if time.Since(begin) > bound {
				t.Fatal("the stream is not given up")
			}
		}
		if worst > time.Second {
			t.Errorf("a call of the other client took %v", worst)
		}
		flood.done()
		b.within(bound, "goroutines as before", func() bool { return runtime.NumGoroutine() <= before+5 })
		s := slow.do(http.MethodGet, "/mcp", "").open() // the session lives
		if s.status != http.StatusOK {
			t.Errorf("answered with %d", s.status)
		}
		s.cut()
	})
}
