package chaos

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const request = "POST / HTTP/1.1\r\n\r\nplease\n"

// answering is a server that answers each connection's request with an event
// stream, and tells what it was sent.
func answering(t *testing.T, after time.Duration) (addr string, got func() []string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // guards all
	var all []string
	var running sync.WaitGroup
	running.Go(func() { // ends with the listener
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { // ends with the connection
				defer func() { _ = conn.Close() }()
				in := bufio.NewReader(conn)
				var text strings.Builder
				for !strings.HasSuffix(text.String(), "please\n") {
					line, err := in.ReadString('\n')
					text.WriteString(line)
					if err != nil {
						break
					}
				}
				mu.Lock()
				all = append(all, text.String())
				mu.Unlock()
				_, _ = io.WriteString(conn, head)
				if pause(t.Context(), after) {
					_, _ = io.WriteString(conn, asEvent[len(head):])
				}
				_, _ = io.Copy(io.Discard, in)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); running.Wait() })
	return l.Addr().String(), func() []string { mu.Lock(); defer mu.Unlock(); return all }
}

// TestLink: each fault does what it says, to both sides.
func TestLink(t *testing.T) {
	whole := strings.TrimSuffix(asEvent, "\r\n")
	for _, tt := range []struct {
		what  string
		fault Fault
		ok    func(got string) bool
		cause error // nil: any
	}{
		{"before", Fault{When: BeforeAnswer}, func(got string) bool { return strings.HasPrefix(got, head) && !strings.Contains(got, "answer") }, io.EOF},
		{"in", Fault{When: InAnswer, Bytes: 3}, func(got string) bool { return strings.HasSuffix(got, `"answer n1.`) }, io.EOF},
		{"in its last byte", Fault{When: InAnswer, Bytes: 1 << 20}, func(got string) bool { return got == whole[:len(whole)-1] }, io.EOF},
		{"after", Fault{When: AfterAnswer}, func(got string) bool { return got == whole }, io.EOF},
		{"reset", Fault{When: AfterTime, How: Reset, After: time.Millisecond}, func(got string) bool { return !strings.Contains(got, "answer") }, syscall.ECONNRESET},
		{"half-open", Fault{When: AfterTime, How: Swallow, After: time.Millisecond, Wait: 100 * time.Millisecond},
			func(got string) bool { return !strings.Contains(got, "answer") }, os.ErrDeadlineExceeded},
	} {
		t.Run(tt.what, func(t *testing.T) {
			addr, _ := answering(t, 20*time.Millisecond)
			l, err := newLink(addr, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer l.close()
			w, conn, err := l.dial(t.Context(), tt.fault)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, request); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(conn)
			if err == nil {
				err = io.EOF
			}
			if !tt.ok(string(got)) || !errors.Is(err, tt.cause) {
				t.Errorf("%q, %v", got, err)
			}
			if _, fired := w.when(); !fired || w.answered() != (tt.fault.When == AfterAnswer) {
				t.Errorf("fired: %v, answered: %v", fired, w.answered())
			}
		})
	}
}

// TestLinkCutsRequests: what is cut in the request arrives in part.
func TestLinkCutsRequests(t *testing.T) {
	addr, got := answering(t, 0)
	l, err := newLink(addr, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	_, conn, err := l.dial(t.Context(), Fault{When: InRequest, Bytes: 7})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, request)
	if b, _ := io.ReadAll(conn); len(b) > 0 {
		t.Errorf("answered %q", b)
	}
	for deadline := time.Now().Add(5 * time.Second); len(got()) == 0 && time.Now().Before(deadline); {
		pause(t.Context(), time.Millisecond)
	}
	if all := got(); len(all) != 1 || all[0] != request[:7] {
		t.Errorf("the server got %q", all)
	}
}
