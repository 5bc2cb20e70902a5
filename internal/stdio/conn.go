package stdio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Errors of Conn.Send. Match with errors.Is. Either way nothing of the message
// was written.
var (
	// ErrClosed: the connection has ended, or is about to.
	ErrClosed = errors.New("stdio: connection closed")
	// ErrBusy: the peer does not read, and what waits for it is at its bound.
	ErrBusy = errors.New("stdio: peer does not read its input")
)

// Handler takes what the peer writes. Its methods are called from one
// goroutine, never at the same time, and must not block for long: nothing more
// is read meanwhile.
type Handler interface {
	// Line takes one line without its end, valid until it returns.
	Line(line []byte)
	// Oversize tells of a line that was longer than the limit, and was
	// skipped: its beginning, and how long it was in bytes.
	Oversize(head []byte, size int)
	// Closed is called once, last, with the reason.
	Closed(err error)
}

// ConnOptions are the bounds of a connection.
type ConnOptions struct {
	MaxMessage int // bytes of one line; 0: 16 MiB
	MaxQueue   int // bytes that may wait to be written; 0: 4 times MaxMessage
}

func (o ConnOptions) withDefaults() ConnOptions {
	if o.MaxMessage == 0 {
		o.MaxMessage = 16 << 20
	}
	if o.MaxQueue == 0 {
		o.MaxQueue = 4 * o.MaxMessage
	}
	return o
}

// Conn frames messages by line over a reader and a writer, as MCP's stdio
// transport does (2025-11-25 basic/transports, "stdio"). What is sent is queued
// and written by one goroutine, in order, as much at a time as there is. Such a
// write has no deadline, since half a message cannot be taken back: a peer that
// does not read fills the bounded queue, and then Send says so.
type Conn struct {
	r    io.Reader
	w    io.Writer
	opts ConnOptions

	mu      sync.Mutex // guards the fields below
	pending []byte
	queued  int    // messages in pending
	spare   []byte // the writer's other buffer
	err     error  // why nothing can be sent any more
	closing bool   // no more sends, but what is pending goes out

	signal  chan struct{} // pending has something, or err is set
	readEnd chan error    // what ended the reading; capacity 1
	written chan error    // what ended the writing; capacity 1
}

// NewConn frames a reader and a writer without owning what is behind them:
// h.Closed is not called. Ended tells of the reader's end, after which sending
// goes on, and Finish ends the writing.
func NewConn(r io.Reader, w io.Writer, opts ConnOptions, h Handler) *Conn {
	return newConn(r, w, opts, h)
}

// Ended receives once why the reading ended.
func (c *Conn) Ended() <-chan error { return c.readEnd }

// Finish sends no more. It returns once what was sent before is written, or
// cannot be, or limit is over.
func (c *Conn) Finish(limit time.Duration) {
	c.shut(ErrClosed, true)
	select {
	case err := <-c.written:
		c.written <- err
	case <-time.After(limit):
	}
}

// newConn starts the reading and writing goroutines. The reader's ends with
// the reader, the writer's with a failed write or with shut.
func newConn(r io.Reader, w io.Writer, opts ConnOptions, h Handler) *Conn {
	c := &Conn{
		r: r, w: w, opts: opts.withDefaults(),
		signal:  make(chan struct{}, 1),
		readEnd: make(chan error, 1),
		written: make(chan error, 1),
	}
	go func() { c.readEnd <- c.read(h) }()
	go func() { c.written <- c.write() }()
	return c
}

// Send queues the message with the edits made. Safe for concurrent use. It
// does not block, and does not keep the message.
func (c *Conn) Send(m *jsonrpc.Message, edits ...jsonrpc.Edit) error {
	c.mu.Lock()
	if err := c.roomLocked(m.Len(edits...)); err != nil {
		c.mu.Unlock()
		return err
	}
	c.pending = append(m.Append(c.pending, edits...), '\n')
	c.queued++
	c.mu.Unlock()
	c.wake()
	return nil
}

// SendRaw queues a message that is on one line already.
func (c *Conn) SendRaw(line []byte) error {
	c.mu.Lock()
	if err := c.roomLocked(len(line)); err != nil {
		c.mu.Unlock()
		return err
	}
	c.pending = append(append(c.pending, line...), '\n')
	c.queued++
	c.mu.Unlock()
	c.wake()
	return nil
}

func (c *Conn) roomLocked(n int) error {
	switch {
	case c.err != nil:
		return c.err
	case c.closing:
		return ErrClosed
	case len(c.pending) > 0 && len(c.pending)+n > c.opts.MaxQueue:
		return ErrBusy
	}
	return nil
}

func (c *Conn) wake() {
	select {
	case c.signal <- struct{}{}:
	default:
	}
}

// shut ends the writing: at once, or after what is pending.
func (c *Conn) shut(err error, flush bool) {
	c.mu.Lock()
	if c.closing = true; !flush && c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	c.wake()
}

// keepBuffer is the size up to which a buffer is kept for the next message.
const keepBuffer = 1 << 20

func (c *Conn) write() error {
	var g gathering
	for {
		c.mu.Lock()
		out, n, err, closing := c.pending, c.queued, c.err, c.closing
		if len(out) > 0 {
			c.pending, c.queued, c.spare = c.spare[:0], 0, nil
		}
		c.mu.Unlock()
		switch {
		case err != nil:
			return err
		case len(out) > 0:
			if _, err := c.w.Write(out); err != nil {
				err = fmt.Errorf("%w: %w", ErrClosed, err)
				c.shut(err, false)
				return err
			}
			g.wrote(n, len(out))
			c.mu.Lock()
			if cap(out) <= keepBuffer {
				c.spare = out[:0]
			}
			c.mu.Unlock()
		case closing:
			return ErrClosed
		default:
			<-c.signal
			if g.pays() {
				runtime.Gosched() // those go first who are ready to send, too
			}
		}
	}
}

// headBytes is how much of an oversize line is shown to the handler.
const headBytes = 4 << 10

// deliver hands over a line that is not empty.
func (c *Conn) deliver(h Handler, line []byte) {
	if line = bytes.TrimSuffix(line, []byte{'\r'}); len(line) > 0 {
		h.Line(line)
	}
}

// firstBuffer is what reading starts with; it grows with the longest line.
const firstBuffer = 64 << 10

// read hands lines to h until the reader ends.
func (c *Conn) read(h Handler) error {
	buf := make([]byte, firstBuffer)
	start, scanned, end := 0, 0, 0 // buf[start:end] is unhandled, buf[start:scanned] without newline
	skipped := 0                   // bytes of an oversize line already given up
	var head []byte
	for {
		if nl := bytes.IndexByte(buf[scanned:end], '\n'); nl >= 0 {
			line := buf[start : scanned+nl]
			start, scanned = scanned+nl+1, scanned+nl+1
			switch {
			case skipped > 0:
				h.Oversize(head, skipped+len(line))
				skipped, head = 0, nil
			case len(line) > c.opts.MaxMessage:
				h.Oversize(line[:min(len(line), headBytes)], len(line))
			default:
				c.deliver(h, line)
			}
			continue
		}
		scanned = end
		switch {
		case end-start > c.opts.MaxMessage || skipped > 0:
			if skipped == 0 {
				head = bytes.Clone(buf[start:min(end, start+headBytes)])
			}
			skipped += end - start
			start, scanned, end = 0, 0, 0
		case start == end:
			start, scanned, end = 0, 0, 0
		case end == len(buf) && start > 0:
			end = copy(buf, buf[start:end])
			start, scanned = 0, end
		}
		if end == 0 && len(buf) > keepBuffer {
			buf = make([]byte, firstBuffer)
		}
		if end == len(buf) {
			buf = append(buf, make([]byte, len(buf))...)
		}
		n, err := c.r.Read(buf[end:])
		end += n
		if err != nil {
			return c.last(h, buf[start:end], skipped, err)
		}
	}
}

// last handles what stood after the last newline.
func (c *Conn) last(h Handler, rest []byte, skipped int, err error) error {
	for line := range bytes.SplitSeq(rest, []byte{'\n'}) {
		if len(line) <= c.opts.MaxMessage && skipped == 0 {
			c.deliver(h, line)
		}
		skipped = 0
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: the peer closed its output", ErrClosed)
	}
	return fmt.Errorf("%w: %w", ErrClosed, err)
}
