// Package httpstream is one long-lived event stream as an HTTP response.
//
// Every write has a deadline of its own, no deadline ends a live stream, and
// where it can, an idle stream leaves net/http: the connection is taken over
// and its buffers and goroutines are given back.
package httpstream

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Errors of a stream. Match with errors.Is.
var (
	// ErrGone: the client has closed the connection.
	ErrGone = errors.New("httpstream: the client has gone")
	// ErrNoFlush: a wrapper around the ResponseWriter hides http.Flusher, so
	// that nothing could be sent before the response ends.
	ErrNoFlush = errors.New("httpstream: the response cannot be flushed: a middleware around the handler hides http.Flusher; " +
		"give its ResponseWriter an Unwrap method")
)

// Options of streams.
type Options struct {
	WriteTimeout time.Duration // for each write of up to 64 KiB
	Log          *slog.Logger
	noDeadline   sync.Once
}

// chunk is how much one write, with one deadline, carries.
const chunk = 64 << 10

// Response is an open event stream. All methods but Wake are for one goroutine.
type Response interface {
	Write(p []byte) error
	Wait(until time.Time) error
	Wake()
	// Close ends the response in order.
	Close()
}

// SetHeaders sets what every event stream must say. Proxies buffer, cache and
// compress what they are not told to leave alone (2026-07-28 basic/transports,
// "Receiving Messages").
func SetHeaders(h http.Header) {
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	h.Del("Content-Length")
}

// Open sends the headers of an event stream and returns it. takeOver says that
// the stream will mostly be idle, so that the connection is worth taking from
// net/http. Nothing was sent if it fails with ErrNoFlush.
func Open(w http.ResponseWriter, r *http.Request, takeOver bool, o *Options) (Response, error) {
	SetHeaders(w.Header())
	rc := http.NewResponseController(w)
	if takeOver && r.ProtoMajor == 1 && r.ProtoMinor == 1 && r.TLS == nil {
		if conn, buffered, err := rc.Hijack(); err == nil {
			return openTaken(conn, buffered, w.Header(), o)
		}
	}
	p := &plain{w: w, rc: rc, r: r, o: o, wake: make(chan struct{}, 1)}
	if !canFlush(w) {
		return nil, ErrNoFlush
	}
	p.deadline()
	w.WriteHeader(http.StatusOK)
	if err := rc.Flush(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrGone, err)
	}
	return p, nil
}

// canFlush looks for a Flusher without sending anything.
func canFlush(w http.ResponseWriter) bool {
	for {
		switch v := w.(type) {
		case http.Flusher, interface{ FlushError() error }:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = v.Unwrap()
		default:
			return false
		}
	}
}

// plain writes through net/http.
type plain struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	r    *http.Request
	o    *Options
	wake chan struct{}
}

// deadline sets the time for the next write. It also takes the place of a
// WriteTimeout that the server may have set for the whole response.
func (p *plain) deadline() {
	if err := p.rc.SetWriteDeadline(time.Now().Add(p.o.WriteTimeout)); err != nil {
		p.o.noDeadline.Do(func() {
			p.o.Log.Warn("write deadlines cannot be set: a middleware hides the connection; a stalled client holds its goroutine, "+
				"and a WriteTimeout of the server ends long streams", "cause", err)
		})
	}
}

func (p *plain) Write(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), chunk)
		p.deadline()
		_, err := p.w.Write(b[:n])
		if err == nil {
			err = p.rc.Flush()
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrGone, err)
		}
		b = b[n:]
	}
	return nil
}

func (p *plain) Wait(until time.Time) error {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-p.wake:
		return nil
	case <-t.C:
		return nil
	case <-p.r.Context().Done():
		return ErrGone
	}
}

func (p *plain) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Close lifts the deadline: the connection may carry other requests.
func (p *plain) Close() { _ = p.rc.SetWriteDeadline(time.Time{}) }

// taken writes to a connection of its own, in chunks of HTTP/1.1. It has one
// goroutine, which rests in Read: that shows at once when the client goes, and
// moving the read deadline wakes it.
type taken struct {
	conn  net.Conn
	o     *Options
	woken atomic.Bool
	head  [16]byte
}

// past is a deadline that ends a Read at once.
var past = time.Unix(1, 0)

func openTaken(conn net.Conn, buffered *bufio.ReadWriter, h http.Header, o *Options) (Response, error) {
	if inner, ok := conn.(interface{ NetConn() net.Conn }); ok { // which writes several buffers at once
		conn = inner.NetConn()
	}
	t := &taken{conn: conn, o: o}
	_ = conn.SetDeadline(time.Time{})
	h.Set("Transfer-Encoding", "chunked")
	h.Set("Connection", "close")
	h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	_ = conn.SetWriteDeadline(time.Now().Add(o.WriteTimeout))
	buffered.Writer.Reset(conn)
	_, _ = buffered.WriteString("HTTP/1.1 200 OK\r\n")
	_ = h.Write(buffered)
	_, _ = buffered.WriteString("\r\n")
	if err := buffered.Flush(); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%w: %w", ErrGone, err)
	}
	return t, nil
}

func (t *taken) Write(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), chunk)
		head := append(strconv.AppendInt(t.head[:0], int64(n), 16), '\r', '\n')
		_ = t.conn.SetWriteDeadline(time.Now().Add(t.o.WriteTimeout))
		bufs := net.Buffers{head, b[:n], crlf}
		if _, err := bufs.WriteTo(t.conn); err != nil {
			return fmt.Errorf("%w: %w", ErrGone, err)
		}
		b = b[n:]
	}
	return nil
}

var crlf = []byte("\r\n")

func (t *taken) Wait(until time.Time) error {
	_ = t.conn.SetReadDeadline(until)
	if t.woken.Swap(false) { // before the deadline was moved to until
		return nil
	}
	var one [1]byte
	n, err := t.conn.Read(one[:])
	t.woken.Store(false)
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		return nil
	}
	if err == nil && n > 0 { // a client must not send another request before the response is over
		err = errors.New("the client sent data on an open event stream")
	}
	return fmt.Errorf("%w: %w", ErrGone, err)
}

func (t *taken) Wake() {
	t.woken.Store(true)
	_ = t.conn.SetReadDeadline(past)
}

func (t *taken) Close() {
	_ = t.conn.SetWriteDeadline(time.Now().Add(t.o.WriteTimeout))
	_, _ = t.conn.Write([]byte("0\r\n\r\n"))
	_ = t.conn.Close()
}

// Taken reports whether the stream has left net/http: its handler may return.
func Taken(r Response) bool {
	_, ok := r.(*taken)
	return ok
}
