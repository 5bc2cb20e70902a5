// Package pipe serves one client of the handshake era over a reader and a writer: MCP's stdio transport, seen from the server.
package pipe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-mcp/holdfast/eventlog"
	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/exchange"
	"github.com/holdfast-mcp/holdfast/internal/session"
	"github.com/holdfast-mcp/holdfast/internal/stdio"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Options of the binding. All fields are needed.
type Options struct {
	Host       *session.Host
	Stateless  *exchange.Host // serves messages of the stateless era, nil to refuse them
	MaxMessage int            // bytes of one line
	Drain      time.Duration  // how long calls in flight are waited for at the end of the input
	Log        *slog.Logger
}

// Serve takes messages from in and writes messages, and nothing else, to out,
// until in ends: then it waits for what is in flight, delivers it and returns
// nil. So it does when ctx is done, and returns its cause; it also returns when
// out fails.
func Serve(ctx context.Context, in io.Reader, out io.Writer, o Options) error {
	sess, err := o.Host.Open(true)
	if err != nil {
		return err
	}
	c := &client{sess: sess, o: o}
	c.inbox = exchange.Inbox{Host: o.Stateless, Principal: "stdio", Emit: func(msg []byte, final bool) { sess.General().Log().Append(msg, final) }}
	defer c.inbox.Close()
	conn := stdio.NewConn(in, out, stdio.ConnOptions{MaxMessage: o.MaxMessage}, c)
	giveUp := make(chan struct{})
	w := &lines{conn: conn, wake: make(chan struct{}, 1), done: giveUp}
	reader, err := sess.General().Read(w, 0, false)
	if err != nil {
		return err
	}
	delivered := make(chan error, 1)
	go func() { delivered <- reader.Run(encoder{}, session.Every(time.Hour), nil) }() // ends with the session, or with out
	unread := make(chan struct{})
	over := make(chan struct{})
	watching := make(chan struct{})
	go func() { defer close(watching); watchReader(out, unread, over) }() // ends with over
	defer func() { close(over); <-watching }()
	var cause error
	select {
	case <-unread: // it may still hold the input open, or somebody else does
		cause = errUnread
	case <-ctx.Done():
		cause = context.Cause(ctx)
		c.draining.Store(true)
		_ = c.settle(context.WithoutCancel(ctx), delivered)
	case err := <-conn.Ended(): // the client is done sending, not reading
		o.Log.Debug("input ended", "cause", err)
		cause = c.settle(ctx, delivered)
	case <-sess.Done():
		cause = sess.Err()
	case cause = <-delivered:
		delivered <- nil
	}
	o.Host.Sessions.End(sess, cmp.Or(cause, session.ErrDeleted))
	limit := time.AfterFunc(flushTime, func() { close(giveUp) })
	<-delivered
	limit.Stop()
	conn.Finish(flushTime)
	return cause
}

// errUnread ends a client that was killed: nobody is left to tell anything.
var errUnread = errors.New("pipe: nobody reads the output any more")

// watchReader closes unread once nobody reads what is written to out, where
// that can be told without writing. It returns then, and when over is closed.
func watchReader(out io.Writer, unread, over chan struct{}) {
	c, ok := out.(syscall.Conn)
	if !ok {
		return
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
			if stdio.HungUp(c) {
				close(unread)
				return
			}
		}
	}
}

// flushTime is how long the last messages may take to be written.
const flushTime = 2 * time.Second

// client takes the lines of the local client.
type client struct {
	sess     *session.Session
	o        Options
	inbox    exchange.Inbox
	draining atomic.Bool // calls in flight may end, no new ones begin
}

// settle waits for the calls in flight, no longer than the drain time, nor when
// nobody is left to hear the answers: then it returns what ended the delivery.
func (c *client) settle(ctx context.Context, delivered chan error) error {
	limit := time.NewTimer(c.o.Drain)
	defer limit.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for c.sess.InFlight()+c.inbox.InFlight() > 0 {
		select {
		case <-tick.C:
		case <-limit.C:
			return nil
		case <-ctx.Done():
			return nil
		case cause := <-delivered:
			delivered <- nil
			return cause
		}
	}
	return nil
}

// Line implements stdio.Handler.
func (c *client) Line(line []byte) {
	m, err := jsonrpc.Parse(line)
	switch {
	case errors.Is(err, jsonrpc.ErrBatch):
		c.batch(line)
	case err != nil:
		code := jsonrpc.CodeInvalidRequest
		if errors.Is(err, jsonrpc.ErrSyntax) {
			code = jsonrpc.CodeParse
		}
		c.refuse(m, code, err.Error())
	default:
		c.take(m)
	}
}

func (c *client) batch(line []byte) {
	each, err := jsonrpc.Split(line)
	if err != nil {
		c.refuse(nil, jsonrpc.CodeInvalidRequest, err.Error())
		return
	}
	v := c.sess.Version()
	if v.Batches() {
		for _, one := range each {
			c.Line(one)
		}
		return
	}
	// There is no status to refuse the whole line with, so each request in it
	// is told, lest its sender waits.
	text := fmt.Sprintf("a batch: only revision 2025-03-26 has batches, this session negotiated %q", v)
	told := false
	for _, one := range each {
		if m, err := jsonrpc.Parse(one); err == nil && m.Kind() == jsonrpc.Request {
			c.refuse(m, jsonrpc.CodeInvalidRequest, text)
			told = true
		}
	}
	if !told {
		c.refuse(nil, jsonrpc.CodeInvalidRequest, text)
	}
}

func (c *client) refuse(m *jsonrpc.Message, code int, text string) {
	var id []byte
	if m != nil {
		id = m.LegalID()
	}
	c.sess.General().Log().Append(jsonrpc.AppendError(nil, id, code, text, nil), true)
}

func (c *client) take(m *jsonrpc.Message) {
	if c.inbox.Host != nil && m.Is("notifications/cancelled") { // it need not say which era it is of
		c.inbox.Take(m)
	}
	if era.Of(m, "") == era.Stateless {
		switch {
		case c.inbox.Host != nil && c.draining.Load():
			c.refuse(m, session.CodeEnded, "the gateway is shutting down")
		case c.inbox.Host != nil:
			c.inbox.Take(m)
		case m.Kind() == jsonrpc.Request:
			c.refuse(m, era.StatelessRefusalCode, era.StatelessRefusal)
		}
		return
	}
	if m.Kind() == jsonrpc.Request && c.draining.Load() {
		c.refuse(m, session.CodeEnded, "the gateway is shutting down")
		return
	}
	if m.Kind() == jsonrpc.Request && m.Is("initialize") {
		if !c.sess.Begin() {
			c.refuse(m, jsonrpc.CodeInvalidRequest, "this session is initialized already")
			return
		}
		if err := c.o.Host.Connect(c.sess); err != nil {
			c.refuse(m, session.CodeEnded, err.Error())
			return
		}
	}
	c.sess.Take(c.sess.General(), m)
}

// Oversize implements stdio.Handler.
func (c *client) Oversize(head []byte, size int) {
	text := fmt.Sprintf("the message is %d bytes long, over the limit of %d (--max-body)", size, c.o.MaxMessage)
	id, response := jsonrpc.PeekID(head)
	if response {
		id = nil
	}
	c.sess.General().Log().Append(jsonrpc.AppendError(nil, id, jsonrpc.CodeInvalidRequest, text, nil), true)
}

// Closed implements stdio.Handler. The end of the input comes through Ended.
func (*client) Closed(error) {}

// lines is the output: one message a line, queued for the writer of the link.
type lines struct {
	conn *stdio.Conn
	wake chan struct{}
	done <-chan struct{}
}

// Write implements session.Output.
func (l *lines) Write(p []byte) error {
	for {
		err := l.conn.SendRaw(p[:max(0, len(p)-1)])
		if !errors.Is(err, stdio.ErrBusy) {
			return err
		}
		select { // the client does not read; the log holds what comes meanwhile
		case <-time.After(20 * time.Millisecond):
		case <-l.done:
			return err
		}
	}
}

// Wait implements session.Output.
func (l *lines) Wait(until time.Time) error {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-l.wake:
	case <-t.C:
	}
	return nil
}

// Wake implements session.Output.
func (l *lines) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// encoder writes a message and its newline. stdio has no heartbeat.
type encoder struct{}

// Event implements session.Encoder.
func (encoder) Event(dst []byte, _ *session.Stream, e eventlog.Event) []byte {
	return append(append(dst, e.Data...), '\n')
}

// Heartbeat implements session.Encoder.
func (encoder) Heartbeat(dst []byte) []byte { return dst }
