package wire

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// Fate is what becomes of the last answer that was written to one connection:
// that it was written says little of whether it arrived. The next request on the
// connection shows that it did, and a reset at once that it did not. Safe for
// concurrent use.
type Fate struct {
	mu   sync.Mutex // guards the fields below
	told Told
	at   time.Time // when the answer was written
}

// lossTime is how long after an answer a reset shows that it was lost. Later ones
// say nothing: some clients end idle connections so.
const lossTime = time.Second

// Told is told what became of an answer.
type Told interface {
	// Arrived is called once. It must not block.
	Arrived(ok bool)
}

// Await tells, once it is known, what became of an answer that was written just
// now. A nil Fate knows nothing: then written counts as arrived.
func (f *Fate) Await(told Told) {
	if f == nil {
		told.Arrived(true)
		return
	}
	f.mu.Lock()
	before := f.told
	f.told, f.at = told, time.Now()
	f.mu.Unlock()
	if before != nil {
		before.Arrived(true)
	}
}

// settle tells who waits.
func (f *Fate) settle(arrived bool) {
	f.mu.Lock()
	told := f.told
	f.told = nil
	arrived = arrived || time.Since(f.at) > lossTime
	f.mu.Unlock()
	if told != nil {
		told.Arrived(arrived)
	}
}

// fateKey is the context key of a connection's Fate.
type fateKey struct{}

// WithFate is the ConnContext of a server on a listener made by Fateful.
func WithFate(ctx context.Context, c net.Conn) context.Context {
	if f, ok := c.(*fateful); ok {
		return context.WithValue(ctx, fateKey{}, &f.fate)
	}
	return ctx
}

// FateOf returns the Fate of a request's connection, nil if it is not known.
// That the request came shows that what was answered before has arrived.
func FateOf(ctx context.Context) *Fate {
	f, _ := ctx.Value(fateKey{}).(*Fate)
	return f
}

// Heard says that the client was heard on the connection.
func (f *Fate) Heard() {
	if f != nil {
		f.settle(true)
	}
}

// Fateful returns l with connections that have a Fate.
func Fateful(l net.Listener) net.Listener { return fatefulListener{l} }

type fatefulListener struct{ net.Listener }

func (l fatefulListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	f := &fateful{Conn: c}
	f.reads.set, f.writes.set = c.SetReadDeadline, c.SetWriteDeadline
	return f, nil
}

type fateful struct {
	net.Conn
	fate          Fate
	reads, writes deadline
}

// NetConn returns the connection itself.
func (c *fateful) NetConn() net.Conn { return c.Conn }

// Read implements net.Conn.
func (c *fateful) Read(p []byte) (int, error) {
	if err := c.reads.begin(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	c.reads.end()
	if errors.Is(err, syscall.ECONNRESET) {
		c.fate.settle(false)
	}
	return n, err
}

// Write implements net.Conn.
func (c *fateful) Write(p []byte) (int, error) {
	if err := c.writes.begin(); err != nil {
		return 0, err
	}
	defer c.writes.end()
	return c.Conn.Write(p)
}

// CloseWrite ends what is written, where the connection can do that by itself:
// net/http does so where it leaves what a client sends unread.
func (c *fateful) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// SetDeadline implements net.Conn.
func (c *fateful) SetDeadline(t time.Time) error {
	return errors.Join(c.reads.want(t), c.writes.want(t))
}

// SetReadDeadline implements net.Conn.
func (c *fateful) SetReadDeadline(t time.Time) error { return c.reads.want(t) }

// SetWriteDeadline implements net.Conn.
func (c *fateful) SetWriteDeadline(t time.Time) error { return c.writes.want(t) }

// Close implements net.Conn.
func (c *fateful) Close() error {
	c.fate.settle(true)
	return c.Conn.Close()
}
