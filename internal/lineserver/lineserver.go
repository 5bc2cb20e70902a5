// Package lineserver is the JSON-RPC of the MCP servers that live in this
// program: one message a line, requests answered concurrently.
//
// It knows of MCP only what every server needs alike: that requests are
// cancelled by notifications/cancelled, and that lines hold whole messages.
package lineserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// DefaultMaxLine is the longest line, in bytes, that is read when Options
// leaves it open.
const DefaultMaxLine = 64 << 20

// queue is how many lines may wait for the writer before those who write wait.
const queue = 64

// ErrNoReply, returned by a request's work, leaves the request unanswered.
var ErrNoReply = errors.New("lineserver: no reply")

// errEnded is the cause of a connection whose Serve has returned.
var errEnded = errors.New("lineserver: connection ended")

// Message is a request or a notification as it was received. The parts are
// the bytes of the line, none of them decoded.
type Message struct {
	ID     json.RawMessage // nil for a notification
	Method string
	Params json.RawMessage // nil if there were none
}

// Options says what to do with what is read. Receive is required.
type Options struct {
	// Receive is called with each request and notification, one after the
	// other in the order of arrival, on the goroutine that reads: what waits
	// belongs into Conn.Go. A request that it neither answers nor hands to
	// Conn.Go stays without an answer.
	Receive func(*Conn, Message)
	// Invalid is called with each line that is not a JSON-RPC message, on the
	// same goroutine. By default such lines are dropped, as MCP has no
	// message to complain with.
	Invalid func(line []byte)
	// MaxLine is the longest line in bytes; a longer one is invalid and
	// passed on without its rest. Default DefaultMaxLine.
	MaxLine int
}

// Conn is one connection. It is safe for concurrent use.
type Conn struct {
	opts   Options
	ctx    context.Context // ends with the connection
	cancel context.CancelCauseFunc
	work   context.Context // ends with the input, before the output is closed
	out    chan item

	running sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	requests map[string]context.CancelFunc
	calls    map[string]chan<- response
	lastCall int64
}

// item is a line for the writer, or with a nil line a mark that is closed when
// all lines before it are written.
type item struct {
	line    []byte
	written chan<- struct{}
}

// Serve reads r to its end, ends the work in flight by its context, waits for
// it and returns nil. It returns earlier, with an error, when reading or
// writing fails, on Conn.Close and when ctx ends; r and w are then closed if
// they are io.Closers, as nothing else ends a blocked read or write.
func Serve(ctx context.Context, r io.Reader, w io.Writer, opts Options) error {
	if opts.MaxLine <= 0 {
		opts.MaxLine = DefaultMaxLine
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errEnded)
	defer context.AfterFunc(ctx, func() {
		closeIfCloser(r)
		closeIfCloser(w)
	})()
	work, endWork := context.WithCancel(ctx)
	defer endWork()
	c := &Conn{
		opts: opts, ctx: ctx, cancel: cancel, work: work,
		out:      make(chan item, queue),
		requests: map[string]context.CancelFunc{},
		calls:    map[string]chan<- response{},
	}
	noMore := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() { c.write(w, noMore) }) // ends by noMore or with ctx

	err := c.read(r)
	endWork()
	c.running.Wait()
	close(noMore)
	writer.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func closeIfCloser(v any) {
	if c, ok := v.(io.Closer); ok {
		_ = c.Close() // the connection is over either way
	}
}

// Context ends with the connection.
func (c *Conn) Context() context.Context { return c.ctx }

// Close ends the connection at once, unwritten lines are lost; Serve returns
// cause.
func (c *Conn) Close(cause error) { c.cancel(cause) }

func (c *Conn) read(r io.Reader) error {
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, whole, err := readLine(in, c.opts.MaxLine)
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if !whole || !c.receive(line) {
				if c.opts.Invalid != nil {
					c.opts.Invalid(line)
				}
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("lineserver: read: %w", err)
		}
	}
}

// readLine returns the next line, of one longer than limit only the start. The
// end of the input ends a line too.
func readLine(in *bufio.Reader, limit int) (line []byte, whole bool, err error) {
	whole = true
	for {
		part, err := in.ReadSlice('\n')
		keep := part[:min(len(part), limit+1-len(line))] // the line end does not count
		line = append(line, keep...)
		whole = whole && len(keep) == len(part)
		if err != bufio.ErrBufferFull {
			return line, whole, err
		}
	}
}

// receive handles one line and reports whether it was a message.
func (c *Conn) receive(line []byte) bool {
	// A map, because a struct would match keys of any case.
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) != nil || string(fields["jsonrpc"]) != `"2.0"` {
		return false
	}
	id, hasID := fields["id"]
	if string(id) == "null" {
		return false
	}
	raw, isCall := fields["method"]
	if !isCall {
		return hasID && c.deliver(string(id), response{fields["result"], fields["error"]})
	}
	m := Message{ID: id, Params: fields["params"]}
	if json.Unmarshal(raw, &m.Method) != nil || m.Method == "" {
		return false
	}
	if m.Method == "notifications/cancelled" && !hasID {
		c.cancelRequest(m.Params)
	}
	c.opts.Receive(c, m)
	return true
}

func (c *Conn) cancelRequest(params json.RawMessage) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(params, &fields) != nil {
		return
	}
	c.mu.Lock()
	cancel := c.requests[string(fields["requestId"])]
	c.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// Go answers the request m with what work returns; see Reply. It returns at
// once. The context of work ends when the client cancels the request and when
// the input ends. A request whose work then returns an error is not answered.
func (c *Conn) Go(m Message, work func(context.Context) (any, error)) {
	ctx, cancel := context.WithCancel(c.work)
	key := string(m.ID)
	c.mu.Lock()
	_, taken := c.requests[key]
	if !taken {
		c.requests[key] = cancel
	}
	c.mu.Unlock()
	if taken {
		cancel()
		_ = c.Reply(m, nil, &Error{Code: InvalidRequest, Message: "a request with this id is in flight"})
		return
	}
	c.running.Go(func() { // ends with work, which its context ends
		defer cancel()
		result, err := work(ctx)
		cancelled := err != nil && ctx.Err() != nil
		c.mu.Lock()
		delete(c.requests, key)
		c.mu.Unlock()
		if !cancelled {
			_ = c.Reply(m, result, err) // fails only with the connection
		}
	})
}

func (c *Conn) write(w io.Writer, noMore <-chan struct{}) {
	buffered := bufio.NewWriterSize(w, 64<<10)
	for {
		var next item
		select {
		case next = <-c.out:
		default:
			if err := buffered.Flush(); err != nil {
				c.cancel(fmt.Errorf("lineserver: write: %w", err))
				return
			}
			select {
			case next = <-c.out:
			case <-noMore:
				if len(c.out) == 0 {
					return
				}
				continue
			case <-c.ctx.Done():
				return
			}
		}
		if next.written != nil {
			if buffered.Flush() == nil { // its error stays and ends the loop above
				close(next.written)
			}
			continue
		}
		_, _ = buffered.Write(next.line)
	}
}

func (c *Conn) send(it item) error {
	select {
	case c.out <- it:
		return nil
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
}

// WriteLine writes line as it is, with a line end, whatever it holds. It waits
// while the peer does not read.
func (c *Conn) WriteLine(line []byte) error {
	return c.send(item{line: append(line[:len(line):len(line)], '\n')})
}

// Flush waits until all that was written before it has left.
func (c *Conn) Flush() error {
	written := make(chan struct{})
	if err := c.send(item{written: written}); err != nil {
		return err
	}
	select {
	case <-written:
		return nil
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
}
