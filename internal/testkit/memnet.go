package testkit

import (
	"context"
	"net"
	"sync"
)

// memAddr is a loopback address that nothing listens on, for code that looks
// at addresses.
func memAddr(port int) net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port} }

// MemListener is a network in memory, of one listener. As it is made of
// net.Pipe, it has no buffers, and it works inside a synctest bubble, in which
// it must then be made. It is safe for concurrent use.
type MemListener struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

// NewMemListener returns a listener that only Dial connects to.
func NewMemListener() *MemListener {
	l := &MemListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	return l
}

// Accept waits for a Dial. After Close it returns net.ErrClosed.
func (l *MemListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: "mem", Addr: l.Addr(), Err: net.ErrClosed}
	}
}

// Close stops the listener, not the connections it has made.
func (l *MemListener) Close() error {
	l.close()
	return nil
}

// Addr is 127.0.0.1:80.
func (l *MemListener) Addr() net.Addr { return memAddr(80) }

// URL is where the listener would be reached, with the given path.
func (l *MemListener) URL(path string) string { return "http://127.0.0.1:80" + path }

// Dial connects to the listener, whatever the address. It is a DialFunc.
func (l *MemListener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- &memConn{server, memAddr(80), memAddr(50000)}:
		return &memConn{client, memAddr(50000), memAddr(80)}, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: "mem", Addr: l.Addr(), Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: "mem", Addr: l.Addr(), Err: context.Cause(ctx)}
	}
}

// memConn is one end of a pipe, with addresses.
type memConn struct {
	net.Conn
	local, remote net.Addr
}

func (c *memConn) LocalAddr() net.Addr  { return c.local }
func (c *memConn) RemoteAddr() net.Addr { return c.remote }
