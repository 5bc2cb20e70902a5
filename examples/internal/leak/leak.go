// Package leak tells whether a test left goroutines behind.
package leak

import (
	"runtime"
	"testing"
	"time"
)

// patience is how long goroutines may take to end after what they worked for.
const patience = 10 * time.Second

// Check fails the test if at its end, after all that is cleaned up later than
// it, more goroutines run than now.
func Check(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		limit := time.After(patience)
		for runtime.NumGoroutine() > before {
			select {
			case <-tick.C:
			case <-limit:
				stacks := make([]byte, 1<<20)
				t.Fatalf("%d goroutines more than at the start:\n%s", runtime.NumGoroutine()-before, stacks[:runtime.Stack(stacks, true)])
			}
		}
	})
}
