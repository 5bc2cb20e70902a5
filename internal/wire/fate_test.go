package wire

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestFate: the next request on a connection shows that the answer before it
// arrived, and so does an orderly end; a reset shows that it did not.
func TestFate(t *testing.T) {
	for name, tt := range map[string]struct {
		then func(t *testing.T, c *net.TCPConn)
		want bool
	}{
		"the next request": {func(t *testing.T, c *net.TCPConn) {
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
		}, true},
		"an orderly end": {func(_ *testing.T, c *net.TCPConn) { _ = c.Close() }, true},
		"a reset":        {func(_ *testing.T, c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			told := make(chan bool, 4)
			srv := &http.Server{ConnContext: WithFate, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				FateOf(r.Context()).Heard()
				FateOf(r.Context()).Await(tell(func(arrived bool) { told <- arrived }))
			})}
			served := make(chan struct{})
			go func() { defer close(served); _ = srv.Serve(Fateful(l)) }() // ends with srv.Close
			defer func() { _ = srv.Close(); <-served }()
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := conn.Read(make([]byte, 4096)); err != nil {
				t.Fatal(err)
			}
			select {
			case arrived := <-told:
				t.Fatalf("told %v before anything was known", arrived)
			default:
			}
			tt.then(t, conn.(*net.TCPConn))
			select {
			case arrived := <-told:
				if arrived != tt.want {
					t.Errorf("arrived %v, want %v", arrived, tt.want)
				}
			case <-time.After(10 * time.Second):
				t.Error("never told")
			}
		})
	}
}

// TestNoFate: where nothing is known of the connection, written is arrived.
func TestNoFate(t *testing.T) {
	arrived := false
	f := FateOf(context.Background())
	f.Heard()
	f.Await(tell(func(a bool) { arrived = a }))
	if !arrived {
		t.Error("not told")
	}
}

// tell is a function that is told.
type tell func(arrived bool)

func (f tell) Arrived(ok bool) { f(ok) }
