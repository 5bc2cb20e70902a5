package testkit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/sse"
)

// Stream is the event stream of one response. Cut, Close, Received and Longest
// are safe for concurrent use; the rest belongs to one goroutine.
type Stream struct {
	*sse.Decoder

	body     io.ReadCloser
	conn     net.Conn
	received atomic.Int64

	mu      sync.Mutex // guards the fields below
	last    time.Time  // of the last byte, or of the head of the response
	longest time.Duration
}

func newStream(body io.ReadCloser, conn net.Conn) *Stream {
	s := &Stream{body: body, conn: conn, last: time.Now()}
	s.Decoder = sse.NewDecoder(s.tap(body), maxBody)
	return s
}

// tap counts what is read from r.
func (s *Stream) tap(r io.Reader) io.Reader {
	return readerFunc(func(b []byte) (int, error) {
		n, err := r.Read(b)
		if n > 0 {
			s.received.Add(int64(n))
			now := time.Now()
			s.mu.Lock()
			s.longest, s.last = max(s.longest, now.Sub(s.last)), now
			s.mu.Unlock()
		}
		return n, err
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// Received is how many bytes of body were read.
func (s *Stream) Received() int64 { return s.received.Load() }

// Longest is the longest time without a byte, until the last one.
func (s *Stream) Longest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.longest
}

// Cut ends the connection under the stream as a broken network would. Over
// TCP the server gets a RST.
func (s *Stream) Cut() {
	if s.conn != nil {
		cut(s.conn, true)
	}
	_ = s.body.Close()
}

// Close ends the stream as a client does that has seen enough.
func (s *Stream) Close() { _ = s.body.Close() }

// Next returns the next event, its data for the caller to keep. The end of ctx
// cuts the stream.
func (s *Stream) Next(ctx context.Context) (sse.Event, error) {
	stop := context.AfterFunc(ctx, s.Cut)
	defer stop()
	e, err := s.Decoder.Next()
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	e.Data = bytes.Clone(e.Data)
	return e, err
}

// Message returns the next event that carries a message, and it.
func (s *Stream) Message(ctx context.Context) (Message, sse.Event, error) {
	for {
		e, err := s.Next(ctx)
		if err != nil {
			return Message{}, e, err
		}
		if len(e.Data) == 0 || e.Type() != "message" {
			continue
		}
		m, err := Parse(e.Data)
		return m, e, err
	}
}

// Await reads on until the answer to the request id and returns it, and what
// came before it.
func (s *Stream) Await(ctx context.Context, id string) (answer Message, before []Message, err error) {
	for {
		m, _, err := s.Message(ctx)
		if err != nil {
			return m, before, fmt.Errorf("testkit: the answer to %s: %w", id, err)
		}
		if m.IsAnswer(id) {
			return m, before, nil
		}
		before = append(before, m)
	}
}

// SSE is a session over HTTP+SSE: the stream, and where to post to.
type SSE struct {
	*Stream
	Endpoint string // resolved
	client   *Client
}

// ConnectSSE opens the stream at the client's URL, or with a lastEventID
// resumes it, and reads its endpoint event. As for ctx, see Post.
func (c *Client) ConnectSSE(ctx context.Context, lastEventID string) (*SSE, error) {
	resp, err := c.Get(ctx, lastEventID)
	if err != nil {
		return nil, err
	}
	if resp.Stream == nil {
		return nil, fmt.Errorf("testkit: got %d %.200q where an event stream is due", resp.Status, resp.Body)
	}
	s := &SSE{Stream: resp.Stream, client: c}
	e, err := s.Next(ctx)
	if err == nil && e.Name != "endpoint" {
		err = fmt.Errorf("testkit: the first event is %q", e.Type())
	}
	if err == nil {
		s.Endpoint, err = resolve(c.URL, string(e.Data))
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func resolve(base, ref string) (string, error) {
	b, err1 := url.Parse(base)
	r, err2 := url.Parse(ref)
	if err := errors.Join(err1, err2); err != nil {
		return "", fmt.Errorf("testkit: endpoint: %w", err)
	}
	return b.ResolveReference(r).String(), nil
}

// Post sends body to the session.
func (s *SSE) Post(ctx context.Context, body []byte) (*Response, error) {
	return s.client.Do(ctx, http.MethodPost, s.Endpoint, body, nil)
}

// Deliver posts body and demands the 202 that everything is due here.
func (s *SSE) Deliver(ctx context.Context, body []byte) error {
	resp, err := s.Post(ctx, body)
	if err != nil {
		return err
	}
	return resp.accepted()
}

// Call posts a request and reads the stream up to its answer, past all that
// comes before it.
func (s *SSE) Call(ctx context.Context, id string, body []byte) (Message, error) {
	if err := s.Deliver(ctx, body); err != nil {
		return Message{}, err
	}
	m, _, err := s.Await(ctx, id)
	return m, err
}

// Initialize is the handshake, as Client.Initialize is.
func (s *SSE) Initialize(ctx context.Context, version, capabilities string) (Message, error) {
	params := InitializeParams(version, capabilities, "testkit")
	m, err := s.Call(ctx, `"init"`, Request(`"init"`, "initialize", params))
	if err != nil {
		return m, err
	}
	return m, s.Deliver(ctx, Notification("notifications/initialized", ""))
}
