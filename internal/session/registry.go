package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/calls"
	"github.com/holdfast-mcp/holdfast/internal/liveness"
	"github.com/holdfast-mcp/holdfast/internal/observe"
)

// ErrTooMany: as many sessions as may be. Match with errors.Is.
var ErrTooMany = errors.New("session: too many sessions (--max-sessions)")

// RegistryOptions of a registry.
type RegistryOptions struct {
	Limits   Limits
	Timeout  time.Duration // without a call or a read stream, a session ends after this
	Grace    time.Duration // an HTTP+SSE session ends this long after its stream
	Max      int           // sessions at once
	Log      *slog.Logger
	Book     *Book                         // of their calls; nil: none is entered
	Liveness liveness.Settings             // how silent clients are judged; a negative interval: without pings
	Rules    func(tool string) calls.Rules // what holds for a call; needed with a book
	Observe  func(observe.Event)           // nil: nobody is told
	Tasks    *TaskOptions                  // nil: no tool is offered as a task
}

// Registry holds the live sessions by id. Safe for concurrent use.
type Registry struct {
	opts RegistryOptions

	mu     sync.RWMutex // guards the fields below
	all    map[string]*Session
	closed bool
}

// NewRegistry returns an empty registry.
func NewRegistry(opts RegistryOptions) *Registry {
	if opts.Tasks != nil {
		own := *opts.Tasks
		own.shelf = calls.NewShelf[*task]()
		opts.Tasks = &own
	}
	return &Registry{opts: opts, all: map[string]*Session{}}
}

// New enters a session under a new id of 130 random bits. single says that
// its transport has one stream for all.
func (r *Registry) New(single bool) (*Session, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return nil, ErrShutdown
	case len(r.all) >= r.opts.Max:
		return nil, ErrTooMany
	}
	s := newSession(rand.Text(), single, &r.opts)
	r.all[s.ID] = s
	return s, nil
}

// Get returns a live session, nil if there is none of that id.
func (r *Registry) Get(id string) *Session {
	r.mu.RLock()
	s := r.all[id]
	r.mu.RUnlock()
	if s == nil {
		return nil
	}
	if s.Err() != nil { // its server ended it
		r.remove(s)
		return nil
	}
	return s
}

// End ends a session, and forgets it.
func (r *Registry) End(s *Session, cause error) {
	if s.End(cause) {
		r.tell(s, cause)
	}
	r.remove(s)
}

// tell tells of a session's end.
func (r *Registry) tell(s *Session, err error) {
	e := observe.Ended(observe.Session, cmp.Or(CauseOf(err), observe.Refused))
	e.Session, e.Age, e.Text = Short(s.ID), time.Since(s.opened), "session ended"
	if r.opts.Observe != nil {
		r.opts.Observe(e)
		return
	}
	r.opts.Log.Info(e.Text, "session", e.Session, "cause", e.Cause, "error", err)
}

func (r *Registry) remove(s *Session) {
	r.mu.Lock()
	delete(r.all, s.ID)
	r.mu.Unlock()
}

// Len returns how many sessions there are.
func (r *Registry) Len() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.all)
}

// InFlight returns how many calls are running in all sessions.
func (r *Registry) InFlight() int {
	n := 0
	for _, s := range r.snapshot() {
		n += s.InFlight()
	}
	return n
}

// Unfetched returns how many tasks there are in all sessions whose clients do not
// know yet how they end, less those that ended long ago.
func (r *Registry) Unfetched() int {
	n := 0
	for _, s := range r.snapshot() {
		n += s.unfetched()
	}
	return n
}

func (r *Registry) snapshot() []*Session {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]*Session, 0, len(r.all))
	for _, s := range r.all {
		out = append(out, s)
	}
	return out
}

// Run ends idle sessions until ctx is done.
func (r *Registry) Run(ctx context.Context) {
	every := min(r.opts.Timeout, r.opts.Grace) / 4
	if d := r.opts.Liveness.Interval; d > 0 {
		every = min(every, d/4, r.opts.Liveness.Timeout/2)
	}
	t := time.NewTicker(min(max(every, 50*time.Millisecond), 30*time.Second))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			r.sweep(now)
		}
	}
}

func (r *Registry) sweep(now time.Time) {
	for _, s := range r.snapshot() {
		s.attend(now)
		switch {
		case s.Err() != nil:
			r.tell(s, s.Err())
			r.remove(s)
		case s.single && !s.keeps() && s.quietFor(now, false) >= r.opts.Grace:
			r.End(s, ErrAbandoned)
		case s.quietFor(now, true) >= r.opts.Timeout && !s.owes():
			r.End(s, ErrIdle)
		}
	}
}

// keeps reports whether a call is running that is not cancelled for want of a
// reader.
func (s *Session) keeps() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c.keep {
			return true
		}
	}
	return false
}

// evictAfter is how long a Streamable HTTP client must have been quiet, without
// a stream, before its session may be given up for another one.
const evictAfter = time.Minute

// Evict ends the session that has been quiet for longest, without a stream and
// without a call, so that another one can have its place. It reports whether
// there was one. HTTP+SSE clients say goodbye by closing their stream only, many
// others not at all: those that will come back cannot be told from those that
// will not, and those that do are told to begin anew.
func (r *Registry) Evict() bool {
	var oldest *Session
	var away time.Duration
	now := time.Now()
	for _, s := range r.snapshot() {
		if s.Attached() {
			if d := s.quietFor(now, true); d > away && (s.single || d >= evictAfter) {
				oldest, away = s, d
			}
		}
	}
	if oldest == nil {
		return false
	}
	r.End(oldest, ErrEvicted)
	return true
}

// Close ends all sessions, and admits no more.
func (r *Registry) Close(cause error) {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	for _, s := range r.snapshot() {
		r.End(s, cause)
	}
	if r.opts.Book != nil {
		r.opts.Book.Close()
	}
}

// Short is what logs show of a session's id: enough to tell sessions apart,
// too little to take one over.
func Short(id string) string { return id[:min(8, len(id))] }
