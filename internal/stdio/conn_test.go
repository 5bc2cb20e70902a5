package stdio

import (
	"bytes"
	"io"
	"runtime"
	"sync"
	"testing"
	"time"
)

// tally counts what is written to it, and how often.
type tally struct {
	mu     sync.Mutex
	writes int
	lines  int
	full   chan struct{} // closed at the line of that number
	at     int
}

func (w *tally) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes++
	before := w.lines
	w.lines += bytes.Count(p, []byte{'\n'})
	if before < w.at && w.lines >= w.at {
		close(w.full)
	}
	return len(p), nil
}

// deaf takes no lines.
type deaf struct{}

func (deaf) Line([]byte)          {}
func (deaf) Oversize([]byte, int) {}
func (deaf) Closed(error)         {}

// TestShortMessagesShareAWrite: those of several senders that are ready at once
// go out together, and all of them do.
func TestShortMessagesShareAWrite(t *testing.T) {
	const senders = 64
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that the senders are ready at once indeed
	r, end := io.Pipe()
	w := &tally{full: make(chan struct{}), at: senders}
	c := newConn(r, w, ConnOptions{}, deaf{})
	start := make(chan struct{})
	var sent sync.WaitGroup
	for range senders {
		sent.Go(func() {
			<-start
			if err := c.SendRaw([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	sent.Wait()
	select {
	case <-w.full:
	case <-time.After(10 * time.Second):
		t.Error("not all of it was written")
	}
	c.Finish(10 * time.Second)
	_ = end.Close()
	<-c.Ended()
	if w.writes > senders/4 {
		t.Errorf("%d messages took %d writes", senders, w.writes)
	}
}
