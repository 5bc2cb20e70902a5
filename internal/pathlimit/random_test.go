package pathlimit_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/pathlimit"
)

func exponential(rng *rand.Rand, mean time.Duration) func() time.Duration {
	return func() time.Duration { return time.Duration(rng.ExpFloat64() * float64(mean)) }
}

// leaving are ways to leave at random.
var leaving = map[string]func(rng *rand.Rand, mean time.Duration) func() time.Duration{
	"exponential": exponential,
	"uniform": func(rng *rand.Rand, mean time.Duration) func() time.Duration {
		return func() time.Duration { return time.Duration(rng.Float64() * 2 * float64(mean)) }
	},
	"log-normal": func(rng *rand.Rand, mean time.Duration) func() time.Duration {
		return func() time.Duration { return time.Duration(math.Exp(rng.NormFloat64()*0.5) * float64(mean)) }
	},
}

func between(rng *rand.Rand, lo, hi time.Duration) time.Duration {
	return time.Duration(float64(lo) * math.Pow(float64(hi)/float64(lo), rng.Float64()))
}

// TestRandomLeavesTeachNothing: clients that leave when they like, with 100
// streams in each of 1,000 seeds. Never is not to be had: 3 of 1,000 exponential
// leaves look exactly alike now and then. The rate is about one in 100,000
// ends, and what such a limit costs is some heartbeats.
func TestRandomLeavesTeachNothing(t *testing.T) {
	for name, by := range leaving {
		t.Run(name, func(t *testing.T) { leaveAtRandom(t, by, 1000, 2*time.Second, false) })
		// Where proxies tell of it only when written to, all that can be seen is which
		// heartbeat found it out. If nobody in twenty stays for the first one, that is
		// taken for a limit below it; so these stay a little longer.
		t.Run(name+", noticed late", func(t *testing.T) { leaveAtRandom(t, by, 300, 15*time.Second, true) })
	}
}

func leaveAtRandom(t *testing.T, by func(*rand.Rand, time.Duration) func() time.Duration, seeds uint64, shortest time.Duration, late bool) {
	wrong, bounds, ends := 0, 0, 0
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 1))
		mean := between(rng, shortest, 5*time.Minute)
		w := &world{rng: rng, learner: pathlimit.New(pathlimit.Options{}), configured: 15 * time.Second,
			clients: 1 + rng.IntN(8), streams: 100, leave: by(rng, mean), answer: exponential(rng, 4*mean), late: late}
		if rng.IntN(2) == 0 {
			w.progress = exponential(rng, between(rng, time.Second, time.Minute))
		}
		value, bound := 0, 0
		w.learned = func(l pathlimit.Limit) {
			if l.AtMost && l.Kind == pathlimit.Silence {
				bound = 1
			} else {
				value = 1
			}
		}
		w.ended = func(pathlimit.End, why) { ends++ }
		w.run()
		wrong, bounds = wrong+value, bounds+bound
	}
	t.Logf("of %d seeds %d learned a value, %d a bound, from %d ends", seeds, wrong, bounds, ends)
	if wrong > 2 || bounds > 2 {
		t.Errorf("random leaves taught a value in %d and a bound in %d of %d seeds", wrong, bounds, seeds)
	}
}

func TestLimitIsFoundAmongNoise(t *testing.T) {
	for _, kind := range []pathlimit.Kind{pathlimit.Silence, pathlimit.Age} {
		for _, jitter := range []float64{0.001, 0.01, 0.04} {
			for _, noise := range []float64{0, 0.3, 0.6} {
				t.Run(fmt.Sprintf("%v jitter %v noise %v", kind, jitter, noise), func(t *testing.T) {
					findLimits(t, kind, jitter, noise)
				})
			}
		}
	}
}

func findLimits(t *testing.T, kind pathlimit.Kind, jitter, noise float64) {
	const seeds = 30
	missed, wrong, cuts := 0, 0, 0
	worst := 0.0
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 2))
		limit := between(rng, 2*time.Second, 10*time.Minute)
		w := &world{rng: rng, learner: pathlimit.New(pathlimit.Options{}), configured: 20 * time.Minute, jitter: jitter,
			clients: 1 + rng.IntN(4), streams: 120, answer: func() time.Duration { return 100 * limit }}
		w.leave = func() time.Duration {
			if rng.Float64() < noise {
				return time.Duration(rng.ExpFloat64() * float64(limit) / 2)
			}
			return 0
		}
		if kind == pathlimit.Silence {
			w.silence = limit
		} else {
			w.age = limit
			w.configured = limit * 2 / 5
			w.progress = exponential(rng, limit/4)
		}
		found, n := false, 0
		w.learned = func(l pathlimit.Limit) {
			off := math.Abs(float64(l.Value-limit)) / float64(limit)
			if l.Kind != kind || off > 0.10 {
				wrong++
				t.Logf("seed %d: %v of %v instead of %v", seed, l.Kind, l.Value, limit)
				return
			}
			found, worst = true, max(worst, off)
		}
		w.ended = func(_ pathlimit.End, y why) {
			if (y == bySilence || y == byAge) && !found {
				n++
			}
		}
		w.run()
		cuts += n
		if !found {
			missed++
		}
	}
	t.Logf("missed %d, wrong %d of %d seeds; %.1f cuts to learn; off by %.1f %% at most", missed, wrong, seeds, float64(cuts)/seeds, 100*worst)
	if missed > 0 || wrong > seeds/100 {
		t.Errorf("missed %d, wrong %d of %d seeds", missed, wrong, seeds)
	}
}

// TestAgeThatLooksLikeSilence: all streams are silent from their start, and the path cuts by
// age. That it is not silence shows once the heartbeat is short.
func TestAgeThatLooksLikeSilence(t *testing.T) {
	const seeds = 30
	total := 0
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 4))
		limit := between(rng, 2*time.Second, 2*time.Minute)
		w := &world{rng: rng, learner: pathlimit.New(pathlimit.Options{}), configured: 15 * time.Second, jitter: 0.005,
			age: limit, clients: 1 + rng.IntN(4), streams: 100, answer: func() time.Duration { return 100 * limit }}
		isAge, cuts := false, 0
		w.learned = func(l pathlimit.Limit) {
			if off := math.Abs(float64(l.Value-limit)) / float64(limit); off > 0.10 {
				t.Errorf("seed %d: %v of %v instead of age %v", seed, l.Kind, l.Value, limit)
			}
			isAge = isAge || l.Kind == pathlimit.Age
		}
		w.ended = func(pathlimit.End, why) {
			if !isAge {
				cuts++
			}
		}
		w.run()
		total += cuts
		if all := w.learner.Limits(w.now); !isAge || len(all) != 1 {
			t.Errorf("seed %d: %+v at the end instead of age %v", seed, all, limit)
		}
	}
	t.Logf("%.1f cuts to learn", float64(total)/seeds)
}

// TestAgeNoticedLate: the path looks at the age only when something is written,
// so that neither heartbeats nor anything else tell it from silence at first.
func TestAgeNoticedLate(t *testing.T) {
	const seeds = 30
	total := 0
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 5))
		limit := between(rng, 4*time.Second, 10*time.Minute)
		w := &world{rng: rng, learner: pathlimit.New(pathlimit.Options{}), configured: 15 * time.Second,
			age: limit, late: true, clients: 1 + rng.IntN(4), streams: 250, answer: func() time.Duration { return 100 * limit }}
		isAge, cuts := false, 0
		w.learned = func(l pathlimit.Limit) { isAge = isAge || l.Kind == pathlimit.Age }
		w.ended = func(pathlimit.End, why) {
			if !isAge {
				cuts++
			}
		}
		w.run()
		total += cuts
		all := w.learner.Limits(w.now)
		if rotate, ok := w.learner.Rotate(w.now); !ok || rotate > limit || rotate < limit/3 {
			t.Errorf("seed %d: rotation %v %v where the path cuts at %v; %+v", seed, rotate, ok, limit, all)
		}
		if beat := w.learner.Heartbeat(w.now, w.configured); beat < w.configured {
			t.Errorf("seed %d: heartbeat %v; %+v", seed, beat, all)
		}
	}
	t.Logf("%.1f cuts to learn", float64(total)/seeds)
}
