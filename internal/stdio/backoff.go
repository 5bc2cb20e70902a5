package stdio

import "time"

const (
	backoffFirst = 500 * time.Millisecond
	backoffMax   = 30 * time.Second
	backoffLife  = 10 * time.Second
)

// Backoff spaces the restarts of a process that keeps ending: the first
// restart is at once, then the delay doubles from 500 ms to 30 s, and a life of
// 10 s starts it over. It is a plain value without clock; the zero value is
// ready. Not safe for concurrent use.
type Backoff struct {
	delay time.Duration // the one before the latest start
	start time.Time     // when that start was due; zero before the first restart
}

// Next is called when the process has ended, or could not be started, at now,
// and returns how long to wait before it is started again. What it returned is
// taken to be waited for: the life that follows is counted from there.
func (b *Backoff) Next(now time.Time) time.Duration {
	switch {
	case b.start.IsZero() || now.Sub(b.start) >= backoffLife:
		b.delay = 0
	default:
		b.delay = min(max(2*b.delay, backoffFirst), backoffMax)
	}
	b.start = now.Add(b.delay)
	return b.delay
}
