package testkit

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// CutOptions is when a CutProxy cuts by itself. The zero value never does.
type CutOptions struct {
	Host        string        // the loopback address to listen on; default 127.0.0.1. Ports there are everybody's
	Idle        time.Duration // after this long without a byte from the server
	Age         time.Duration // after this long, whatever passes
	Reset       bool          // with a RST rather than a FIN
	HoldHeaders bool          // the head of a connection's first response goes on only with a byte of its body
}

// CutProxy stands on a loopback port between a client and a server and cuts
// their connections, both halves at once. It is safe for concurrent use.
type CutProxy struct {
	opts    CutOptions
	addr    string
	running sync.WaitGroup
	cuts    atomic.Int64

	mu       sync.Mutex   // guards the fields below
	listener net.Listener // nil while hidden
	target   string
	links    map[*link]struct{}
	stalled  chan struct{} // not nil while nothing passes; closed to go on
	refuse   bool
	closed   bool
}

// link is one connection from a client and the one to the server.
type link struct {
	proxy          *CutProxy
	client, server net.Conn
	idle, age      *time.Timer
	once           sync.Once
	done           chan struct{}
}

// NewCutProxy listens on a free port before target, an address host:port.
// Close it.
func NewCutProxy(target string, o CutOptions) (*CutProxy, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(cmp.Or(o.Host, "127.0.0.1"), "0"))
	if err != nil {
		return nil, fmt.Errorf("testkit: proxy: %w", err)
	}
	p := &CutProxy{opts: o, target: target, listener: l, addr: l.Addr().String(), links: map[*link]struct{}{}}
	p.running.Go(func() { p.accept(l) }) // ends with the listener
	return p, nil
}

// Addr is where the proxy listens.
func (p *CutProxy) Addr() string { return p.addr }

// URL is a path of the server through the proxy.
func (p *CutProxy) URL(path string) string { return "http://" + p.Addr() + path }

// Cuts is how many connections the proxy has cut.
func (p *CutProxy) Cuts() int { return int(p.cuts.Load()) }

// Conns is how many connections are open.
func (p *CutProxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// CutAll cuts every connection and returns how many there were.
func (p *CutProxy) CutAll() int {
	p.mu.Lock()
	links := maps.Clone(p.links)
	p.mu.Unlock()
	n := 0
	for l := range links {
		if l.cut() {
			n++
		}
	}
	return n
}

// Retarget has new connections go to another server.
func (p *CutProxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Hide stops listening, so that new connections are refused by the system. The
// port may be taken by somebody else meanwhile, unless CutOptions.Host is an
// address of the proxy's own.
func (p *CutProxy) Hide() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
}

// Show listens again after Hide, on the same port. The error is that of
// listening.
func (p *CutProxy) Show() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return fmt.Errorf("testkit: proxy: %w", err)
	}
	p.listener = l
	p.running.Go(func() { p.accept(l) }) // ends with the listener
	return nil
}

// Refuse makes the proxy close new connections at once, or take them again.
func (p *CutProxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// Stall makes all connections half-open, in that nothing passes and nothing
// is closed, or lets everything pass again.
func (p *CutProxy) Stall(stall bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case stall && p.stalled == nil:
		p.stalled = make(chan struct{})
	case !stall && p.stalled != nil:
		close(p.stalled)
		p.stalled = nil
	}
}

// Close ends the proxy and every connection, and waits for its goroutines.
func (p *CutProxy) Close() error {
	p.mu.Lock()
	p.closed = true
	links, l := maps.Clone(p.links), p.listener
	p.mu.Unlock()
	var err error
	if l != nil {
		err = l.Close()
	}
	for l := range links {
		l.end()
	}
	p.running.Wait()
	return err
}

func (p *CutProxy) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return // closed
		}
		p.running.Go(func() { p.serve(conn) }) // ends with the link
	}
}

func (p *CutProxy) serve(client net.Conn) {
	p.mu.Lock()
	target, refuse := p.target, p.refuse || p.closed
	p.mu.Unlock()
	if refuse {
		cut(client, true)
		return
	}
	server, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		cut(client, true)
		return
	}
	l := &link{proxy: p, client: client, server: server, done: make(chan struct{})}
	if !p.enter(l) {
		l.end()
		return
	}
	var pumps sync.WaitGroup
	pumps.Go(func() { l.pump(server, client, false) }) // both end when either side is closed
	pumps.Go(func() { l.pump(client, server, true) })
	pumps.Wait()
}

// enter starts the link's timers and lists it, unless the proxy is closed.
func (p *CutProxy) enter(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.links[l] = struct{}{}
	if p.opts.Idle > 0 {
		l.idle = time.AfterFunc(p.opts.Idle, func() { l.cut() })
	}
	if p.opts.Age > 0 {
		l.age = time.AfterFunc(p.opts.Age, func() { l.cut() })
	}
	return true
}

// pump copies until either side ends, and then ends the link.
func (l *link) pump(to, from net.Conn, fromServer bool) {
	defer l.end()
	buf := make([]byte, 32<<10)
	var held []byte
	holding := fromServer && l.proxy.opts.HoldHeaders
	for {
		n, err := from.Read(buf)
		if n > 0 && fromServer && l.idle != nil {
			l.idle.Reset(l.proxy.opts.Idle)
		}
		out := buf[:n]
		if holding {
			held = append(held, out...)
			if head := bytes.Index(held, []byte("\r\n\r\n")); head < 0 || head+4 == len(held) {
				out = nil
			} else {
				out, holding = held, false
			}
		}
		if !l.pass() {
			return
		}
		if len(out) > 0 {
			if _, err := to.Write(out); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits while the proxy is stalled. It reports false when the link ended.
func (l *link) pass() bool {
	l.proxy.mu.Lock()
	stalled := l.proxy.stalled
	l.proxy.mu.Unlock()
	if stalled == nil {
		return true
	}
	select {
	case <-stalled:
		return true
	case <-l.done:
		return false
	}
}

// cut is end by the proxy's own will. It reports whether there was a link.
func (l *link) cut() (first bool) {
	l.once.Do(func() {
		first = true
		l.proxy.cuts.Add(1) // before anybody can notice
		l.close()
	})
	return first
}

func (l *link) end() { l.once.Do(l.close) }

func (l *link) close() {
	close(l.done)
	l.proxy.mu.Lock()
	delete(l.proxy.links, l)
	for _, t := range []*time.Timer{l.idle, l.age} {
		if t != nil {
			t.Stop()
		}
	}
	l.proxy.mu.Unlock()
	cut(l.client, l.proxy.opts.Reset)
	cut(l.server, l.proxy.opts.Reset)
}
