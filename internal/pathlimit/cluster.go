package pathlimit

import (
	"math"
	"slices"
	"time"
)

// chance is how likely ends at random may look like a limit, at most, for it to be
// believed.
const chance = 1e-6

// foundByChance is how likely it is that a client's leaving is found out by the
// same heartbeat after the opening as another's. Some proxies tell only when
// written to; then all are found by one.
const foundByChance = 0.5

// cluster is a set of ends that look like a limit.
type cluster struct {
	median, lo, hi time.Duration
	failed         bool          // found by a write, so that only a bound is known
	late           time.Duration // how long before they were found the ends may have come
	ends           int
}

// apart is how long after one end another one must come to count: the streams of a
// client that is killed end together, and say no more than one.
func (l *Learner) apart(v time.Duration) time.Duration {
	return time.Duration(l.o.Spread * float64(v))
}

// cluster looks for a limit of this kind around the newest end.
//
// A candidate are the ends within some distance of the newest one, back to
// some time. Of k ends since then m are in the candidate. If ends came at
// random, evenly up to their maximum, m of k would lie within a part w of
// their value with a probability of about C(k,m)·w^(m-1); distributions with a
// tail are kinder. Few ends must therefore be close together, and many need
// not, which is what timers are like: exact, or coarse.
func (l *Learner) cluster(k Kind) (best cluster, ok bool) {
	newest := l.ends[len(l.ends)-1]
	if newest.of(k) < l.o.Floor || !l.tells(k, newest) {
		return best, false
	}
	all := make([]evidence, 0, len(l.ends)) // newest first
	for _, e := range slices.Backward(l.ends) {
		if l.explains(e) == nil { // else it says nothing more
			all = append(all, evidence{e.At, e.of(k), e.late(k), l.tells(k, e) && (k == Age || e.HeartbeatFailed == newest.HeartbeatFailed)})
		}
	}
	bound := math.Log(chance)
	for d, n := l.o.Spread, 0; n < 8; d, n = d/2, n+1 {
		if c, p := l.within(k, newest, all, d, bound); p < bound {
			best, ok, bound = c, true, p
		}
	}
	return best, ok
}

// evidence is an end that no limit explains yet, and whether it tells about
// the kind in question.
type evidence struct {
	at          time.Time
	value, late time.Duration
	tells       bool
}

// tells reports whether the end can say anything about a limit of this kind.
func (l *Learner) tells(k Kind, e End) bool {
	if k == Silence {
		return true
	}
	if e.HeartbeatFailed { // the age is known only so well
		return float64(e.Silence) <= l.o.Spread*float64(e.Age)
	}
	// A stream that was silent from its start says nothing about age.
	return float64(e.Silence) < (1-l.o.Spread)*float64(e.Age)
}

// within returns the most convincing candidate within a distance of the newest
// end, of ends that are known as well as that, and the logarithm of its probability, if that is below bound.
func (l *Learner) within(k Kind, newest End, all []evidence, distance, bound float64) (best cluster, logP float64) {
	x := newest.of(k)
	logP = bound
	var values []time.Duration
	var lastIn time.Time
	c := cluster{lo: x, hi: x, failed: k == Silence && newest.HeartbeatFailed}
	inside, others := 0, 0
	for _, e := range all {
		v := e.value
		if !e.tells || relative(v, x) > distance || float64(e.late) > distance*float64(x) {
			others++
			continue
		}
		c.lo, c.hi, c.late = min(c.lo, v), max(c.hi, v), max(c.late, e.late)
		values = append(values, v)
		c.ends = len(values)
		if inside > 0 && lastIn.Sub(e.at) < l.apart(x) {
			continue
		}
		lastIn = e.at
		inside++
		if p := l.logProbability(k, c, inside, others); p < logP && l.beyond(k, e.at, c) <= c.tolerated(inside) {
			best, logP = c, p
		}
	}
	if best.ends > 0 {
		values = values[:best.ends]
		slices.Sort(values)
		best.median = values[len(values)/2]
	}
	return best, logP
}

// lateAge looks for a limit on age of a path that notices it only when
// something is written, as a server with a deadline for the whole response
// does. Each stream died at some age between its last two writes; they must
// have one in common, and not be the first two: that is what a limit on silence
// looks like.
func (l *Learner) lateAge() (c cluster, ok bool) {
	newest := l.ends[len(l.ends)-1]
	if !newest.HeartbeatFailed {
		return c, false
	}
	c = cluster{hi: newest.Age, failed: true}
	var lastIn time.Time
	inside, others := 0, 0
	for _, e := range slices.Backward(l.ends) {
		if l.explains(e) != nil {
			continue
		}
		lo, hi := max(c.lo, e.Age-e.Silence), min(c.hi, e.Age)
		if !e.HeartbeatFailed || lo >= hi || lo < hi/2 {
			others++
			continue
		}
		c.lo, c.hi, c.median = lo, hi, hi
		c.ends++
		if inside > 0 && lastIn.Sub(e.At) < l.apart(hi) {
			continue
		}
		lastIn = e.At
		inside++
		if l.logProbability(Age, c, inside, others) < math.Log(chance) {
			return c, l.livedPast(Age, e.At, float64(c.hi)*(1+slack)) == 0
		}
	}
	return c, false
}

// beyond counts the streams that lived past a candidate since a time.
func (l *Learner) beyond(k Kind, since time.Time, c cluster) int {
	limit := float64(c.hi) * (1 + max(slack, c.width()))
	if c.failed { // found at the heartbeat: whoever lived through one contradicts
		limit = float64(c.lo) * (1 - slack)
	}
	return l.livedPast(k, since, limit)
}

// livedPast counts the streams that lived past a limit since a time.
func (l *Learner) livedPast(k Kind, since time.Time, limit float64) int {
	n := 0
	for _, s := range l.survivors[k] {
		if !s.at.Before(since) && float64(s.value) > limit {
			n++
		}
	}
	for _, e := range l.ends {
		if !e.At.Before(since) && float64(e.lived(k)) > limit {
			n++
		}
	}
	return n
}

// width is how far apart the ends are, as a part of the value. It is never
// zero: clocks are not that good.
func (c cluster) width() float64 { return float64(c.hi-c.lo+c.late+time.Millisecond) / float64(c.hi) }

// tolerated is how many streams may have lived past a candidate of m ends.
func (c cluster) tolerated(m int) int {
	if c.failed {
		return 0
	}
	return m / 3
}

// logProbability is that of m ends among m and others lying so close together by
// chance; 0 where that is no candidate at all. Where a limit on silence has the
// same value, the place was known before, and one end less is needed: it was
// age that looked like silence.
func (l *Learner) logProbability(k Kind, c cluster, m, others int) float64 {
	need, free := l.o.MinEnds, m-1
	for _, known := range l.limits {
		if k == Age && known.Kind == Silence && known.lo <= c.hi && c.lo <= known.hi+known.hi/50 {
			need, free = l.o.MinEnds-1, m
		}
	}
	if c.failed { // how close they are says nothing: all were found by a heartbeat
		return l.logChoose(m+others, m) + float64(m)*math.Log(foundByChance)
	}
	if m < need || c.width() > l.o.Spread {
		return 0
	}
	return l.logChoose(m+others, m) + float64(free)*math.Log(c.width())
}

// logChoose is the logarithm of n over m.
func (l *Learner) logChoose(n, m int) float64 {
	n = min(n, len(l.logFact)-1)
	return l.logFact[n] - l.logFact[m] - l.logFact[n-m]
}

func logFactorials(n int) []float64 {
	all := make([]float64, n+1)
	for i := 1; i <= n; i++ {
		all[i] = all[i-1] + math.Log(float64(i))
	}
	return all
}
