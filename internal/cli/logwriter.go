package cli

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// logWriter writes log lines from a goroutine of its own, so that a stderr
// which nobody reads stops no call. Lines that do not fit in its queue are
// dropped, and counted. Safe for concurrent use.
type logWriter struct {
	w     io.Writer
	lines chan []byte
	done  chan struct{}

	mu      sync.Mutex // guards the fields below
	dropped int
	closed  bool
}

// logQueue is how many lines may wait.
const logQueue = 4096

func newLogWriter(w io.Writer) *logWriter {
	l := &logWriter{w: w, lines: make(chan []byte, logQueue), done: make(chan struct{})}
	go l.run() // ends with close
	return l
}

// Write implements io.Writer. It never blocks and never fails.
func (l *logWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return len(p), nil
	}
	select {
	case l.lines <- append([]byte(nil), p...):
	default:
		l.dropped++
	}
	return len(p), nil
}

func (l *logWriter) run() {
	defer close(l.done)
	for line := range l.lines {
		_, _ = l.w.Write(line)
		l.mu.Lock()
		n := l.dropped
		l.dropped = 0
		l.mu.Unlock()
		if n > 0 {
			_, _ = fmt.Fprintf(l.w, "level=WARN msg=\"log lines were dropped: nobody read stderr fast enough\" lines=%d\n", n)
		}
	}
}

// close writes what waits, for a moment.
func (l *logWriter) close() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.lines)
	}
	l.mu.Unlock()
	select {
	case <-l.done:
	case <-time.After(500 * time.Millisecond):
	}
}
