package stdio

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"sync"
)

const (
	stderrRead = 4 << 10 // bytes of one read
	stderrLine = 4 << 10 // bytes of a line in the log; a longer one is logged in pieces
)

// stderrDrain reads a child's stderr to its end, whatever becomes of what it
// read: a child whose stderr is full stands still. The end of it is kept, the
// lines go to the log as far as that keeps up.
type stderrDrain struct {
	file  *os.File
	sink  *logSink
	ended chan struct{} // closed when drain returns

	mu   sync.Mutex // guards the fields below
	last tailBuffer
}

func startStderrDrain(file *os.File, keep int, sink *logSink) *stderrDrain {
	d := &stderrDrain{file: file, sink: sink, ended: make(chan struct{}), last: tailBuffer{max: keep}}
	go d.drain() // ends with the stream, at the latest in stop
	return d
}

// stop ends the reading, though somebody may still hold the other end.
func (d *stderrDrain) stop() {
	d.file.Close()
	<-d.ended
}

func (d *stderrDrain) tail() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last.String()
}

func (d *stderrDrain) drain() {
	defer close(d.ended)
	split := lineSplitter{max: stderrLine, emit: func(line string) {
		d.sink.add(slog.LevelInfo, "server stderr", slog.String("line", line))
	}}
	buf := make([]byte, stderrRead)
	for {
		n, err := d.file.Read(buf)
		if n > 0 {
			d.mu.Lock()
			d.last.add(buf[:n])
			d.mu.Unlock()
			split.add(buf[:n])
		}
		if err != nil {
			split.flush()
			return
		}
	}
}

// lineSplitter cuts a stream into lines of at most max bytes. The bytes it is
// given are not kept.
type lineSplitter struct {
	max  int
	emit func(line string)
	part []byte // the line that has no end yet
}

func (s *lineSplitter) add(b []byte) {
	for len(b) > 0 {
		room := min(len(b), s.max-len(s.part))
		if i := bytes.IndexByte(b[:room], '\n'); i >= 0 {
			s.part = append(s.part, b[:i]...)
			s.flush()
			b = b[i+1:]
			continue
		}
		s.part = append(s.part, b[:room]...)
		b = b[room:]
		if len(s.part) == s.max {
			s.flush()
		}
	}
}

// flush emits what there is of the current line; a blank one is not worth it.
func (s *lineSplitter) flush() {
	if line := strings.TrimRight(string(s.part), " \t\r"); line != "" {
		s.emit(line)
	}
	s.part = s.part[:0]
}

// tailBuffer keeps the last max bytes of what is added. It grows with its
// content: most servers write a line or none.
type tailBuffer struct {
	max int
	buf []byte
	cut bool // something was discarded
}

func (t *tailBuffer) add(b []byte) {
	if over := len(t.buf) + len(b) - t.max; over > 0 {
		t.cut = true
		fromBuf := min(over, len(t.buf))
		t.buf = append(t.buf[:0], t.buf[fromBuf:]...)
		b = b[over-fromBuf:]
	}
	t.buf = append(t.buf, b...)
}

// String is the content as valid UTF-8, with an ellipsis before it if
// something is missing there.
func (t *tailBuffer) String() string {
	s := strings.ToValidUTF8(string(t.buf), "\uFFFD")
	if t.cut {
		return "…" + strings.TrimLeft(s, "\uFFFD")
	}
	return s
}
