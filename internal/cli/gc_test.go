package cli

import "testing"

func TestMemoryGoesBackOnceABurstIsOver(t *testing.T) {
	const mib = 1 << 20
	var b burst
	for i, look := range []struct {
		allocated uint64
		over      bool
	}{
		{1 * mib, false},
		{1*mib + 1, false}, // quiet, but nothing to speak of
		{40 * mib, false},  // the burst
		{41 * mib, false},  // still going on
		{41*mib + 9, true}, // over
		{41*mib + 99, false},
		{44 * mib, false}, // less than a burst
		{44*mib + 9, false},
		{45*mib - 99, false},
		{45*mib - 9, false}, // nearly one since
		{46 * mib, false},
		{46*mib + 1, true},
	} {
		if got := b.over(look.allocated); got != look.over {
			t.Errorf("look %d, at %d bytes: %v, want %v", i, look.allocated, got, look.over)
		}
	}
}
