package pathlimit_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/observe"
	"github.com/holdfast-mcp/holdfast/internal/pathlimit"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const heartbeat = 15 * time.Second

// end is a stream that died at a time after start.
func end(at, age, silence float64) pathlimit.End {
	return pathlimit.End{At: start.Add(seconds(at)), Age: seconds(age), Silence: seconds(silence), Abrupt: true}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// found is one that was found dead by a heartbeat, and had survived those before.
func found(at float64, age, silence float64) pathlimit.End {
	e := end(at, age, silence)
	e.HeartbeatFailed = true
	if age >= 2*silence {
		e.Survived = seconds(silence)
	}
	return e
}

// times are ends, 100 s apart.
func times(n int, one func(at float64) pathlimit.End) (all []pathlimit.End) {
	for i := range n {
		all = append(all, one(100*float64(i)))
	}
	return all
}

// learn returns what the ends reveal, in order.
func learn(l *pathlimit.Learner, ends ...pathlimit.End) (all []pathlimit.Limit) {
	for _, e := range ends {
		if limit := l.Observe(e); limit != nil {
			all = append(all, *limit)
		}
	}
	return all
}

// silent are ends of streams that were silent from their start, ten seconds apart.
func silent(from float64, ages ...float64) (all []pathlimit.End) {
	for i, a := range ages {
		all = append(all, end(from+10*float64(i), a, a))
	}
	return all
}

func TestWhatIsLearned(t *testing.T) {
	type limit struct {
		kind   pathlimit.Kind
		value  float64
		atMost bool
	}
	orderly := end(20, 3, 3)
	orderly.Abrupt = false
	for _, c := range []struct {
		name string
		ends []pathlimit.End
		want []limit
	}{
		{"nothing", nil, nil},
		{"two ends are too few", silent(0, 3, 3), nil},
		{"three at the same silence", silent(0, 3.000, 3.001, 3.000), []limit{{pathlimit.Silence, 3.000, false}}},
		{"three that are not close enough", silent(0, 3.00, 3.02, 3.04), nil},
		{"four may be further apart", silent(0, 3.00, 3.01, 3.02, 3.01), []limit{{pathlimit.Silence, 3.01, false}}},
		{"a coarse timer", silent(0, 60.0, 62.1, 61.2, 64.0, 63.3, 60.7, 61.9, 62.5, 63.0), []limit{{pathlimit.Silence, 62.1, false}}},
		{"silences cluster, ages scatter", []pathlimit.End{end(0, 4, 3), end(20, 17, 3.001), end(40, 31, 3)}, []limit{{pathlimit.Silence, 3, false}}},
		{"ages cluster, silences scatter", []pathlimit.End{end(0, 30, 1), end(40, 30.005, 9), end(80, 30, 4)},
			[]limit{{pathlimit.Age, 30, false}}},
		{"ages scatter", []pathlimit.End{end(0, 30, 1), end(40, 12, 9), end(80, 47, 4), end(120, 5, 2), end(160, 71, 7)}, nil},
		{"an answered stream is none", append(silent(0, 3, 3), orderly), nil},
		{"among leaves before it", []pathlimit.End{end(0, 1.2, 1.2), end(10, 3, 3), end(20, 2.2, 2.2), end(30, 3, 3), end(40, 3, 3), end(50, 3, 3)},
			[]limit{{pathlimit.Silence, 3, false}}},
		{"others lived longer", []pathlimit.End{end(0, 3, 3), end(10, 9, 9), end(20, 3, 3), end(30, 7, 7), end(40, 3, 3)}, nil},
		{"a client that is killed with its streams", []pathlimit.End{end(7, 7, 7), end(7, 7, 7), end(7.01, 7.01, 7.01), end(7.02, 7, 7), end(7.02, 7, 7)}, nil},
		{"shorter than the floor", silent(0, 0.5, 0.5, 0.5, 0.5, 0.5), nil},
		{"found dead by each first heartbeat", times(20, func(at float64) pathlimit.End { return found(at, 15, 15) }), []limit{{pathlimit.Silence, 15, true}}},
		{"less often", times(19, func(at float64) pathlimit.End { return found(at, 15, 15) }), nil},
		{"one came through", append(times(10, func(at float64) pathlimit.End { return found(at, 15, 15) }),
			append([]pathlimit.End{found(1010, 30, 15)}, times(10, func(at float64) pathlimit.End { return found(1020+at, 15, 15) })...)...), nil},
		{"found too old by the fifth heartbeat", times(20, func(at float64) pathlimit.End { return found(at, 75, 15) }), []limit{{pathlimit.Age, 75, true}}},
		{"found too old by what comes often", times(8, func(at float64) pathlimit.End { return found(at, 60.2, 1.2) }), []limit{{pathlimit.Age, 60.2, true}}},
		{"silent from the start, and dead at that age all the same",
			[]pathlimit.End{end(0, 10, 10), end(20, 10, 10), end(40, 10.001, 10.001), end(60, 10, 3.3), end(80, 10.001, 3.3)},
			[]limit{{pathlimit.Silence, 10, false}, {pathlimit.Age, 10.001, false}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := learn(pathlimit.New(pathlimit.Options{}), c.ends...)
			if len(got) != len(c.want) {
				t.Fatalf("learned %+v, want %v", got, c.want)
			}
			for i, w := range c.want {
				if g := got[i]; g.Kind != w.kind || g.Value != seconds(w.value) || g.AtMost != w.atMost {
					t.Errorf("learned %+v, want %v", g, w)
				}
			}
		})
	}
}

func TestSaidOnce(t *testing.T) {
	l := pathlimit.New(pathlimit.Options{})
	got := learn(l, silent(0, 3, 3, 3, 3.05, 3.1, 3.02, 2.95, 3.1, 3.1, 3.1, 3.1)...)
	if len(got) != 1 {
		t.Errorf("said %d times: %+v", len(got), got)
	}
	all := l.Limits(start.Add(time.Minute))
	if len(all) != 1 || all[0].Ends < 4 || !all[0].Since.Equal(start.Add(20*time.Second)) {
		t.Errorf("limits: %+v", all)
	}
}

// TestSilenceGivesWayToAge: once the heartbeat is short and streams still die
// at that age, silence was not it.
func TestSilenceGivesWayToAge(t *testing.T) {
	l := pathlimit.New(pathlimit.Options{})
	learn(l, silent(0, 10, 10, 10)...)
	now := start.Add(30 * time.Second)
	if got := l.Heartbeat(now, heartbeat); got != seconds(10)*2/3 {
		t.Fatalf("heartbeat %v", got)
	}
	learn(l, end(40, 10, 3.34), end(60, 10, 3.34))
	now = start.Add(70 * time.Second)
	if all := l.Limits(now); len(all) != 1 || all[0].Kind != pathlimit.Age {
		t.Errorf("limits: %+v", all)
	}
	if got := l.Heartbeat(now, heartbeat); got != heartbeat {
		t.Errorf("heartbeat %v", got)
	}
	if age, ok := l.Rotate(now); !ok || age != 9*time.Second {
		t.Errorf("rotation %v %v", age, ok)
	}
	if more := learn(l, silent(100, 10, 10, 10, 10)...); len(more) > 0 {
		t.Errorf("what age explains taught %+v", more)
	}
}

func TestHeartbeatAndRotation(t *testing.T) {
	for _, c := range []struct {
		name       string
		ends       []pathlimit.End
		configured time.Duration
		beat, age  time.Duration
	}{
		{"nothing known", nil, heartbeat, heartbeat, 0},
		{"none wanted", silent(0, 3, 3, 3), 0, 0, 0},
		{"two thirds", silent(0, 6, 6, 6), heartbeat, 4 * time.Second, 0},
		{"the configured one is shorter", silent(0, 60, 60, 60), heartbeat, heartbeat, 0},
		{"never below the floor", silent(0, 1, 1.001, 1, 1), heartbeat, time.Second, 0},
		{"a configured one below the floor stays", silent(0, 1, 1.001, 1, 1), 500 * time.Millisecond, 500 * time.Millisecond, 0},
		{"before an age", []pathlimit.End{end(0, 100, 1), end(200, 100, 7), end(400, 100, 3)}, heartbeat, heartbeat, 90 * time.Second},
		{"before a long age", []pathlimit.End{end(0, 3600, 1), end(4000, 3600, 7), end(8000, 3600, 3)}, heartbeat, heartbeat, 3590 * time.Second},
		{"no rotation every second", []pathlimit.End{end(0, 1.5, .1), end(4, 1.5, .7), end(8, 1.5, .3)}, heartbeat, heartbeat, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := pathlimit.New(pathlimit.Options{})
			now := start
			for _, e := range c.ends {
				l.Observe(e)
				now = e.At
			}
			if len(c.ends) > 0 && len(l.Limits(now)) == 0 {
				t.Fatal("nothing learned")
			}
			if got := l.Heartbeat(now, c.configured); got != c.beat {
				t.Errorf("heartbeat %v, want %v", got, c.beat)
			}
			if got, ok := l.Rotate(now); got != c.age || ok != (c.age > 0) {
				t.Errorf("rotation %v %v, want %v", got, ok, c.age)
			}
		})
	}
}

func TestForgotten(t *testing.T) {
	l := pathlimit.New(pathlimit.Options{Forget: 10 * time.Minute})
	learn(l, silent(0, 3, 3, 3)...)
	beatAt := func(at float64) time.Duration { return l.Heartbeat(start.Add(seconds(at)), heartbeat) }
	if beatAt(20+599) != 2*time.Second || beatAt(20+601) != heartbeat {
		t.Fatalf("heartbeats %v, %v", beatAt(20+599), beatAt(20+601))
	}
	if len(l.Limits(start.Add(seconds(621)))) != 0 {
		t.Error("a forgotten limit is listed")
	}
	// One more end brings it back, for twice as long, without another word.
	if got := learn(l, end(700, 3, 3)); got != nil {
		t.Errorf("said again: %+v", got)
	}
	if beatAt(700+1199) != 2*time.Second || beatAt(700+1201) != heartbeat {
		t.Errorf("heartbeats %v, %v", beatAt(700+1199), beatAt(700+1201))
	}
	// After days it has to be learned anew.
	const later = 5 * 24 * 3600
	if got := learn(l, silent(later, 3, 3)...); got != nil || beatAt(later+30) != heartbeat {
		t.Errorf("remembered for days: %+v", got)
	}
	if got := learn(l, end(later+40, 3, 3)); len(got) != 1 {
		t.Errorf("not learned anew: %+v", got)
	}
}

// TestSurvivorsContradict: streams that live past a limit end it, and it takes
// as many streams again to believe it.
func TestSurvivorsContradict(t *testing.T) {
	l := pathlimit.New(pathlimit.Options{})
	learn(l, silent(0, 3, 3, 3)...)
	for i := range 3 {
		if len(l.Limits(start.Add(time.Minute))) != 1 {
			t.Fatalf("given up after %d survivors", i)
		}
		at := start.Add(seconds(30 + 10*float64(i)))
		l.Survived(at, time.Hour, 15*time.Second)
		l.Survived(at, time.Hour, 15*time.Second) // the same moment says no more
	}
	now := start.Add(time.Minute)
	if len(l.Limits(now)) != 0 || l.Heartbeat(now, heartbeat) != heartbeat {
		t.Fatal("not given up")
	}
	if got := learn(l, silent(70, 3, 3)...); got != nil {
		t.Errorf("two ends after it was contradicted: %+v", got)
	}

	l = pathlimit.New(pathlimit.Options{})
	learn(l, silent(0, 3, 3, 3)...)
	l.Survived(start.Add(30*time.Second), time.Hour, 3*time.Second)
	l.Survived(start.Add(40*time.Second), time.Hour, 2*time.Second)
	l.Survived(start.Add(50*time.Second), time.Hour, 3200*time.Millisecond)
	if len(l.Limits(start.Add(time.Minute))) != 1 {
		t.Error("given up for streams that did not live past it")
	}

	l = pathlimit.New(pathlimit.Options{})
	for i := range 20 { // quiet streams live through their heartbeats, one client ends its own after 14 s
		l.Survived(start.Add(seconds(10*float64(i))), time.Hour, heartbeat)
		if got := l.Observe(end(10*float64(i)+5, 14, 14)); got != nil {
			t.Fatalf("learned %+v", got)
		}
	}
}

// TestPoison: what one hostile client can do to its route, and only to it. It
// opens streams and closes them after exactly a second.
func TestPoison(t *testing.T) {
	l := pathlimit.New(pathlimit.Options{})
	at := 0.0
	for range 10_000 {
		at += 1.3
		l.Observe(end(at, 1, 1))
	}
	now := start.Add(seconds(at))
	if got := l.Heartbeat(now, heartbeat); got != time.Second {
		t.Errorf("heartbeat %v, want the floor", got)
	}
	if age, ok := l.Rotate(now); ok {
		t.Errorf("streams of others are closed after %v", age)
	}
	if n := len(l.Limits(now)); n > 4 {
		t.Errorf("%d limits", n)
	}
	for i := range 3 { // others are silent for more than a second, as soon as that is tried
		l.Survived(now.Add(time.Duration(i)*time.Second), time.Hour, 1200*time.Millisecond)
	}
	if got := l.Heartbeat(now, heartbeat); got != heartbeat {
		t.Errorf("heartbeat %v after it was contradicted", got)
	}
}

func TestClassify(t *testing.T) {
	silence, age := pathlimit.New(pathlimit.Options{}), pathlimit.New(pathlimit.Options{})
	learn(silence, silent(0, 3, 3, 3)...)
	learn(age, end(0, 100, 1), end(200, 100, 7), end(400, 100, 3))
	for _, c := range []struct {
		name    string
		learner *pathlimit.Learner
		end     pathlimit.End
		cause   observe.Cause
		who     observe.Party
		sure    observe.Sureness
	}{
		{"nothing learned", pathlimit.New(pathlimit.Options{}), end(500, 3, 3), observe.ClientLeft, observe.Client, observe.Guess},
		{"at the silence", silence, end(500, 8, 3.01), observe.PathSilence, observe.Path, observe.Likely},
		{"before the silence", silence, end(500, 8, 2.8), observe.ClientLeft, observe.Client, observe.Guess},
		{"found dead after the silence", silence, found(500, 8, 4), observe.PathSilence, observe.Path, observe.Likely},
		{"found dead before the silence", silence, found(500, 8, 2), observe.HeartbeatFailed, observe.Client, observe.Guess},
		{"at the age", age, end(500, 100.5, 2), observe.PathAge, observe.Path, observe.Likely},
		{"before the age", age, end(500, 90, 2), observe.ClientLeft, observe.Client, observe.Guess},
	} {
		t.Run(c.name, func(t *testing.T) {
			cause, who, sure := c.learner.Classify(c.end)
			if cause != c.cause || who != c.who || sure != c.sure {
				t.Errorf("%v, %v, %v; want %v, %v, %v", cause, who, sure, c.cause, c.who, c.sure)
			}
		})
	}
}

// TestAnyInput: whatever is observed, in whatever order, nothing panics, and the promises of
// Heartbeat hold.
func TestAnyInput(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		l := pathlimit.New(pathlimit.Options{MinEnds: rng.IntN(5), Max: rng.IntN(10), Forget: time.Duration(rng.Int64N(int64(time.Hour)))})
		values := []time.Duration{-1, 0, 1, time.Second, 3 * time.Second, 3001 * time.Millisecond, time.Hour, 1 << 62}
		for range 1000 {
			pick := func() time.Duration { return values[rng.IntN(len(values))] }
			at := start.Add(time.Duration(rng.Int64N(int64(48 * time.Hour))))
			switch rng.IntN(3) {
			case 0:
				l.Survived(at, pick(), pick())
			default:
				e := pathlimit.End{At: at, Age: pick(), Silence: pick(), Survived: pick(), Abrupt: rng.IntN(9) > 0, HeartbeatFailed: rng.IntN(3) == 0}
				l.Observe(e)
				l.Classify(e)
			}
			beat := l.Heartbeat(at, heartbeat)
			if beat > heartbeat || beat < time.Second {
				t.Fatalf("heartbeat %v", beat)
			}
			if age, ok := l.Rotate(at); ok && age < time.Second {
				t.Fatalf("rotation %v", age)
			}
			if n := len(l.Limits(at)); n > 4 {
				t.Fatalf("%d limits", n)
			}
		}
	}
}
