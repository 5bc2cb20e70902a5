// Package remote is the way to one MCP server over HTTP, as good as a pipe: it outlives connections, streams and sessions.
//
// Messages go down in the order in which they are given as far as that matters,
// and come up like the lines of a child process. Every request is answered
// once: by the server, or by an error that says whether it may have been
// executed. Nothing that may have been executed is sent again.
package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/era/stateless"
	"github.com/holdfast-mcp/holdfast/internal/era/streamable"
	"github.com/holdfast-mcp/holdfast/internal/httpclient"
	"github.com/holdfast-mcp/holdfast/internal/stdio"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Errors of a link. Match with errors.Is. Send also returns what wraps
// stdio.ErrBusy and stdio.ErrClosed, as other links do.
var (
	// ErrRefused: the server has ended the session and refuses a new one.
	ErrRefused = errors.New("remote: the server refuses a new session")
	// ErrChanged: the new session promises less than the one before, or is of
	// another revision.
	ErrChanged = errors.New("remote: the server is not the one that it was")
)

// Options of a link. Zero fields mean the default.
type Options struct {
	URL string // of the MCP endpoint, or of an HTTP+SSE stream
	// Header is read for each request: nil for none.
	Header func() http.Header
	TLS    *tls.Config // nil: the system's roots; see httpclient.LoadCA
	// Proxy and DialContext: see httpclient.Options.
	Proxy       func(*http.Request) (*url.URL, error)
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
	Memory      *Memory // what was found out about servers; nil: the link's own
	MaxMessage  int     // bytes of a message from the server, decoded. Default: 16 MiB
	MaxQueue    int     // bytes that may wait to be taken by the server. Default: 4 times MaxMessage
	// ConnectTimeout bounds a connection's opening, and HTTP+SSE's endpoint
	// event. Default: 10 s.
	ConnectTimeout time.Duration
	// PostTimeout bounds what has no answer of its own: notifications, answers
	// to the server. Default: 30 s.
	PostTimeout time.Duration
	// ReconnectWait is how long a message waits for a server that cannot be
	// reached, and a call for its lost stream. Default: 30 s.
	ReconnectWait time.Duration
	// IdleTimeout ends a stream without a byte, if nothing is lost by that: it
	// can be resumed, or the server is one that keeps its streams alive. Default:
	// 5 min.
	IdleTimeout time.Duration
	// RetryMin and RetryMax bound the wait before a stream is opened again,
	// whatever the server asks for; a longer wait that it asks for is kept.
	// Default: 250 ms, 30 s.
	RetryMin, RetryMax time.Duration
	StopTimeout        time.Duration // for the session's DELETE. Default: 2 s
	Version            string        // of this software, for User-Agent
	Log                *slog.Logger  // nil: nothing is logged
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.ConnectTimeout, 10 * time.Second}, {&o.PostTimeout, 30 * time.Second}, {&o.ReconnectWait, 30 * time.Second},
		{&o.IdleTimeout, 5 * time.Minute}, {&o.RetryMin, 250 * time.Millisecond}, {&o.RetryMax, 30 * time.Second},
		{&o.StopTimeout, 2 * time.Second},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if o.MaxMessage <= 0 {
		o.MaxMessage = 16 << 20
	}
	if o.MaxQueue <= 0 {
		o.MaxQueue = 4 * o.MaxMessage
	}
	if o.Memory == nil {
		o.Memory = &Memory{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	return o
}

// Renewer is a stdio.Handler that wants to know when the server has been given
// a new session in place of one that it lost: what the old one had been told of
// log levels and subscriptions is gone. Called like the handler's methods.
type Renewer interface{ Renewed() }

// Link is one server behind a URL. It implements conversation.Link, and is safe
// for concurrent use.
type Link struct {
	o      Options
	url    *url.URL
	name   string // the URL for people
	log    *slog.Logger
	client *httpclient.Client
	mirror stateless.Mirror

	ctx    context.Context // of all that runs
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup // all goroutines
	last   sync.WaitGroup // the one that tells of the end
	stop   sync.Once
	queued chan struct{} // the queue has something

	up up

	reached atomic.Int64 // when the server was first sent something, in nanoseconds since 1970; 0: not yet

	mu       sync.Mutex // guards the fields below
	err      error      // why nothing is taken any more
	queue    []*message
	waiting  int                 // bytes of messages that the server has not taken
	pending  map[string]*message // requests without an answer, by id as spelled
	errands  int                 // notifications and answers that are not delivered
	flushed  chan struct{}       // closed once there are none; nil while nobody waits
	session  *session            // of Streamable HTTP; nil before initialize is answered
	events   *eventStream        // of HTTP+SSE; nil if the server speaks another transport
	noStream bool                // the server has no stream for what belongs to no request
	flight   *flight             // the renewal of the session that is under way
	hello    []byte              // the latest initialize that was answered with a result
	promise  []byte              // that result
	greeted  []byte              // the latest notifications/initialized
	modern   era.Version         // the latest stateless revision that was spoken
	ownCount int                 // requests of the link's own
}

// Dial returns a link to the server at o.URL, whose messages go to h. It does
// not connect: the first message does.
func Dial(o Options, h stdio.Handler) (*Link, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, fmt.Errorf("remote: %w", err)
	}
	u.Fragment = ""
	o = o.withDefaults()
	client, err := httpclient.New(u, httpclient.Options{
		Header: o.Header, TLS: o.TLS, Proxy: o.Proxy, Dial: o.DialContext, ConnectTimeout: o.ConnectTimeout,
		UserAgent: "holdfast/" + o.Version,
	})
	if err != nil {
		return nil, fmt.Errorf("remote: %w", err)
	}
	name := u.Scheme + "://" + u.Host + u.EscapedPath()
	l := &Link{
		o: o, url: u, name: name, log: o.Log.With("upstream", name), client: client,
		queued: make(chan struct{}, 1), pending: map[string]*message{}, up: up{h: h},
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.wg.Go(l.dispatch) // ends with l.ctx
	return l, nil
}

// Send queues the message with the edits made. It does not block, and does not
// keep the message.
func (l *Link) Send(m *jsonrpc.Message, edits ...jsonrpc.Edit) error {
	return l.enqueue(m.Append(make([]byte, 0, m.Len(edits...)), edits...))
}

// SendRaw queues a message.
func (l *Link) SendRaw(line []byte) error { return l.enqueue(append([]byte(nil), line...)) }

// Reached returns when the server was sent something for the first time, the
// zero time if it was not yet.
func (l *Link) Reached() time.Time {
	if at := l.reached.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// settle is how long Stop waits for notifications that were sent before it.
const settle = 500 * time.Millisecond

// Stop takes no more messages, delivers the notifications that it has if that is
// quickly done, ends the session and every stream, and returns once nothing is
// left. Idempotent.
func (l *Link) Stop() {
	l.stop.Do(func() {
		l.mu.Lock()
		if l.err == nil {
			l.err = stdio.ErrClosed
		}
		flushed := make(chan struct{})
		if l.errands == 0 {
			close(flushed)
		} else {
			l.flushed = flushed
		}
		l.mu.Unlock()
		late := time.NewTimer(settle)
		select {
		case <-flushed:
		case <-late.C:
		case <-l.ctx.Done():
		}
		late.Stop()
		opening := l.opening()
		l.mu.Lock()
		sess := l.session
		l.mu.Unlock()
		l.cancel(stdio.ErrClosed)
		l.end(sess)
		l.wg.Wait()
		l.last.Wait()
		if opening != nil && (sess == nil || sess.ID != opening.given) {
			l.end(&session{Session: streamable.Session{ID: opening.given}})
		}
		l.client.Close()
		l.up.close(stdio.ErrClosed)
	})
}

// giveUp ends the link by itself; it is called on one of its goroutines. Stop is
// still to be called. Requests that are
// at the server may hear from it that they were not executed, and have a moment
// for that.
func (l *Link) giveUp(err error) {
	l.mu.Lock()
	if l.err == nil {
		l.err = fmt.Errorf("%w: %w", stdio.ErrClosed, err)
	}
	var left []*message
	for _, msg := range l.pending {
		left = append(left, msg)
	}
	l.mu.Unlock()
	late := time.NewTimer(settle)
	defer late.Stop()
	for _, msg := range left {
		f := &failure{outcome: notExecuted, text: err.Error()}
		if l.isPosted(msg) {
			f.outcome = unknown
			select {
			case <-msg.settled:
			case <-l.ctx.Done():
			case <-late.C:
				late.Reset(0) // for those that follow
			}
		}
		l.fail(msg, f)
	}
	l.cancel(err)
	l.last.Go(func() { // ends with the other goroutines
		l.wg.Wait() // one of them may be about to hand an answer up
		l.up.close(err)
	})
}

// up is the handler, told one thing at a time.
type up struct {
	h      stdio.Handler
	mu     sync.Mutex // held while h is told something, which does not block; guards the fields below
	closed bool
	junk   int
}

func (u *up) line(b []byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.closed {
		u.h.Line(b)
	}
}

func (u *up) oversize(head []byte, size int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.closed {
		u.h.Oversize(head, size)
	}
}

func (u *up) renewed() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if r, ok := u.h.(Renewer); ok && !u.closed {
		r.Renewed()
	}
}

func (u *up) close(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.closed {
		u.closed = true
		u.h.Closed(err)
	}
}

// skipped counts what was no message, and returns how many there were.
func (u *up) skipped() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.junk++
	return u.junk
}
