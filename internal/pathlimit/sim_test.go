package pathlimit_test

import (
	"math/rand/v2"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/pathlimit"
)

// world is a route with clients, a path and a gateway, in virtual time.
type world struct {
	rng        *rand.Rand
	learner    *pathlimit.Learner
	configured time.Duration
	clients    int
	streams    int // that are opened, all in all

	silence, age time.Duration                // what the path cuts at; 0: nothing
	late         bool                         // the path looks at the age, and tells that a client left, only when something is written
	jitter       float64                      // of the cut, ±
	leave        func() time.Duration         // when the client goes; 0: it stays for the answer
	answer       func() time.Duration         // when the call is answered
	progress     func() time.Duration         // between messages; 0: silent
	learned      func(pathlimit.Limit)        // called once for each
	ended        func(e pathlimit.End, y why) // called for each abrupt end, after it was observed

	now time.Time
}

// why is the truth about an end.
type why int

const (
	answered why = iota
	left
	bySilence
	byAge
)

// stream is one that is open.
type stream struct {
	watch                pathlimit.Watch
	next                 time.Time // message
	beat                 time.Time
	cutAge, leaves, done time.Time
	cutAfter             time.Duration // of silence
	wrote                time.Time
	gone                 time.Time // it left, and nobody knows
}

var far = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

func (w *world) jittered(d time.Duration) time.Duration {
	return time.Duration(float64(d)*(1+w.jitter*(2*w.rng.Float64()-1))) + time.Duration(w.rng.IntN(int(2*time.Millisecond)))
}

func (w *world) open(at time.Time) *stream {
	s := &stream{watch: pathlimit.Open(at), wrote: at, next: far, cutAge: far, leaves: far, gone: far}
	s.done = at.Add(w.answer())
	if w.leave != nil {
		if d := w.leave(); d > 0 && w.late {
			s.gone = at.Add(d)
		} else if d > 0 {
			s.leaves = at.Add(d)
		}
	}
	if w.age > 0 && !w.late {
		s.cutAge = at.Add(w.jittered(w.age))
	}
	s.cutAfter = 100 * 365 * 24 * time.Hour
	if w.silence > 0 {
		s.cutAfter = w.jittered(w.silence)
	}
	w.schedule(s, at)
	return s
}

// schedule sets what the gateway does next, after a write.
func (w *world) schedule(s *stream, at time.Time) {
	s.beat = at.Add(w.learner.Heartbeat(at, w.configured))
	if w.progress != nil && !s.next.After(at) || s.next.Equal(far) && w.progress != nil {
		if d := w.progress(); d > 0 {
			s.next = at.Add(d)
		}
	}
}

// due is what happens next to a stream.
func (s *stream) due() (time.Time, why, bool) {
	at, y, write := s.done, answered, false
	for _, c := range []struct {
		at    time.Time
		y     why
		write bool
	}{{s.leaves, left, false}, {s.cutAge, byAge, false}, {s.wrote.Add(s.cutAfter), bySilence, false}, {s.beat, 0, true}, {s.next, 0, true}} {
		if c.at.Before(at) {
			at, y, write = c.at, c.y, c.write
		}
	}
	return at, y, write
}

func (w *world) run() {
	w.now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	open := make([]*stream, w.clients)
	opened := 0
	for i := range open {
		open[i] = w.open(w.now.Add(time.Duration(w.rng.Int64N(int64(10 * time.Second)))))
		opened++
	}
	for opened < w.streams {
		first, at, y, write := 0, far, why(0), false
		for i, s := range open {
			if a, r, wr := s.due(); a.Before(at) {
				first, at, y, write = i, a, r, wr
			}
		}
		s := open[first]
		w.now = at
		if y == answered && at.After(s.gone) && !write {
			y = left
		}
		if write {
			s.wrote = at
			if w.late && w.age > 0 && s.watch.Age(at) > w.age {
				s.cutAge = at.Add(5 * time.Millisecond)
			}
			if at.After(s.gone) {
				s.leaves = at.Add(5 * time.Millisecond)
			}
			if silence, ok := s.watch.Wrote(at); ok {
				w.learner.Survived(at, s.watch.Age(at), silence)
			}
			w.schedule(s, at)
			continue
		}
		w.end(s, y)
		open[first] = w.open(at.Add(time.Duration(w.rng.ExpFloat64() * float64(2*time.Second))))
		opened++
	}
}

func (w *world) end(s *stream, y why) {
	e := s.watch.End(w.now, y != answered, false)
	if l := w.learner.Observe(e); l != nil && w.learned != nil {
		w.learned(*l)
	}
	if y != answered && w.ended != nil {
		w.ended(e, y)
	}
}
