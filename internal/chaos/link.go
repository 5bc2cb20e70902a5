package chaos

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// Moment is when a fault happens.
type Moment uint8

// The moments.
const (
	Never        Moment = iota
	InRequest           // after so many bytes of the request
	AfterTime           // so long after it was armed
	BeforeAnswer        // the gateway has begun to write it
	InAnswer            // so many bytes of it have passed
	AfterAnswer         // all of it has passed
)

// Way is how a connection fails.
type Way uint8

// The ways.
const (
	Closed  Way = iota // FIN to both sides
	Reset              // RST to both sides
	Swallow            // half-open: what either side sends is taken and lost
)

// Fault is what a connection through the link suffers.
type Fault struct {
	When  Moment
	How   Way
	Bytes int           // for InRequest and InAnswer
	After time.Duration // for AfterTime
	Delay time.Duration // of each piece from the gateway, as long as the connection lives
	Wait  time.Duration // for Swallow: how long a client waits that gets no pings, or more than that
}

func (f Fault) halfOpen() bool { return f.When != Never && f.How >= Swallow }

func (f Fault) String() string {
	when := [...]string{"no fault", "in the request", "after a time", "before the answer", "in the answer", "after the answer"}[f.When]
	if f.When == Never && f.Delay > 0 {
		return "delayed by " + f.Delay.String()
	}
	if f.When == Never {
		return when
	}
	how := [...]string{"closed", "reset", "half-open"}[f.How]
	return fmt.Sprintf("%s %s (%d bytes, %v)", how, when, f.Bytes, f.After)
}

// Names of what a fault is counted as.
func (f Fault) kind() string {
	switch {
	case f.When == Never && f.Delay > 0:
		return "delayed"
	case f.When == Never:
		return "none"
	case f.How >= Swallow:
		return "half-open"
	}
	return [...]string{"", "in the request", "while running", "before the answer", "in the answer", "after the answer"}[f.When]
}

// link is a TCP proxy on loopback that fails as its connections are told. Safe
// for concurrent use.
type link struct {
	target   string
	patience time.Duration
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex             // guards the fields below
	awaits map[string]chan *wired // accepted or dialled, but not both yet; by the client's address
	all    map[*wired]bool
	closed bool
}

// newLink listens on a free port before target. patience is how long a client
// waits once two pings to it were lost. Close it.
func newLink(target string, patience time.Duration) (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("chaos: link: %w", err)
	}
	l := &link{target: target, patience: patience, listener: listener, awaits: map[string]chan *wired{}, all: map[*wired]bool{}}
	l.running.Go(l.accept) // ends with the listener
	return l, nil
}

func (l *link) addr() string { return l.listener.Addr().String() }

// close ends the link with all its connections, and waits for its goroutines.
func (l *link) close() {
	_ = l.listener.Close()
	l.mu.Lock()
	l.closed = true
	all := make([]*wired, 0, len(l.all))
	for w := range l.all {
		all = append(all, w)
	}
	for _, c := range l.awaits {
		close(c)
	}
	l.mu.Unlock()
	for _, w := range all {
		w.end(Closed)
	}
	l.running.Wait()
}

func (l *link) accept() {
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			return // closed
		}
		l.running.Go(func() { l.carry(conn.(*net.TCPConn)) }) // ends with the connection
	}
}

// meet is where who has dialled and who has accepted find each other.
func (l *link) meet(client string) (c chan *wired, open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, false
	}
	c = l.awaits[client]
	if c != nil {
		delete(l.awaits, client)
		return c, true
	}
	c = make(chan *wired, 1)
	l.awaits[client] = c
	return c, true
}

// dial makes a connection through the link.
func (l *link) dial(ctx context.Context, f Fault) (*wired, net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", l.addr())
	if err != nil {
		return nil, nil, fmt.Errorf("chaos: dial: %w", err)
	}
	p := &patient{Conn: conn}
	w := &wired{link: l, user: p, gone: make(chan struct{})}
	w.arm(f)
	c, open := l.meet(conn.LocalAddr().String())
	if !open {
		_ = conn.Close()
		return nil, nil, net.ErrClosed
	}
	c <- w // has room
	return w, p, nil
}

// patience without a fault is far more than a slow machine needs.
const longPatience = time.Minute

// patient is the client's end: it waits long, but not for ever.
type patient struct {
	net.Conn

	mu   sync.Mutex // guards the field below
	over bool
}

// Read implements net.Conn.
func (p *patient) Read(b []byte) (int, error) {
	p.mu.Lock()
	if !p.over {
		_ = p.SetReadDeadline(time.Now().Add(longPatience))
	}
	p.mu.Unlock()
	return p.Conn.Read(b)
}

// lose makes the client give the connection up.
func (p *patient) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	_ = p.SetReadDeadline(time.Unix(1, 0))
}

// carry is one connection.
func (l *link) carry(client *net.TCPConn) {
	c, open := l.meet(client.RemoteAddr().String())
	if !open {
		_ = client.Close()
		return
	}
	w := <-c
	server, err := net.DialTimeout("tcp", l.target, 10*time.Second)
	if w == nil || err != nil {
		_ = client.Close()
		return
	}
	w.client, w.server = client, server.(*net.TCPConn)
	l.mu.Lock()
	closed := l.closed
	l.all[w] = true
	l.mu.Unlock()
	var pumps sync.WaitGroup
	if !closed {
		w.begin()
		pumps.Go(w.up) // both end when either side is closed
		pumps.Go(w.down)
		pumps.Wait()
	}
	w.end(Closed)
	l.mu.Lock()
	delete(l.all, w)
	l.mu.Unlock()
}
