package holdfast_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/sse"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// stream is one response, or what a pipe says.
type stream struct {
	c      *client
	cut    context.CancelFunc
	opened chan struct{}
	ended  chan struct{}

	// After opened.
	status int
	header http.Header
	proto  string
	// After ended.
	body []byte // if it is no event stream
	err  error

	mu       sync.Mutex // guards the fields below
	raw      bytes.Buffer
	first    time.Time // of the first byte, if any came
	last     time.Time
	longest  time.Duration // between two bytes
	lastID   string        // of an event
	retry    time.Duration
	comments int
	events   []sse.Event
}

func newStream(c *client) *stream {
	return &stream{c: c, cut: func() {}, opened: make(chan struct{}), ended: make(chan struct{}), last: time.Now()}
}

// open waits for the head of the response.
func (s *stream) open() *stream {
	s.c.t.Helper()
	select {
	case <-s.opened:
	case <-time.After(bound):
		s.c.t.Fatalf("no response within %v", bound)
	}
	return s
}

// done waits for the end of the response.
func (s *stream) done() *stream {
	s.c.t.Helper()
	select {
	case <-s.ended:
	case <-time.After(s.c.b.patience()):
		s.c.t.Fatal("the response does not end")
	}
	return s
}

// run sends the request and reads the response to its end.
func (s *stream) run(h *http.Client, r *http.Request, ids []string) {
	resp, err := h.Do(r)
	if err != nil {
		s.err = err
		close(s.opened)
		return
	}
	s.status, s.header, s.proto = resp.StatusCode, resp.Header, resp.Proto
	close(s.opened)
	defer func() { _ = resp.Body.Close() }()
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		s.readEvents(resp.Body)
		return
	}
	if s.body, s.err = io.ReadAll(tap{s, resp.Body}); s.err != nil {
		return
	}
	s.readJSON(ids)
}

// tap notes when bytes come.
type tap struct {
	s *stream
	r io.Reader
}

func (t tap) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if n > 0 {
		s, now := t.s, time.Now()
		s.mu.Lock()
		if s.first.IsZero() {
			s.first = now
		}
		s.longest, s.last = max(s.longest, now.Sub(s.last)), now
		if s.raw.Len() < 1<<20 {
			s.raw.Write(p[:n])
		}
		s.mu.Unlock()
	}
	return n, err
}

func (s *stream) readEvents(r io.Reader) {
	d := sse.NewDecoder(tap{s, r}, 64<<20)
	for {
		e, err := d.Next()
		s.mu.Lock()
		s.comments, s.lastID = d.Comments(), d.LastID()
		s.retry, _ = d.Retry()
		if err == nil {
			e.Data = bytes.Clone(e.Data)
			s.events = append(s.events, e)
		}
		s.mu.Unlock()
		if err != nil {
			s.err = err
			return
		}
		if e.Name == "message" && len(e.Data) > 0 {
			s.c.take(e.Data, e.ID, s)
		}
	}
}

func (s *stream) readJSON(ids []string) {
	each := [][]byte{s.body}
	if split, err := jsonrpc.Split(s.body); err == nil {
		each = split
	}
	named := map[string]bool{}
	for _, one := range each {
		m, err := jsonrpc.Parse(one)
		if m == nil || err != nil {
			continue
		}
		named[string(m.Raw(jsonrpc.ID))] = true
		s.c.take(one, "", s)
	}
	if s.status >= 400 { // that is the answer to all of the POST
		s.c.refusal(slices.DeleteFunc(ids, func(id string) bool { return named[id] }))
	}
}

func (s *stream) readLines(r io.Reader) {
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			s.err = err
			return
		}
		s.c.take(bytes.TrimSuffix(line, []byte("\n")), "", s)
	}
}

func (s *stream) endpointEvent() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.Name == "endpoint" {
			return string(e.Data)
		}
	}
	return ""
}

// silence returns the longest time without a byte, up to now.
func (s *stream) silence() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.longest, time.Since(s.last))
}

// last event id that came, and the bytes so far.
func (s *stream) position() string { s.mu.Lock(); defer s.mu.Unlock(); return s.lastID }
func (s *stream) bytes() string    { s.mu.Lock(); defer s.mu.Unlock(); return s.raw.String() }
func (s *stream) start() time.Time { s.mu.Lock(); defer s.mu.Unlock(); return s.first }
func (s *stream) beats() int       { s.mu.Lock(); defer s.mu.Unlock(); return s.comments }
