package cli

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// How much garbage may pile up between collections. A gateway's live heap is
// small and its garbage comes fast: Go's default, as much as is live, collects
// all the time; a high percentage is dear once thousands of streams are live.
const (
	garbageBytes = 32 << 20
	percentMin   = 50
	percentMax   = 400
)

// gcMark is garbage from the start: its finalizer runs once after each
// collection.
type gcMark struct{ _ [16]byte }

// tuneGC lets about garbageBytes of garbage pile up, whatever is live, and gives
// memory back to the system when a burst is over, until stop is called. GOGC in
// the environment turns both off.
func tuneGC() (stop func()) {
	if envOr("GOGC", "") != "" {
		return func() {}
	}
	t := &gcTuner{percent: percentMax, sample: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}
	debug.SetGCPercent(t.percent)
	t.arm()
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() { giveBack(done) })
	return func() { close(done); wg.Wait() }
}

type gcTuner struct {
	percent int
	sample  []metrics.Sample
}

func (t *gcTuner) arm() {
	runtime.SetFinalizer(&gcMark{}, func(*gcMark) {
		t.adjust()
		t.arm()
	})
}

// adjust sets the percentage for the heap that is live now. Setting it stops
// the world for a moment: it is left alone while it is less than a third too
// high, or than half too low.
func (t *gcTuner) adjust() {
	metrics.Read(t.sample)
	live := max(t.sample[0].Value.Uint64(), 1<<20)
	want := int(min(max(garbageBytes*100/live, percentMin), percentMax))
	if want*4 <= t.percent*3 || want >= t.percent*2 {
		t.percent = want
		debug.SetGCPercent(want)
	}
}

// When memory goes back to the system: Go returns pages slowly, and collects
// nothing while nothing is allocated, so that a burst of calls, once they wait
// for their server, would be seen in the process's size for minutes.
const (
	quietTime  = 2 * time.Second
	quietBytes = 256 << 10 // allocated in that time: hardly anything goes on
	burstBytes = 4 << 20   // allocated since memory went back: worth a collection
)

// giveBack gives memory back each time that a burst is over.
func giveBack(done <-chan struct{}) {
	ticker := time.NewTicker(quietTime)
	defer ticker.Stop()
	var b burst
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
		}
		metrics.Read(sample)
		if b.over(sample[0].Value.Uint64()) {
			debug.FreeOSMemory()
		}
	}
}

// burst tells when much was allocated, and no more is.
type burst struct {
	last  uint64 // bytes allocated by the last look
	given uint64 // by the look when memory went back
}

// over reports whether memory should go back now. allocated is all that the
// process has allocated, in bytes.
func (b *burst) over(allocated uint64) bool {
	quiet := allocated-b.last < quietBytes
	b.last = allocated
	if !quiet || allocated-b.given < burstBytes {
		return false
	}
	b.given = allocated
	return true
}
