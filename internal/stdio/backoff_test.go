package stdio

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	type end struct {
		life time.Duration // from the start that Next asked for
		want time.Duration
	}
	tests := []struct {
		name string
		ends []end
	}{
		{"the first is at once, however short the life", []end{{0, 0}}},
		{"doubles to the limit", []end{
			{0, 0}, {0, 500 * ms}, {0, 1 * s}, {0, 2 * s}, {0, 4 * s}, {0, 8 * s}, {0, 16 * s}, {0, 30 * s}, {0, 30 * s},
		}},
		{"a life just too short does not count", []end{{0, 0}, {10*s - 1, 500 * ms}, {10*s - 1, 1 * s}}},
		{"a life of ten seconds starts over", []end{{0, 0}, {0, 500 * ms}, {0, 1 * s}, {10 * s, 0}, {0, 500 * ms}}},
		{"the delay is not life", []end{{0, 0}, {0, 500 * ms}, {0, 1 * s}, {0, 2 * s}, {0, 4 * s}, {0, 8 * s}, {0, 16 * s}, {1 * s, 30 * s}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b Backoff
			now := time.Unix(1000, 0)
			for i, end := range tt.ends {
				now = now.Add(end.life)
				got := b.Next(now)
				if got != end.want {
					t.Errorf("end %d: got %v, want %v", i, got, end.want)
				}
				now = now.Add(got)
			}
		})
	}
}
