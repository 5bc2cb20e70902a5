package pathlimit_test

import (
	"testing"

	"github.com/holdfast-mcp/holdfast/internal/pathlimit"
)

func TestWatch(t *testing.T) {
	type proof struct{ at, silence float64 }
	for _, c := range []struct {
		name   string
		writes []float64 // seconds after the opening
		end    float64
		proofs []proof
		want   pathlimit.End // but for At, Age and Abrupt
	}{
		{"silent from the start", nil, 3, nil, pathlimit.End{Silence: seconds(3)}},
		{"messages in quick order", []float64{.2, .4, .6}, 3, nil, pathlimit.End{Silence: seconds(2.4)}},
		{"a heartbeat is proven by the next", []float64{15, 30}, 33, []proof{{30, 15}}, pathlimit.End{Silence: seconds(3), Survived: seconds(15)}},
		{"or by living on", []float64{15}, 17, nil, pathlimit.End{Silence: seconds(2), Survived: seconds(15)}},
		{"or by messages after a while", []float64{15, 15.2, 15.9}, 16, []proof{{15.9, 15}}, pathlimit.End{Silence: seconds(.1)}},
		{"a heartbeat that was reset", []float64{15}, 15.1, nil, pathlimit.End{Silence: seconds(15), HeartbeatFailed: true}},
		{"the second one that was reset", []float64{15, 30}, 30.1, []proof{{30, 15}}, pathlimit.End{Silence: seconds(15), HeartbeatFailed: true}},
		{"gone right after a burst", []float64{.1, .2, .3}, .31, nil, pathlimit.End{Silence: seconds(.01)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := pathlimit.Open(start)
			var proofs []proof
			for _, at := range c.writes {
				if silence, ok := w.Wrote(start.Add(seconds(at))); ok {
					proofs = append(proofs, proof{at, silence.Seconds()})
				}
			}
			got := w.End(start.Add(seconds(c.end)), true, false)
			c.want.At, c.want.Age, c.want.Abrupt = start.Add(seconds(c.end)), seconds(c.end), true
			if got != c.want {
				t.Errorf("end %+v, want %+v", got, c.want)
			}
			if len(proofs) != len(c.proofs) || len(proofs) > 0 && proofs[0] != c.proofs[0] {
				t.Errorf("proofs %v, want %v", proofs, c.proofs)
			}
		})
	}
}
