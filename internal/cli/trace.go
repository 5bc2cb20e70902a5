package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// trace adds every message to a file, one JSON object a line, from a goroutine
// of its own. The zero pointer traces nothing. Safe for concurrent use.
type trace struct {
	file *os.File
	wake chan struct{}
	done chan struct{}

	mu      sync.Mutex // guards the fields below
	queue   [][]byte
	size    int
	dropped int
	closed  bool
}

// maxTraceQueue bounds the bytes that wait to be written; past it messages are
// left out, and counted.
const maxTraceQueue = 64 << 20

// openTrace returns nil without a path. Others cannot read the file: messages
// may hold secrets.
func openTrace(path string) (*trace, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	t := &trace{file: file, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go t.run() // ends with close
	return t, nil
}

// add takes a message, valid JSON or not.
func (t *trace) add(direction string, message []byte) {
	message = bytes.TrimSpace(message)
	if len(message) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	if t.size+len(message) > maxTraceQueue {
		t.dropped++
		return
	}
	head := fmt.Appendf(make([]byte, 0, len(message)+96), `{"time":%q,"direction":%q,`, time.Now().UTC().Format("2006-01-02T15:04:05.000Z"), direction)
	if json.Valid(message) {
		head = append(append(head, `"message":`...), message...)
	} else {
		text, _ := json.Marshal(string(message)) // a string always can be
		head = append(append(head, `"text":`...), text...)
	}
	head = append(head, '}', '\n')
	t.size += len(head)
	t.queue = append(t.queue, head)
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *trace) run() {
	defer close(t.done)
	for range t.wake {
		t.mu.Lock()
		lines, dropped, closed := t.queue, t.dropped, t.closed
		t.queue, t.size, t.dropped = nil, 0, 0
		t.mu.Unlock()
		if dropped > 0 {
			lines = append(lines, fmt.Appendf(nil, `{"time":%q,"dropped":%d}`+"\n", time.Now().UTC().Format(time.RFC3339), dropped))
		}
		_, _ = t.file.Write(bytes.Join(lines, nil))
		if closed {
			return
		}
	}
}

// close writes what waits.
func (t *trace) close() {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
	select {
	case <-t.done:
		_ = t.file.Close()
	case <-time.After(time.Second): // a file that takes no bytes
	}
}

// server returns what is told of messages to and from the server.
func (t *trace) server() func(toServer bool, message []byte) {
	if t == nil {
		return nil
	}
	return func(toServer bool, message []byte) {
		if toServer {
			t.add("to server", message)
		} else {
			t.add("from server", message)
		}
	}
}

// client returns the client's streams with the trace of what passes.
func (t *trace) client(in io.Reader, out io.Writer) (io.Reader, io.Writer) {
	if t == nil {
		return in, out
	}
	from := &tap{direction: "from client", trace: t}
	to := tappedWriter{out, &tap{direction: "to client", trace: t}}
	if c, ok := out.(syscall.Conn); ok {
		return io.TeeReader(in, from), tappedFile{to, c}
	}
	return io.TeeReader(in, from), to
}

// tap cuts what is written to it into messages.
type tap struct {
	direction string
	trace     *trace
	rest      []byte
}

// Write implements io.Writer. It never fails.
func (t *tap) Write(p []byte) (int, error) {
	n := len(p)
	for {
		line, rest, whole := bytes.Cut(p, []byte{'\n'})
		if len(t.rest)+len(line) <= maxTraceQueue { // no message is longer
			t.rest = append(t.rest, line...)
		}
		if !whole {
			return n, nil
		}
		t.trace.add(t.direction, t.rest)
		t.rest, p = t.rest[:0], rest
	}
}

type tappedWriter struct {
	io.Writer
	tap *tap
}

// Write implements io.Writer.
func (w tappedWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	_, _ = w.tap.Write(p[:n])
	return n, err
}

// tappedFile is a tappedWriter whose other end can be looked at.
type tappedFile struct {
	tappedWriter
	syscall.Conn
}
