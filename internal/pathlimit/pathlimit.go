// Package pathlimit infers from the ages and silences at which streams die without a word that something between cuts them, and at which limit.
//
// It is pure: time is a parameter, there is no I/O, clock, lock or goroutine,
// and what it remembers is bounded. The owner locks.
//
// What it can know is little. A stream that a proxy cuts and one whose client
// leaves end alike, with a FIN or a RST. But clients leave when they like, and
// a limit always strikes at the same point, and nothing lives past it. So a
// limit is believed when several streams, at different times, died so close
// together in silence or age that leaving at random hardly ever looks so, and
// next to none lived longer; docs/paths.md has the rates. It is not believed
// for ever, and a wrong one costs a few heartbeats.
package pathlimit

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/observe"
)

// Kind is what a limit is on.
type Kind uint8

// The kinds.
const (
	Silence Kind = iota // since the last byte from the gateway
	Age                 // since the stream was opened
)

// String returns "silence" or "age".
func (k Kind) String() string {
	if k == Age {
		return "age"
	}
	return "silence"
}

// End is how a stream ended. Watch makes one.
type End struct {
	At  time.Time
	Age time.Duration // since the stream was opened
	// Silence is the time since the gateway's last byte, heartbeats included;
	// with HeartbeatFailed that before the write that failed.
	Silence time.Duration
	// Abrupt: it ended without a word. The connection was closed or reset, not by the
	// gateway, not after the last answer, and no DELETE or cancellation came.
	Abrupt bool
	// HeartbeatFailed: it was found dead only when something was written, so
	// that it died at some time within Silence.
	HeartbeatFailed bool
	// Survived is the longest silence that the stream came through and that
	// Learner.Survived was not told of. 0: none.
	Survived time.Duration
}

// Limit is what was learned.
type Limit struct {
	Kind   Kind
	Value  time.Duration // the median of the ends that it was learned from
	AtMost bool          // the true value may be less: the path told only when something was written
	Ends   int           // how many streams died of it, as far as is known
	Since  time.Time     // when it was learned
}

// Options of a Learner; zero fields mean the default.
type Options struct {
	Floor   time.Duration // heartbeats are never set below, and shorter lives not looked at; default 1s
	Forget  time.Duration // a limit that no end confirms is not acted on for longer; default 1h
	MinEnds int           // streams that must have died before a limit is believed; default 3
	Spread  float64       // how far apart these may be, as a part of the value; default 0.10
	Max     int           // ends that are kept; default 64
}

// Learner watches one route: one endpoint, as clients of one network, or
// behind one forwarder, reach it. Not safe for concurrent use.
type Learner struct {
	o         Options
	ends      []End // abrupt ones, oldest first
	survivors [2][]survivor
	limits    []*limit
	logFact   []float64 // of 0 to Max
}

// survivor is a stream that lived past a silence or an age.
type survivor struct {
	at    time.Time
	value time.Duration
}

// limit is a Limit with what is needed to doubt it.
type limit struct {
	Limit
	lo, hi    time.Duration // the ends that it was learned from
	confirmed time.Time
	forget    time.Duration
	doubts    int // streams that lived past it since the last that did not
	doubted   time.Time
}

const (
	maxLimits    = 4  // of one route
	maxSurvivors = 32 // of one kind
	slack        = 0.02
	maxForget    = 24 // times Options.Forget
)

// New returns a Learner that has learned nothing.
func New(o Options) *Learner {
	o.Floor = cmp.Or(max(o.Floor, 0), time.Second)
	o.Forget = cmp.Or(max(o.Forget, 0), time.Hour)
	o.MinEnds = max(cmp.Or(o.MinEnds, 3), 2)
	if o.Spread <= 0 || o.Spread >= 0.5 {
		o.Spread = 0.10
	}
	o.Max = max(cmp.Or(o.Max, 64), o.MinEnds)
	return &Learner{o: o, logFact: logFactorials(o.Max)}
}

// of is the end's measure of a kind.
func (e End) of(k Kind) time.Duration {
	if k == Age {
		return e.Age
	}
	return e.Silence
}

// lived is what the end is known to have survived.
func (e End) lived(k Kind) time.Duration {
	switch {
	case !e.HeartbeatFailed:
		return e.of(k)
	case k == Age:
		return e.Age - e.Silence
	}
	return 0
}

// late is how long before it was found the end may have come.
func (e End) late(k Kind) time.Duration {
	if k == Age && e.HeartbeatFailed {
		return e.Silence
	}
	return 0
}

// Observe takes note of the end of a stream. It returns a limit only when this
// end was the one to reveal it: what it returns is worth saying, once. An end
// that was not abrupt counts as survival of its age.
func (l *Learner) Observe(e End) (learned *Limit) {
	if !e.Abrupt {
		l.Survived(e.At, e.Age, e.Survived)
		return nil
	}
	l.Survived(e.At, 0, e.Survived)
	l.prune(e.At)
	known := l.confirm(e)
	if !known {
		l.doubt(Silence, e.At, e.lived(Silence))
		l.doubt(Age, e.At, e.lived(Age))
	}
	if max(e.Age, e.Silence) < l.o.Floor {
		return nil // clients that change their mind; nothing could be done about it
	}
	if len(l.ends) == l.o.Max {
		l.ends = slices.Delete(l.ends, 0, 1)
	}
	l.ends = append(l.ends, e)
	if known {
		return nil
	}
	// Silence first: where it could be either, it is cheap to try.
	if c, ok := l.cluster(Silence); ok {
		return l.learn(Silence, c, e.At)
	}
	if c, ok := l.cluster(Age); ok {
		return l.learn(Age, c, e.At)
	}
	if c, ok := l.lateAge(); ok {
		return l.learn(Age, c, e.At)
	}
	return nil
}

// learn enters a limit, or renews the one that it turns out to be.
func (l *Learner) learn(k Kind, c cluster, now time.Time) *Limit {
	found := &limit{
		Limit: Limit{Kind: k, Value: c.median, AtMost: c.failed || c.late > 0, Ends: c.ends, Since: now},
		lo:    c.lo - c.late, hi: c.hi, confirmed: now, forget: l.o.Forget,
	}
	if k == Age { // what looked like silence was this
		l.limits = slices.DeleteFunc(l.limits, func(m *limit) bool {
			return m.Kind == Silence && (l.near(m.Value, c.median) || m.AtMost && m.Value >= c.lo)
		})
	}
	for _, m := range l.limits {
		if m.Kind == k && l.near(m.Value, c.median) {
			m.lo, m.hi = min(m.lo, found.lo), max(m.hi, c.hi)
			m.confirmed, m.doubts = now, 0
			return nil
		}
	}
	if len(l.limits) == maxLimits {
		oldest := slices.MinFunc(l.limits, func(a, b *limit) int { return a.confirmed.Compare(b.confirmed) })
		l.limits = slices.DeleteFunc(l.limits, func(m *limit) bool { return m == oldest })
	}
	l.limits = append(l.limits, found)
	out := found.Limit
	return &out
}

// confirm reports whether a known limit explains the end, and renews that
// limit. One that was no longer acted on comes back, for twice as long.
func (l *Learner) confirm(e End) bool {
	m := l.explains(e)
	if m == nil {
		return false
	}
	if !m.active(e.At) {
		m.forget = min(2*m.forget, maxForget*l.o.Forget)
	}
	m.Ends++
	m.confirmed, m.doubts = e.At, 0
	return true
}

// explains returns the limit that the end fits, active or not; the closest.
func (l *Learner) explains(e End) *limit {
	var best *limit
	off := 0.0
	for _, m := range l.limits {
		if !m.fits(e) {
			continue
		}
		if d := relative(e.of(m.Kind), m.Value); best == nil || d < off {
			best, off = m, d
		}
	}
	return best
}

// fits reports whether a stream that died so may have died of the limit.
func (m *limit) fits(e End) bool {
	v := e.of(m.Kind)
	switch {
	case m.Kind == Silence && e.HeartbeatFailed:
		return float64(v) >= float64(m.lo)*(1-slack) // it died before it was found
	case m.Kind == Age && e.HeartbeatFailed: // at some time between its last two writes
		return float64(e.Age) >= float64(m.lo)*(1-slack) && float64(e.Age-e.Silence) <= float64(m.hi)*(1+slack)
	}
	return float64(v) >= float64(m.lo)*(1-slack) && float64(v) <= float64(m.hi)*(1+slack)
}

func (m *limit) active(now time.Time) bool { return now.Sub(m.confirmed) <= m.forget }

// near reports whether two values are the same limit.
func (l *Learner) near(a, b time.Duration) bool { return relative(a, b) <= l.o.Spread }

func relative(a, b time.Duration) float64 {
	return float64((a - b).Abs()) / float64(max(a, b, 1))
}

// Survived takes note that a stream is alive at this age, and was after having been
// silent for so long. A write that was accepted is no proof: the reset that it
// provokes takes its time. Watch.Wrote knows when it is.
func (l *Learner) Survived(now time.Time, age, silence time.Duration) {
	for i, v := range [...]time.Duration{Silence: silence, Age: age} {
		if v < l.o.Floor {
			continue
		}
		k := Kind(i)
		l.doubt(k, now, v)
		all := l.survivors[k]
		if n := len(all); n > 0 && now.Sub(all[n-1].at) < time.Second {
			all[n-1].value = max(all[n-1].value, v)
			continue
		}
		if len(all) == maxSurvivors {
			all = slices.Delete(all, 0, 1)
		}
		l.survivors[k] = append(all, survivor{now, v})
	}
}

// doubt counts a stream against the limits that it lived past. What is
// contradicted as often as it takes to learn it is given up, with the ends
// that taught it.
func (l *Learner) doubt(k Kind, now time.Time, v time.Duration) {
	l.limits = slices.DeleteFunc(l.limits, func(m *limit) bool {
		if m.Kind != k || float64(v) <= float64(m.hi)*(1+l.o.Spread) || now.Sub(m.doubted) < l.apart(m.Value) {
			return false
		}
		m.doubted = now
		if m.doubts++; m.doubts < l.o.MinEnds {
			return false
		}
		l.ends = slices.DeleteFunc(l.ends, m.fits)
		return true
	})
}

// prune drops what is too old to say anything about now.
func (l *Learner) prune(now time.Time) {
	l.ends = slices.DeleteFunc(l.ends, func(e End) bool { return now.Sub(e.At) > l.o.Forget+4*e.Age })
	l.limits = slices.DeleteFunc(l.limits, func(m *limit) bool { return now.Sub(m.confirmed) > m.forget+maxForget*l.o.Forget })
}

// Limits returns what is believed now, the shortest first.
func (l *Learner) Limits(now time.Time) []Limit {
	var all []Limit
	for _, m := range l.limits {
		if m.active(now) {
			all = append(all, m.Limit)
		}
	}
	slices.SortFunc(all, func(a, b Limit) int { return cmp.Or(cmp.Compare(a.Value, b.Value), cmp.Compare(a.Kind, b.Kind)) })
	return all
}

// Heartbeat returns how often a quiet stream of this route needs a byte:
// configured, or two thirds of the shortest silence that the path allows. It is
// never longer than configured, and otherwise never below the floor. No heartbeats
// (0) stay none.
func (l *Learner) Heartbeat(now time.Time, configured time.Duration) time.Duration {
	beat := configured
	for _, m := range l.limits {
		if m.Kind == Silence && m.active(now) {
			beat = min(beat, max(m.lo*2/3, l.o.Floor))
		}
	}
	return beat
}

// Rotate returns the age at which streams that can be resumed are better
// closed in order, a tenth before the path cuts them, ten seconds at most.
// Limits below two floors are not acted on: a client could do nothing but reconnect.
func (l *Learner) Rotate(now time.Time) (age time.Duration, ok bool) {
	for _, m := range l.limits {
		if m.Kind != Age || !m.active(now) || m.lo < 2*l.o.Floor {
			continue
		}
		if a := m.lo - min(m.lo/10, 10*time.Second); !ok || a < age {
			age, ok = a, true
		}
	}
	return age, ok
}

// Classify says who ended an abrupt stream, and how sure that is. Observe it
// first: it may be the one to reveal the limit.
func (l *Learner) Classify(e End) (observe.Cause, observe.Party, observe.Sureness) {
	m := l.explains(e)
	switch {
	case m != nil && m.Kind == Silence:
		return observe.PathSilence, observe.Path, observe.Likely
	case m != nil:
		return observe.PathAge, observe.Path, observe.Likely
	case e.HeartbeatFailed:
		return observe.HeartbeatFailed, observe.Client, observe.Guess
	}
	return observe.ClientLeft, observe.Client, observe.Guess
}
