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

// traced notes whether a request may have left. net/http takes another
// connection only if nothing was written to the one before, so what counts is
// whether the last one that it asked for was had.
func traced(ctx context.Context, reached *atomic.Bool, wrote func()) context.Context {
	var once sync.Once
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { reached.Store(false) },
		GotConn: func(info httptrace.GotConnInfo) {
			reached.Store(true)
			if info.Reused {
				suspect(info.Conn)
			}
		},
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
	limit time.Duration
	look  atomic.Bool // before the next write, whether the server has closed it
}

// errStale is what the first write of a request says on a connection that the
// server has closed. Nothing was written, so net/http takes another one.
var errStale = errors.New("httpclient: the connection was closed while it was not in use")

// suspect makes the next write on a pooled connection look first: net/http
// notices an end only when its reading goroutine comes to run.
func suspect(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		if secure.ConnectionState().NegotiatedProtocol == "h2" {
			return // shared: others read from it
		}
		conn = secure.NetConn()
	}
	if b, ok := conn.(*boundedConn); ok {
		b.look.Store(true)
	}
}

// chunk is how much one deadline is for.
const chunk = 64 << 10

// Write implements net.Conn.
func (c *boundedConn) Write(p []byte) (int, error) {
	if c.look.Swap(false) && stale(c.Conn) {
		return 0, errStale
	}
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
