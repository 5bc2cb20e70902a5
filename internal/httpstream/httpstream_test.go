package httpstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/testkit"
)

const writeTimeout = 7 * time.Second

func options() *Options {
	return &Options{WriteTimeout: writeTimeout, Log: slog.New(slog.DiscardHandler)}
}

// serve answers one request with use, on a network in memory inside a bubble,
// and returns the client's end of the connection.
func serve(t *testing.T, takeOver bool, use func(Response)) net.Conn {
	t.Helper()
	l := testkit.NewMemListener()
	var streams sync.WaitGroup
	srv := &http.Server{WriteTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Mcp-Session-Id", "s1")
		out, err := Open(w, r, takeOver, options())
		if err != nil {
			t.Errorf("Open: %v", err)
			return
		}
		if Taken(out) != takeOver {
			t.Errorf("taken over: %v", Taken(out))
		}
		if !takeOver {
			use(out)
			return
		}
		streams.Go(func() { use(out) }) // ends with use
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(l) }() // ends with srv.Close
	conn, err := l.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		_ = srv.Close()
		<-served
		streams.Wait()
	})
	if _, err := io.WriteString(conn, "GET /mcp HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return conn
}

// both runs a test on a stream in net/http and on one that has left it.
func both(t *testing.T, test func(t *testing.T, takeOver bool)) {
	for name, takeOver := range map[string]bool{"plain": false, "taken over": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, takeOver) })
		})
	}
}

// read reads until the buffer ends with a suffix.
func read(t *testing.T, conn net.Conn, suffix string) string {
	t.Helper()
	var got []byte
	one := make([]byte, 1)
	for !bytes.HasSuffix(got, []byte(suffix)) {
		if _, err := conn.Read(one); err != nil {
			t.Fatalf("after %q: %v", got, err)
		}
		got = append(got, one[0])
	}
	return string(got)
}

func TestHeadersLeaveAtOnce(t *testing.T) {
	both(t, func(t *testing.T, takeOver bool) {
		begin, closed := time.Now(), make(chan struct{})
		conn := serve(t, takeOver, func(out Response) {
			defer out.Close()
			if err := out.Wait(time.Now().Add(time.Hour)); err != nil {
				t.Errorf("Wait: %v", err)
			}
			if err := out.Write([]byte("data: x\n\n")); err != nil {
				t.Errorf("Write: %v", err)
			}
			close(closed)
		})
		head := read(t, conn, "\r\n\r\n")
		if time.Since(begin) != 0 {
			t.Errorf("the head took %v", time.Since(begin))
		}
		for _, want := range []string{
			"HTTP/1.1 200 OK\r\n", "\r\nContent-Type: text/event-stream\r\n", "\r\nCache-Control: no-cache, no-transform\r\n",
			"\r\nX-Accel-Buffering: no\r\n", "\r\nTransfer-Encoding: chunked\r\n", "\r\nDate: ", "\r\nMcp-Session-Id: s1\r\n",
		} {
			if !strings.Contains(head, want) {
				t.Errorf("no %q in\n%s", want, head)
			}
		}
		if strings.Contains(head, "Content-Length") {
			t.Errorf("a stream with a length:\n%s", head)
		}
		// An hour later, although the server has a WriteTimeout of a second.
		if got := read(t, conn, "\r\n0\r\n\r\n"); got != "9\r\ndata: x\n\n\r\n0\r\n\r\n" || time.Since(begin) != time.Hour {
			t.Errorf("after %v: %q", time.Since(begin), got)
		}
		<-closed
	})
}

func TestWaitAndWake(t *testing.T) {
	both(t, func(t *testing.T, takeOver bool) {
		done := make(chan struct{})
		conn := serve(t, takeOver, func(out Response) {
			defer close(done)
			defer out.Close()
			wait := func(until, want time.Duration) {
				t.Helper()
				begin := time.Now()
				if err := out.Wait(begin.Add(until)); err != nil || time.Since(begin) != want {
					t.Errorf("Wait(%v): %v after %v, want %v", until, err, time.Since(begin), want)
				}
			}
			wait(time.Second, time.Second)
			time.AfterFunc(time.Second, out.Wake)
			wait(time.Minute, time.Second)
			out.Wake() // before the wait: it must not be lost
			wait(time.Minute, 0)
			wait(time.Second, time.Second) // and it counts once
			wait(-time.Second, 0)          // in the past
			for range 50 {
				out.Wake()
			}
			wait(time.Minute, 0)
			wait(time.Second, time.Second)
		})
		_ = read(t, conn, "\r\n\r\n")
		<-done
	})
}

// TestWakeIsNeverLost races wakes against the begin of a wait.
func TestWakeIsNeverLost(t *testing.T) {
	both(t, func(t *testing.T, takeOver bool) {
		done := make(chan struct{})
		var out Response
		var rung atomic.Int64
		ready, ring := make(chan struct{}), make(chan struct{})
		conn := serve(t, takeOver, func(o Response) {
			defer close(done)
			defer o.Close()
			out = o
			close(ready)
			for i := range int64(500) {
				ring <- struct{}{}
				begin := time.Now()
				for rung.Load() <= i {
					if err := o.Wait(begin.Add(time.Hour)); err != nil {
						t.Error(err)
						return
					}
				}
				if time.Since(begin) >= time.Hour {
					t.Errorf("wake %d was lost", i)
					return
				}
			}
		})
		_ = read(t, conn, "\r\n\r\n")
		<-ready
		for range 500 {
			<-ring
			rung.Add(1)
			out.Wake()
		}
		<-done
	})
}

func TestClientGoes(t *testing.T) {
	both(t, func(t *testing.T, takeOver bool) {
		begin, done := time.Now(), make(chan struct{})
		conn := serve(t, takeOver, func(out Response) {
			defer close(done)
			defer out.Close()
			if err := out.Wait(time.Now().Add(time.Hour)); !errors.Is(err, ErrGone) {
				t.Errorf("Wait: %v, want ErrGone", err)
			}
		})
		_ = read(t, conn, "\r\n\r\n")
		time.Sleep(time.Minute)
		_ = conn.Close()
		<-done
		if time.Since(begin) != time.Minute {
			t.Errorf("it took until %v to notice", time.Since(begin))
		}
	})
}

// TestClientThatDoesNotRead: each write has a deadline of its own, the first
// and one in the middle of a long event too.
func TestClientThatDoesNotRead(t *testing.T) {
	both(t, func(t *testing.T, takeOver bool) {
		done := make(chan struct{})
		conn := serve(t, takeOver, func(out Response) {
			defer close(done)
			defer out.Close()
			begin := time.Now()
			err := out.Write(make([]byte, 3*chunk))
			if !errors.Is(err, ErrGone) || time.Since(begin) != 5*time.Second+writeTimeout {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
		})
		_ = read(t, conn, "\r\n\r\n")
		time.Sleep(5 * time.Second) // slow, but within the deadline
		_, _ = io.CopyN(io.Discard, conn, chunk+100)
		<-done
	})
	for name, takeOver := range map[string]bool{"plain": false, "taken over": true} {
		t.Run("head, "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { headNobodyReads(t, takeOver) })
		})
	}
}

// headNobodyReads: the deadline is there before the first flush.
func headNobodyReads(t *testing.T, takeOver bool) {
	l := testkit.NewMemListener()
	opened := make(chan error, 1)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := Open(w, r, takeOver, options())
		opened <- err
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(l) }() // ends with srv.Close
	conn, err := l.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	_, _ = io.WriteString(conn, "GET /mcp HTTP/1.1\r\nHost: x\r\n\r\n")
	if err := <-opened; !errors.Is(err, ErrGone) || time.Since(begin) != writeTimeout {
		t.Errorf("after %v: %v", time.Since(begin), err)
	}
	_ = conn.Close()
	_ = srv.Close()
	<-served
}

// TestDataOnAnOpenStream: pipelining is not meant for a stream that goes on;
// what was taken over cannot be given back.
func TestDataOnAnOpenStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		conn := serve(t, true, func(out Response) {
			defer close(done)
			defer out.Close()
			if err := out.Wait(time.Now().Add(time.Hour)); !errors.Is(err, ErrGone) {
				t.Errorf("Wait: %v, want ErrGone", err)
			}
		})
		_ = read(t, conn, "\r\n\r\n")
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\n")
		<-done
	})
}

// bare has no Flusher, as a careless middleware makes it.
type bare struct{ http.ResponseWriter }

// wrapped has none either, but leads to one.
type wrapped struct{ bare }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// TestNoFlush: C05. Nothing was sent, so that the handler can say so.
func TestNoFlush(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, takeOver := range []bool{true, false} {
		rec := httptest.NewRecorder()
		if _, err := Open(bare{rec}, r, takeOver, options()); !errors.Is(err, ErrNoFlush) || rec.Flushed || rec.Body.Len() > 0 {
			t.Errorf("hidden: %v, flushed %v", err, rec.Flushed)
		}
		rec = httptest.NewRecorder()
		if _, err := Open(wrapped{bare{rec}}, r, takeOver, options()); err != nil || !rec.Flushed {
			t.Errorf("unwrapped: %v, flushed %v", err, rec.Flushed)
		}
	}
}

// TestNoDeadlines: a writer without them still streams, and the log says once
// what that means.
func TestNoDeadlines(t *testing.T) {
	var log bytes.Buffer
	o := &Options{WriteTimeout: writeTimeout, Log: slog.New(slog.NewTextHandler(&log, nil))}
	ctx, cancel := context.WithCancel(t.Context())
	for range 3 {
		rec := httptest.NewRecorder()
		out, err := Open(rec, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx), true, o)
		if err != nil {
			t.Fatal(err)
		}
		big := bytes.Repeat([]byte("x"), 2*chunk+5)
		if err := out.Write(big); err != nil || !bytes.Equal(rec.Body.Bytes(), big) {
			t.Errorf("%v, %d bytes", err, rec.Body.Len())
		}
		out.Close()
	}
	if n := strings.Count(log.String(), "write deadlines cannot be set"); n != 1 {
		t.Errorf("said %d times:\n%s", n, &log)
	}
	cancel()
}
