package cli

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
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

// tuneGC lets about garbageBytes of garbage pile up, whatever is live. GOGC in
// the environment turns it off.
func tuneGC() {
	if envOr("GOGC", "") != "" {
		return
	}
	t := &gcTuner{percent: percentMax, sample: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}
	debug.SetGCPercent(t.percent)
	t.arm()
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
// the world for a moment, so small changes are left alone.
func (t *gcTuner) adjust() {
	metrics.Read(t.sample)
	live := max(t.sample[0].Value.Uint64(), 1<<20)
	want := int(min(max(garbageBytes*100/live, percentMin), percentMax))
	if want*2 <= t.percent || want >= t.percent*2 {
		t.percent = want
		debug.SetGCPercent(want)
	}
}
