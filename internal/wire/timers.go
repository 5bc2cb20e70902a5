package wire

import (
	"sync"
	"time"
)

// Timers are timers that are used again: each request needs one, and most are
// answered long before it fires. The zero value is ready. Safe for concurrent
// use.
type Timers struct{ pool sync.Pool }

// Get returns a timer that fires after d. Put it back.
func (t *Timers) Get(d time.Duration) *time.Timer {
	if timer, ok := t.pool.Get().(*time.Timer); ok {
		timer.Reset(d)
		return timer
	}
	return time.NewTimer(d)
}

// Put stops a timer that nobody waits for any more, and takes it back.
func (t *Timers) Put(timer *time.Timer) {
	timer.Stop()
	t.pool.Put(timer)
}
