// Package route times event streams, learns from how they end what the path to clients does to them, and says who ended what.
//
// A route is how the clients of one address, or behind one forwarder, reach an
// endpoint. What is learned of one changes nothing on another.
package route

import (
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/httpstream"
	"github.com/holdfast-mcp/holdfast/internal/observe"
	"github.com/holdfast-mcp/holdfast/internal/pathlimit"
)

// Options of Routes. All fields are needed.
type Options struct {
	Heartbeat time.Duration // between comments on a quiet stream, where no route needs it shorter
	Observe   func(observe.Event)
	Log       *slog.Logger
}

// Routes are those to one endpoint. Safe for concurrent use.
type Routes struct {
	o Options

	mu  sync.Mutex // guards the field below
	all map[string]*route
}

// route is what is known of one.
type route struct {
	key string

	mu      sync.Mutex // guards the fields below
	learner *pathlimit.Learner
	open    map[*Stream]bool
	used    time.Time
}

// New returns Routes of which nothing is known.
func New(o Options) *Routes { return &Routes{o: o, all: map[string]*route{}} }

// maxRoutes bounds the routes that are remembered.
const maxRoutes = 1024

// of returns a route.
func (rs *Routes) of(key string) *route {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.all[key]
	if r == nil {
		if len(rs.all) >= maxRoutes {
			rs.dropOldestLocked()
		}
		r = &route{key: key, learner: pathlimit.New(pathlimit.Options{}), open: map[*Stream]bool{}}
		rs.all[key] = r
	}
	return r
}

func (rs *Routes) dropOldestLocked() {
	var oldest *route
	var at time.Time
	for _, r := range rs.all {
		r.mu.Lock()
		used, busy := r.used, len(r.open) > 0
		r.mu.Unlock()
		if !busy && (oldest == nil || used.Before(at)) {
			oldest, at = r, used
		}
	}
	if oldest != nil {
		delete(rs.all, oldest.key)
	}
}

// Stream is one open event stream. It is the Output of a reader.
type Stream struct {
	httpstream.Response
	rs    *Routes
	route *route

	mu     sync.Mutex // guards the fields below
	watch  pathlimit.Watch
	failed error // of a write
	ended  bool
}

// Open returns a stream of which the headers were just written. Key says which
// route it is on.
func (rs *Routes) Open(key string, out httpstream.Response) *Stream {
	now := time.Now()
	s := &Stream{Response: out, rs: rs, route: rs.of(key), watch: pathlimit.Open(now)}
	s.route.mu.Lock()
	s.route.open[s] = true
	s.route.used = now
	s.route.mu.Unlock()
	return s
}

// Write writes all of p before a deadline of its own.
func (s *Stream) Write(p []byte) error {
	err := s.Response.Write(p)
	now := time.Now()
	s.mu.Lock()
	if err != nil {
		s.failed = err
		s.mu.Unlock()
		return err
	}
	silence, survived := s.watch.Wrote(now)
	age := s.watch.Age(now)
	s.mu.Unlock()
	if survived {
		s.route.mu.Lock()
		s.route.learner.Survived(now, age, silence)
		s.route.mu.Unlock()
	}
	return nil
}

// Beat returns how long the stream may be quiet before a comment is due, as far
// as is known now.
func (s *Stream) Beat(now time.Time) time.Duration {
	s.route.mu.Lock()
	defer s.route.mu.Unlock()
	return s.route.learner.Heartbeat(now, s.rs.o.Heartbeat)
}

// RotateAt returns when the stream is better closed by the gateway, since the
// path would cut it soon after, as far as is known now; zero: never.
func (s *Stream) RotateAt(now time.Time) time.Time {
	s.route.mu.Lock()
	age, ok := s.route.learner.Rotate(now)
	s.route.mu.Unlock()
	if !ok {
		return time.Time{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Add(age - s.watch.Age(now))
}

// Steady is a stream that is never rotated: its client might not come back to it.
type Steady struct{ *Stream }

// RotateAt returns never.
func (Steady) RotateAt(time.Time) time.Time { return time.Time{} }

// End tells how the stream ended: e says which it was, cause why the gateway
// ended it, "" if it was the connection that failed, with err. It does nothing
// the second time.
func (s *Stream) End(e observe.Event, cause observe.Cause, err error) {
	now := time.Now()
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	s.ended = true
	failed := s.failed
	slow := errors.Is(failed, os.ErrDeadlineExceeded) // a paused client says nothing of the path
	end := s.watch.End(now, cause == "" && !slow, failed != nil)
	s.mu.Unlock()

	r := s.route
	r.mu.Lock()
	delete(r.open, s)
	limit := r.learner.Observe(end)
	who, sure := cause.Who()
	if cause == "" {
		cause, who, sure = r.learner.Classify(end)
	}
	var others []*Stream
	if limit != nil {
		for o := range r.open {
			others = append(others, o)
		}
	}
	beat := r.learner.Heartbeat(now, s.rs.o.Heartbeat)
	r.mu.Unlock()

	switch {
	case slow:
		cause = observe.SlowReader
		who, sure = cause.Who()
	case failed != nil && cause == observe.ClientLeft:
		cause = observe.HeartbeatFailed
	}
	e.Subject, e.Cause, e.Who, e.Sure, e.Age, e.Silence, e.Text = observe.Stream, cause, who, sure, end.Age, end.Silence, "stream ended"
	s.rs.o.Observe(e)
	if err != nil {
		s.rs.o.Log.Debug("stream ended, in the words of the connection", "session", e.Session, "error", err)
	}
	if limit == nil {
		return
	}
	s.rs.o.Log.Warn("path limit learned", "kind", limit.Kind.String(), "value", limit.Value.Round(time.Millisecond), "at_most", limit.AtMost,
		"ends", limit.Ends, "heartbeat", beat, "route", r.key,
		"meaning", "something between clients and this gateway ends streams there; its own time-out is better raised")
	for _, o := range others { // their next comment may be due already
		o.Wake()
	}
}
