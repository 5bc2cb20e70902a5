package lineserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// echo answers x/ methods with their params and the others not at all.
func echo(c *Conn, m Message) {
	switch {
	case strings.HasPrefix(m.Method, "x/"):
		_ = c.Reply(m, m.Params, nil)
	case m.Method == "fail":
		_ = c.Reply(m, nil, errors.New("it is <broken>"))
	case m.Method == "refuse":
		_ = c.Reply(m, nil, &Error{Code: 7, Message: "no", Data: json.RawMessage(`{"n":1.0}`)})
	case m.Method == "struct":
		_ = c.Reply(m, struct{ A string }{"<&>"}, nil)
	case m.Method == "unencodable":
		_ = c.Reply(m, make(chan int), nil)
	}
}

func TestLines(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"bytes are kept", `{"jsonrpc":"2.0","id":"\u0041","method":"x/a","params":{"b":1.0, "a":9223372036854775807,"t":"<&>"}}` + "\n",
			`{"jsonrpc":"2.0","id":"\u0041","result":{"b":1.0, "a":9223372036854775807,"t":"<&>"}}` + "\n"},
		{"ids of every kind", strings.Join([]string{
			`{"jsonrpc":"2.0","id":0,"method":"x/","params":[]}`,
			`{"jsonrpc":"2.0","id":"","method":"x/","params":[]}`,
			`{"jsonrpc":"2.0","id":1e3,"method":"x/","params":[]}`}, "\n"),
			`{"jsonrpc":"2.0","id":0,"result":[]}` + "\n" +
				`{"jsonrpc":"2.0","id":"","result":[]}` + "\n" +
				`{"jsonrpc":"2.0","id":1e3,"result":[]}` + "\n"},
		{"CRLF and blank lines", "\r\n\n" + `{"jsonrpc":"2.0","id":1,"method":"x/","params":{}}` + "\r\n", `{"jsonrpc":"2.0","id":1,"result":{}}` + "\n"},
		{"error", `{"jsonrpc":"2.0","id":1,"method":"fail"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"it is <broken>"}}` + "\n"},
		{"error with data", `{"jsonrpc":"2.0","id":1,"method":"refuse"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":7,"message":"no","data":{"n":1.0}}}` + "\n"},
		{"encoded result", `{"jsonrpc":"2.0","id":1,"method":"struct"}`, `{"jsonrpc":"2.0","id":1,"result":{"A":"<&>"}}` + "\n"},
		{"result that cannot be encoded", `{"jsonrpc":"2.0","id":1,"method":"unencodable"}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"lineserver: encode: json: unsupported type: chan int"}}` + "\n"},
		{"notification", `{"jsonrpc":"2.0","method":"x/a","params":{}}`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := Serve(t.Context(), strings.NewReader(tt.in), &out, Options{Receive: echo}); err != nil {
				t.Fatal(err)
			}
			if out.String() != tt.want {
				t.Errorf("got  %s\nwant %s", out.String(), tt.want)
			}
		})
	}
}

func TestInvalidLines(t *testing.T) {
	const limit = 60
	long := `{"jsonrpc":"2.0","id":1,"method":"x/` + strings.Repeat("y", limit) + `"}`
	bad := []string{
		"text", "[]", "1", "{}", `{"jsonrpc":"1.0","id":1,"method":"x/"}`, `{"jsonrpc":"2.0","id":null,"method":"x/"}`,
		`{"jsonrpc":"2.0","id":1,"Method":"x/"}`, `{"jsonrpc":"2.0","id":1,"method":1}`, `{"jsonrpc":"2.0","id":1,"method":""}`,
		`{"jsonrpc":"2.0","id":5,"result":{}}`, long,
	}
	var got []string
	opts := Options{
		MaxLine: limit,
		Receive: func(_ *Conn, m Message) { t.Errorf("received %+v", m) },
		Invalid: func(line []byte) { got = append(got, string(line)) },
	}
	if err := Serve(t.Context(), strings.NewReader(strings.Join(bad, "\n")), io.Discard, opts); err != nil {
		t.Fatal(err)
	}
	bad[len(bad)-1] = long[:limit+1]
	if strings.Join(got, "\n") != strings.Join(bad, "\n") {
		t.Errorf("got %q\nwant %q", got, bad)
	}
}

// peer is the other end of a Serve that runs in the background.
type peer struct {
	t     *testing.T
	in    *io.PipeWriter
	out   *bufio.Reader
	ended chan error
}

func start(ctx context.Context, t *testing.T, opts Options) *peer {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p := &peer{t, inW, bufio.NewReader(outR), make(chan error, 1)}
	go func() { p.ended <- Serve(ctx, inR, outW, opts) }() // ends with in or ctx
	return p
}

func (p *peer) send(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Error(err)
	}
}

func (p *peer) want(line string) {
	p.t.Helper()
	got, err := p.out.ReadString('\n')
	if err != nil || got != line+"\n" {
		p.t.Errorf("got %q, %v; want %q", got, err, line)
	}
}

func (p *peer) close(want error) {
	p.t.Helper()
	_ = p.in.Close()
	if err := <-p.ended; !errors.Is(err, want) {
		p.t.Errorf("Serve returned %v, want %v", err, want)
	}
}

// slow answers "slow" after a second, and "stubborn" even when cancelled.
func slow(c *Conn, m Message) {
	switch m.Method {
	case "slow":
		c.Go(m, func(ctx context.Context) (any, error) {
			select {
			case <-time.After(time.Second):
				return "done", nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
	case "stubborn":
		c.Go(m, func(ctx context.Context) (any, error) {
			<-ctx.Done()
			return "late", nil
		})
	case "ping":
		_ = c.Reply(m, struct{}{}, nil)
	}
}

func TestRequestsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t.Context(), t, Options{Receive: slow})
		p.send(`{"jsonrpc":"2.0","id":1,"method":"slow"}`)
		p.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		p.want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		p.send(`{"jsonrpc":"2.0","id":1,"method":"slow"}`)
		p.want(`{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"a request with this id is in flight"}}`)
		p.want(`{"jsonrpc":"2.0","id":1,"result":"done"}`)
		p.send(`{"jsonrpc":"2.0","id":1,"method":"slow"}`)
		p.want(`{"jsonrpc":"2.0","id":1,"result":"done"}`)
		p.close(nil)
	})
}

func TestCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t.Context(), t, Options{Receive: slow})
		p.send(`{"jsonrpc":"2.0","id":1,"method":"slow"}`)
		p.send(`{"jsonrpc":"2.0","id":"1","method":"stubborn"}`)
		p.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		p.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		p.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1"}}`)
		p.want(`{"jsonrpc":"2.0","id":"1","result":"late"}`)
		time.Sleep(2 * time.Second)
		p.send(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
		p.want(`{"jsonrpc":"2.0","id":3,"result":{}}`)
		p.close(nil)
	})
}

func TestEndOfInputEndsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t.Context(), t, Options{Receive: slow})
		p.send(`{"jsonrpc":"2.0","id":1,"method":"slow"}`)
		p.send(`{"jsonrpc":"2.0","id":2,"method":"stubborn"}`)
		before := time.Now()
		_ = p.in.Close()
		p.want(`{"jsonrpc":"2.0","id":2,"result":"late"}`)
		p.close(nil)
		if waited := time.Since(before); waited > 0 {
			t.Errorf("ended only after %v", waited)
		}
	})
}

func TestEndOfContextAndClose(t *testing.T) {
	stopped := errors.New("stopped")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		p := start(ctx, t, Options{Receive: slow})
		cancel(stopped)
		p.close(stopped)

		p = start(t.Context(), t, Options{Receive: func(c *Conn, _ Message) {
			c.Close(stopped)
			if err := c.WriteLine(nil); !errors.Is(err, stopped) && err != nil {
				t.Errorf("write behind the end: %v", err)
			}
		}})
		p.send(`{"jsonrpc":"2.0","id":1,"method":"any"}`)
		p.close(stopped)
	})
}

// brokenWriter refuses every write.
type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestFailures(t *testing.T) {
	in, feed := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Serve(t.Context(), in, brokenWriter{}, Options{Receive: slow}) }() // ends by the write
	if _, err := io.WriteString(feed, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("write failure: %v", err)
	}
	broken := errors.New("broken")
	if err := Serve(t.Context(), iotest.ErrReader(broken), io.Discard, Options{}); !errors.Is(err, broken) {
		t.Errorf("read failure: %v", err)
	}
}

func TestCallAndNotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t.Context(), t, Options{Receive: func(c *Conn, m Message) {
			if m.ID == nil {
				return
			}
			c.Go(m, func(ctx context.Context) (any, error) {
				ctx, stop := context.WithTimeout(ctx, time.Second)
				defer stop()
				if err := c.Notify("note", nil); err != nil {
					return nil, err
				}
				return c.Call(ctx, "ask", map[string]int{"n": 1})
			})
		}})
		p.send(`{"jsonrpc":"2.0","id":1,"method":"any"}`)
		p.want(`{"jsonrpc":"2.0","method":"note"}`)
		p.want(`{"jsonrpc":"2.0","id":1,"method":"ask","params":{"n":1}}`)
		p.send(`{"jsonrpc":"2.0","id":1,"result":{"b":1.0, "a":2}}`)
		p.want(`{"jsonrpc":"2.0","id":1,"result":{"b":1.0, "a":2}}`)

		p.send(`{"jsonrpc":"2.0","id":1,"method":"any"}`)
		p.want(`{"jsonrpc":"2.0","method":"note"}`)
		p.want(`{"jsonrpc":"2.0","id":2,"method":"ask","params":{"n":1}}`)
		p.send(`{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":"no","data":[1.0]}}`)
		p.want(`{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no","data":[1.0]}}`)

		p.send(`{"jsonrpc":"2.0","id":1,"method":"any"}`)
		p.want(`{"jsonrpc":"2.0","method":"note"}`)
		p.want(`{"jsonrpc":"2.0","id":3,"method":"ask","params":{"n":1}}`)
		p.want(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3,"reason":"no longer needed"}}`)
		p.want(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"lineserver: ask: context deadline exceeded"}}`)
		p.close(nil)
	})
}

func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flushed := make(chan error, 1)
		p := start(t.Context(), t, Options{Receive: func(c *Conn, m Message) {
			_ = c.WriteLine([]byte("text"))
			flushed <- c.Flush()
		}})
		p.send(`{"jsonrpc":"2.0","method":"any"}`)
		synctest.Wait()
		if len(flushed) != 0 {
			t.Error("flushed before anybody read")
		}
		p.want("text")
		if err := <-flushed; err != nil {
			t.Error(err)
		}
		p.close(nil)
	})
}
