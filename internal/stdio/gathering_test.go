package stdio

import "testing"

// TestGatheringGoesByWhatItBrings: it goes on while writes are shared, rests where
// they are not, and is tried again.
func TestGatheringGoesByWhatItBrings(t *testing.T) {
	for name, tt := range map[string]struct {
		messages, bytes int // of each write
		pays            bool
	}{
		"many short ones":    {4, 4 * 300, true},
		"one at a time":      {1, 300, false},
		"two at a time":      {2, 2 * 300, false},
		"many that are long": {4, 4 * 64 << 10, false},
	} {
		t.Run(name, func(t *testing.T) {
			var g gathering
			if !g.pays() {
				t.Error("it is not tried at first")
			}
			for range 3 * trialWrites {
				g.wrote(tt.messages, tt.bytes)
			}
			if g.pays() != tt.pays {
				t.Errorf("it pays: %v, want %v", g.pays(), tt.pays)
			}
			for range restWrites {
				g.wrote(1, 300)
			}
			for i := 0; !g.pays(); i++ {
				if i > restWrites {
					t.Fatal("it is not tried again")
				}
				g.wrote(1, 300)
			}
			for range trialWrites {
				g.wrote(8, 8*300)
			}
			if !g.pays() {
				t.Error("it was given up though it pays by now")
			}
		})
	}
}
