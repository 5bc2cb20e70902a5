package httpclient

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

func equalFold(a, b string) bool { return strings.EqualFold(a, b) }

// trip is a request on its way.
type trip struct {
	mu     sync.Mutex // guards the fields below
	had    bool       // a connection
	reused bool
	conn   *boundedConn // nil: another kind, or one that others use, too
	writes uint32       // of conn, before
}

// sent reports whether the request may have left. net/http takes another
// connection only if nothing was written to the one before, so what counts is
// the last one that it asked for. pooled says that this one had been used before.
func (t *trip) sent() (sent, pooled bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.had && (t.conn == nil || t.conn.writes.Load() != t.writes), t.reused
}

func (t *trip) got(info httptrace.GotConnInfo) {
	conn := plain(info.Conn)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.had, t.reused, t.conn = true, info.Reused, conn
	if conn != nil {
		t.writes = conn.writes.Load()
		conn.look.Store(info.Reused)
	}
}

func (t *trip) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.had, t.reused, t.conn = false, false, nil
}

// traced has net/http tell the trip what it does.
func traced(ctx context.Context, t *trip, wrote func()) context.Context {
	var once sync.Once
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { t.forget() },
		GotConn: t.got,
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if wrote != nil && info.Err == nil {
				once.Do(wrote)
			}
		},
	})
}

// dial opens a connection whose writes are bounded in time.
func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.ConnectTimeout)
	defer cancel()
	conn, err := c.o.Dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &boundedConn{Conn: conn, limit: c.o.WriteTimeout}, nil
}

// boundedConn gives each write a deadline: net/http has none for a client.
type boundedConn struct {
	net.Conn
	limit  time.Duration
	look   atomic.Bool   // before the next write, whether the server has closed it
	writes atomic.Uint32 // that were tried
}

// errStale is what the first write of a request says on a connection that the
// server has closed. Nothing was written, so net/http takes another one.
var errStale = errors.New("httpclient: the connection was closed while it was not in use")

// plain returns what is under a connection that one request at a time has, else
// nil.
func plain(conn net.Conn) *boundedConn {
	if secure, ok := conn.(*tls.Conn); ok {
		if secure.ConnectionState().NegotiatedProtocol == "h2" {
			return nil
		}
		conn = secure.NetConn()
	}
	b, _ := conn.(*boundedConn)
	return b
}

// chunk is how much one deadline is for.
const chunk = 64 << 10

// Write implements net.Conn. The first one of a request on a pooled connection
// looks whether the server has closed it: net/http notices that only when its
// reading goroutine comes to run.
func (c *boundedConn) Write(p []byte) (int, error) {
	if c.look.Swap(false) && stale(c.Conn) {
		return 0, errStale
	}
	c.writes.Add(1)
	n := 0
	for n < len(p) {
		if err := c.SetWriteDeadline(time.Now().Add(c.limit)); err != nil {
			return n, err
		}
		m, err := c.Conn.Write(p[n:min(len(p), n+chunk)])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
