package pathlimit

import "time"

// After a write that broke a silence, the reset that it may provoke has come
// within this part of the silence, and within this time.
const (
	settlePart = 0.05
	settleMax  = time.Second
)

// Shorter silences than brief say nothing about what ends a stream, and to survive one that is
// shorter than worthwhile is no news.
const (
	brief      = 50 * time.Millisecond
	worthwhile = time.Second
)

// Watch keeps the times of one open stream and makes of them what a Learner
// wants to know. The zero value is not useful; see Open. Not safe for
// concurrent use.
type Watch struct {
	opened, wrote time.Time
	silence       time.Duration // before a write of which it is not known yet whether it arrived; 0: none
	broken        time.Time     // when that write was
}

// Open returns the Watch of a stream that was opened, and first written to, now.
func Open(now time.Time) Watch { return Watch{opened: now, wrote: now} }

// Age returns how long the stream has been open.
func (w *Watch) Age(now time.Time) time.Duration { return now.Sub(w.opened) }

// Wrote takes note of a write. It returns the silence that the stream has now
// proven to have survived, if it has: a reason for Learner.Survived.
func (w *Watch) Wrote(now time.Time) (silence time.Duration, survived bool) {
	if silence = w.proven(now); silence > 0 {
		survived, w.silence = silence >= worthwhile, 0
	}
	if gap := now.Sub(w.wrote); gap >= brief && gap > w.silence {
		w.silence, w.broken = gap, now
	}
	w.wrote = now
	return silence, survived
}

// proven returns the silence that the stream is known to have survived, 0 if none.
func (w *Watch) proven(now time.Time) time.Duration {
	if now.Sub(w.broken) < min(settleMax, time.Duration(settlePart*float64(w.silence))) {
		return 0
	}
	return w.silence
}

// End returns how the stream ended. failed says that a write failed; an end
// right after a write that broke a silence is taken for the same.
func (w *Watch) End(now time.Time, abrupt, failed bool) End {
	e := End{At: now, Age: now.Sub(w.opened), Silence: now.Sub(w.wrote), Abrupt: abrupt, HeartbeatFailed: failed}
	switch survived := w.proven(now); {
	case survived >= worthwhile:
		e.Survived = survived
	case survived == 0 && w.silence > 0:
		e.Silence, e.HeartbeatFailed = w.silence, true
	}
	return e
}
