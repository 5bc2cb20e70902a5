package showcase

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// writeTimeout is for each write to a peer that does not read.
const writeTimeout = 10 * time.Second

// link is a TCP proxy on loopback. Once armed, it cuts all that passes through
// it again and again. It is safe for concurrent use.
type link struct {
	target   string
	every    time.Duration
	random   *rand.Rand // of cutting alone
	listener net.Listener
	running  sync.WaitGroup
	armed    chan struct{}
	stopped  chan struct{}

	mu     sync.Mutex // guards the fields below
	ready  bool       // armed is closed
	closed bool
	pairs  map[pair]struct{}
	cuts   int
}

// pair is a connection from the client and the one to the server.
type pair struct{ client, server *net.TCPConn }

// newLink listens on a free port before target. Close it.
func newLink(target string, every time.Duration, seed uint64) (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("showcase: link: %w", err)
	}
	l := &link{
		target: target, every: every, random: rand.New(rand.NewPCG(seed, 0)), listener: listener,
		armed: make(chan struct{}), stopped: make(chan struct{}), pairs: map[pair]struct{}{},
	}
	l.running.Go(l.accept) // ends with the listener
	l.running.Go(l.cutter) // ends with stopped
	return l, nil
}

func (l *link) addr() string { return l.listener.Addr().String() }

// arm lets the cuts begin, the first one after the time between two.
func (l *link) arm() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ready {
		l.ready = true
		close(l.armed)
	}
}

// count returns how many times a connection, or several at once, were cut.
func (l *link) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cuts
}

// close ends the link with all its connections, and waits for its goroutines.
func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	close(l.stopped)
	_ = l.listener.Close()
	for _, p := range l.all() {
		p.close()
	}
	l.running.Wait()
}

func (l *link) all() []pair {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]pair, 0, len(l.pairs))
	for p := range l.pairs {
		all = append(all, p)
	}
	return all
}

// cutter cuts at about each multiple of the time between cuts, so that late
// cuts do not add up. Some are polite and some are not.
func (l *link) cutter() {
	select {
	case <-l.armed:
	case <-l.stopped:
		return
	}
	begin := time.Now()
	for n := 1; ; n++ {
		jitter := time.Duration((l.random.Float64() - 0.5) * float64(l.every) / 5)
		reset := l.random.IntN(2) == 0
		next := time.NewTimer(time.Until(begin.Add(time.Duration(n)*l.every + jitter)))
		select {
		case <-next.C:
			l.cut(reset)
		case <-l.stopped:
			next.Stop()
			return
		}
	}
}

// cut counts before it cuts: whoever sees the cut finds it counted.
func (l *link) cut(reset bool) {
	all := l.all()
	if len(all) == 0 {
		return
	}
	l.mu.Lock()
	l.cuts++
	l.mu.Unlock()
	for _, p := range all {
		if reset { // RST instead of FIN, and what is on its way is lost
			_ = p.client.SetLinger(0)
			_ = p.server.SetLinger(0)
		}
		p.close()
	}
}

func (p pair) close() {
	_ = p.client.Close()
	_ = p.server.Close()
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

// carry is one connection.
func (l *link) carry(client *net.TCPConn) {
	conn, err := net.DialTimeout("tcp", l.target, writeTimeout)
	if err != nil {
		_ = client.Close()
		return
	}
	p := pair{client, conn.(*net.TCPConn)}
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.pairs[p] = struct{}{}
	}
	l.mu.Unlock()
	var pumps sync.WaitGroup
	if !closed {
		pumps.Go(func() { pump(p, p.server, p.client) }) // both end when either side is closed
		pumps.Go(func() { pump(p, p.client, p.server) })
		pumps.Wait()
	}
	p.close()
	l.mu.Lock()
	delete(l.pairs, p)
	l.mu.Unlock()
}

// pump copies one way, and ends both when it cannot go on.
func pump(p pair, to, from net.Conn) {
	defer p.close()
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			_ = to.SetWriteDeadline(time.Now().Add(writeTimeout))
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
