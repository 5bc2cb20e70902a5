package holdfast

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Conn is one client's way to one MCP server: JSON-RPC messages, one a line, as
// on stdio (2025-11-25 basic/transports, "stdio"). It speaks the client's own
// revision, whatever the server's. Connections and sessions that the server
// loses are replaced behind it; a request that may have been executed is never
// sent again, and what then became of it stands in data.outcome of the error
// that answers it. Safe for concurrent use.
type Conn struct {
	toServer   *io.PipeWriter
	fromServer *io.PipeReader
	done       chan struct{} // all has ended
}

// Dial returns a connection to the one server of the options, Upstream as a rule.
// It is what the command holdfast connect does, for a client in this process. Of
// the options those that are about listening, paths and draining are not used.
//
// Nothing is sent before the first Write, so a server that cannot be reached is
// no error here: requests wait for it for Timers.ReconnectWait, and are then
// answered with an error. To know it sooner, ask Server.Reach. ctx bounds Dial,
// not the connection, which is to be ended by Close. The error wraps ErrOptions
// where the options are at fault.
func Dial(ctx context.Context, o Options) (*Conn, error) {
	if len(o.Servers) > 1 {
		return nil, fmt.Errorf("%w: a connection is to one server, not to %d", ErrOptions, len(o.Servers))
	}
	s := o.Server
	if len(o.Servers) == 1 {
		s = o.Servers[0]
	}
	if s.Warm == 0 {
		s.Warm = -1 // there is one client
	}
	o.Servers, o.Listen = []Server{s}, ""
	o.Timers.Drain = -1 // nobody reads answers after Close
	g, err := New(o)
	if err != nil {
		return nil, err
	}
	if err = context.Cause(ctx); err == nil {
		err = g.Start(ctx)
	}
	if err != nil {
		_ = g.Stop(context.Background())
		return nil, err
	}
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	c := &Conn{toServer: toServer, fromServer: fromServer, done: make(chan struct{})}
	go func() { // ends with Close, or when the server is lost for good
		defer close(c.done)
		err := g.ServePipe(context.Background(), in, out)
		_ = in.CloseWithError(errOver)
		_ = out.CloseWithError(err)
		_ = g.Stop(context.Background())
	}()
	return c, nil
}

// errOver is what Write returns once the connection has ended by itself.
var errOver = errors.New("holdfast: the connection has ended")

// Read reads what the server says: whole messages, each with its newline, that
// may take several calls. It returns io.EOF after Close, and what happened if
// the server was lost for good.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.fromServer.Read(p)
	if errors.Is(err, io.ErrClosedPipe) { // by Close
		err = io.EOF
	}
	return n, err
}

// Write sends messages, one a line. It takes what it is given and does not wait
// for the server. Several goroutines may write at once if each writes whole
// lines. After Close it returns io.ErrClosedPipe.
func (c *Conn) Write(p []byte) (int, error) { return c.toServer.Write(p) }

// Close ends the connection and all that runs for it, and returns once that is
// done, within a few seconds. Calls in flight are given up: the server is told
// so where it can be reached. Idempotent; the error is always nil.
func (c *Conn) Close() error {
	_ = c.fromServer.Close()
	_ = c.toServer.Close()
	<-c.done
	return nil
}
