package remote

import (
	"context"
	"math/rand/v2"
	"time"
)

// pace spaces tries: each wait is twice the one before. A plain value; the zero
// value begins at once.
type pace struct{ n int }

// Waits.
const (
	defaultRetry = time.Second      // before a stream is opened again, unless the server says
	longEnough   = 10 * time.Second // a stream that lived so long was a good one
	pollMax      = 5 * time.Second  // between polls that the server asked for by closing in order
	sendFirst    = 250 * time.Millisecond
	sendMax      = 5 * time.Second
)

// next returns a wait between base and limit, and up to a quarter more, so that
// clients that lost the same server do not come back as one.
func (p *pace) next(base, limit time.Duration) time.Duration {
	wait := base << min(p.n, 20)
	if wait > limit || wait < base {
		wait = max(base, limit)
	}
	spread := wait / 10
	if p.n > 0 {
		spread = wait / 4
	}
	p.n++
	return wait + rand.N(spread+1)
}

func (p *pace) reset() { p.n = 0 }

// pause waits, and reports false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
