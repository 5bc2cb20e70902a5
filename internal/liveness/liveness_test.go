package liveness

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var t0 = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// peer is a simulated server and the owner of its Monitor.
type peer struct {
	*Monitor
	now    time.Time
	vitals Vitals
	serial int
	pings  int
	looks  int

	// How it behaves from now on.
	deaf      bool          // answers no ping
	refuses   bool          // answers them with an error
	delay     time.Duration // before it answers
	reads     bool          // reads its input though it does not answer
	cpu       float64       // cores
	io        float64       // bytes per second
	blind     bool          // the system tells nothing of it
	chatter   time.Duration // output that often, 0: never
	heldBack  []string      // ids of pings not answered yet
	answerAt  time.Time
	nextWords time.Time
}

func newPeer(s Settings) *peer {
	return &peer{Monitor: New(s, t0), now: t0, vitals: Vitals{Procs: 1}}
}

const simulated = 100 * time.Millisecond // one step of the simulation

// run lets time pass, doing what the Monitor asks for.
func (p *peer) run(d time.Duration) {
	wake := p.now
	for end := p.now.Add(d); p.now.Before(end); {
		if !wake.IsZero() && !p.now.Before(wake) {
			wake = p.do()
		}
		p.now = p.now.Add(simulated)
		p.vitals.CPU += time.Duration(p.cpu * float64(simulated))
		p.vitals.IO += uint64(p.io * simulated.Seconds())
		if p.speak() {
			wake = p.now
		}
	}
}

func (p *peer) do() time.Time {
	for range 10 {
		do, wake := p.Next(p.now)
		if do == 0 {
			return wake
		}
		if do&Ping != 0 {
			p.serial++
			p.pings++
			id := fmt.Sprint(p.serial)
			p.PingSent(p.now, id, 60)
			p.heldBack = append(p.heldBack, id)
			p.answerAt = p.now.Add(p.delay)
			if p.reads {
				p.vitals.IO += 60 + 8
			}
		}
		if do&Sample != 0 {
			p.looks++
			v := p.vitals
			v.At, v.Known = p.now, !p.blind
			p.Sampled(v)
		}
	}
	panic("Next asks without end for what was done")
}

func (p *peer) speak() (spoke bool) {
	if p.chatter > 0 && !p.now.Before(p.nextWords) {
		p.Heard(p.now)
		p.nextWords, spoke = p.now.Add(p.chatter), true
	}
	if p.deaf || p.now.Before(p.answerAt) {
		return spoke
	}
	for _, id := range p.heldBack {
		spoke = true
		if p.refuses {
			p.PingRefused(p.now)
		} else {
			p.PingAnswered(p.now, id)
		}
	}
	p.heldBack = nil
	return spoke
}

// knownToAnswer makes it a peer that has answered a ping.
func (p *peer) knownToAnswer() {
	p.Began(p.now)
	p.run(31 * time.Second)
	p.Ended(p.now)
	p.run(time.Second)
}

func (p *peer) want(t *testing.T, v Verdict, evidence ...string) {
	t.Helper()
	r := p.Report(p.now)
	all := strings.Join(r.Evidence, "; ")
	if r.Verdict != v {
		t.Errorf("%s, not %s: %s", r.Verdict, v, all)
	}
	for _, e := range evidence {
		if !strings.Contains(all, e) {
			t.Errorf("%s: no %q in %q", r.Verdict, e, all)
		}
	}
	if len(r.Evidence) == 0 {
		t.Errorf("%s: no evidence", r.Verdict)
	}
}

// Whoever dies while a call is in flight, at whatever moment of its cycle, is
// named within two intervals of its last sign of life.
func TestNamedWithinTwoIntervals(t *testing.T) {
	for die := time.Duration(0); die < 65*time.Second; die += time.Second {
		p := newPeer(Settings{})
		p.knownToAnswer()
		p.Began(p.now)
		p.run(die)
		p.deaf = true
		died := p.now
		p.run(time.Minute + simulated)
		r := p.Report(p.now)
		if r.Verdict != Stuck || r.Since.Sub(died) > time.Minute {
			t.Errorf("dead after %s: %s since %s", die, r.Verdict, r.Since.Sub(died))
		}
	}
}

// A server that blocks with CPU and is stopped then is named in that time too.
func TestBlockedThenStopped(t *testing.T) {
	for blocked := 51 * time.Second; blocked < 111*time.Second; blocked += time.Second {
		p := newPeer(Settings{})
		p.knownToAnswer()
		p.Began(p.now)
		p.deaf, p.cpu = true, 1
		p.run(blocked)
		p.want(t, Blocked)
		p.cpu = 0
		p.run(time.Minute)
		p.want(t, Stuck)
	}
}

func TestRecovery(t *testing.T) {
	p := newPeer(Settings{})
	p.want(t, Idle, "no call in flight")
	p.knownToAnswer()
	p.Began(p.now)
	p.deaf, p.cpu = true, 1
	p.run(2 * time.Minute)
	p.want(t, Blocked)
	p.deaf, p.cpu = false, 0
	p.run(time.Second)
	p.want(t, Busy, "ping answered 900ms ago") // late, and welcome
	if rtt := p.RTT(); rtt.Count != 3 || rtt.Max < 89*time.Second || rtt.Min > time.Second || rtt.Last != rtt.Max-20*time.Second {
		t.Errorf("round trips: %+v", rtt)
	}
	p.Progress(p.now)
	p.want(t, Working, "progress 0s ago")
	p.run(time.Second)
	if r := p.Report(p.now); r.Since != p.now.Add(-time.Second) {
		t.Errorf("working since %s, not for a second", r.Since)
	}
	p.Ended(p.now)
	p.want(t, Idle)
	p.Exited(p.now, "exited with status 3")
	p.want(t, Gone, "exited with status 3")
	p.Began(p.now)
	p.Heard(p.now)
	p.Exited(p.now, "otherwise")
	p.want(t, Gone, "exited with status 3")
	if do, wake := p.Next(p.now.Add(time.Hour)); do != 0 || !wake.IsZero() {
		t.Errorf("something is to be done for one that is gone: %v, %s", do, wake)
	}
}

// Calls that keep coming do not make a stuck server look young.
func TestNewCallsDoNotHideStuck(t *testing.T) {
	p := newPeer(Settings{})
	p.knownToAnswer()
	p.deaf = true
	for range 60 {
		p.Began(p.now)
		p.run(time.Second)
	}
	p.want(t, Stuck)
	for range 60 {
		p.Ended(p.now)
	}
	p.want(t, Idle)
	p.Ended(p.now) // one too many
	p.Began(p.now)
	p.want(t, Working)
	p.run(time.Minute)
	p.want(t, Stuck)
}

func TestCost(t *testing.T) {
	type cost struct{ pings, looks int }
	tests := []struct {
		name   string
		behave func(p *peer)
		most   cost
	}{
		{"idle", func(p *peer) { p.Ended(p.now) }, cost{}},
		{"working", func(p *peer) { p.chatter = 29 * time.Second }, cost{}},
		{"busy", func(*peer) {}, cost{pings: 120}},
		{"busy with slow answers", func(p *peer) { p.delay = 9 * time.Second }, cost{pings: 120}},
		{"stuck", func(p *peer) { p.deaf = true }, cost{pings: 2, looks: 241}},
		{"refuses", func(p *peer) { p.refuses = true }, cost{pings: 1, looks: 241}},
		{"cannot be seen", func(p *peer) { p.deaf, p.blind = true, true }, cost{pings: 2, looks: 241}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPeer(Settings{})
			p.Began(p.now)
			tt.behave(p)
			p.run(time.Hour)
			if p.pings > tt.most.pings || p.looks > tt.most.looks {
				t.Errorf("%d pings and %d looks in an hour, more than %+v", p.pings, p.looks, tt.most)
			}
			if (p.pings == 0) != (tt.most.pings == 0) || (p.looks == 0) != (tt.most.looks == 0) {
				t.Errorf("%d pings and %d looks, not about %+v", p.pings, p.looks, tt.most)
			}
		})
	}
}

// An owner that cannot do what it is asked for is neither asked without pause
// nor forgotten.
func TestNextAsksAgainLater(t *testing.T) {
	m := New(Settings{}, t0)
	m.Began(t0)
	now, asked := t0, 0
	for range 100 {
		do, wake := m.Next(now)
		if do&Ping != 0 {
			asked++
		}
		if !wake.After(now) {
			t.Fatalf("at %s it wants to be woken at %s", now.Sub(t0), wake.Sub(t0))
		}
		now = wake
	}
	if span := now.Sub(t0); asked < 50 || span < 10*time.Minute {
		t.Errorf("asked %d times in %s", asked, span)
	}
}

func TestClient(t *testing.T) {
	p := newPeer(Settings{Remote: true})
	p.Began(p.now) // a stream is open
	p.deaf = true
	p.run(10 * time.Minute)
	if p.Silent(p.now) {
		t.Error("one that never answered a ping is judged by it")
	}
	p.deaf = false
	p.run(time.Minute)
	p.deaf = true
	p.run(39 * time.Second)
	if p.Silent(p.now) {
		t.Error("silent after one ping")
	}
	p.run(32 * time.Second)
	if !p.Silent(p.now) {
		t.Errorf("not silent: %v", p.Report(p.now))
	}
	p.Heard(p.now)
	if p.Silent(p.now) {
		t.Error("silent though it was heard")
	}
	p.run(2 * time.Minute)
	if !p.Silent(p.now) {
		t.Error("not silent a second time")
	}
	p.PingRefused(p.now)
	p.run(2 * time.Minute)
	if p.Silent(p.now) {
		t.Error("silent though it refuses pings")
	}
	if p.looks > 0 {
		t.Error("asked for samples of a client")
	}
}

func TestPingsSentUnasked(t *testing.T) {
	m := New(Settings{Misses: 1}, t0)
	m.Began(t0)
	m.PingSent(t0, "first", 0)
	if rtt := m.PingAnswered(t0.Add(time.Second), "first"); rtt != time.Second {
		t.Errorf("round trip %s", rtt)
	}
	for i := range 100 {
		m.PingSent(t0.Add(time.Duration(i)*time.Second), fmt.Sprint(i), 0)
	}
	if now := t0.Add(100 * time.Second); !m.Silent(now) {
		t.Error("pings that follow each other hide that none is answered")
	}
	if len(m.open) != 1 || len(m.late) > maxLate {
		t.Errorf("%d and %d pings are kept", len(m.open), len(m.late))
	}
	if rtt := m.PingAnswered(t0.Add(100*time.Second), "99"); rtt != time.Second {
		t.Errorf("round trip of the last %s", rtt)
	}
	if rtt := m.PingAnswered(t0.Add(100*time.Second), "unheard of"); rtt != 0 || m.RTT().Count != 2 {
		t.Errorf("round trip of an unknown one %s, %+v", rtt, m.RTT())
	}
}

// Whatever happens in whatever order, nothing panics, who answers each ping in
// time is never called blocked or stuck, and who never answered one is called
// stuck only if stopped.
func TestRandomHistories(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for i := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, i))
		h := history{t: t, rng: rng, now: t0, prompt: rng.IntN(2) == 0, mute: rng.IntN(2) == 0, stops: rng.IntN(2) == 0}
		h.Monitor = New(Settings{
			Interval: time.Duration(rng.IntN(40)) * time.Second, Timeout: time.Duration(rng.IntN(30)) * time.Second,
			Misses: rng.IntN(4), Remote: rng.IntN(4) == 0,
		}, h.now)
		for range 300 {
			h.step()
		}
		if t.Failed() {
			t.Fatalf("seed %d, history %d:\n%s", seed, i, strings.Join(h.log, "\n"))
		}
	}
}

type history struct {
	*Monitor
	t      *testing.T
	rng    *rand.Rand
	now    time.Time
	prompt bool // each ping is answered in time
	mute   bool // none is ever answered
	stops  bool // its processes may be stopped
	due    []ping
	serial int
	log    []string
}

func (h *history) step() {
	pass := time.Duration(h.rng.ExpFloat64() * float64(5*time.Second))
	if h.prompt && len(h.due) > 0 {
		if limit := h.due[0].sent.Add(h.s.Timeout - 1).Sub(h.now); pass >= limit {
			h.now = h.now.Add(max(limit, 0))
			h.answer(0)
			return
		}
	}
	h.now = h.now.Add(pass)
	what := h.rng.IntN(12)
	h.log = append(h.log, fmt.Sprint(h.now.Sub(t0), " ", what))
	switch what {
	case 0:
		h.Heard(h.now)
	case 1:
		h.Progress(h.now)
	case 2:
		h.Began(h.now)
	case 3:
		h.Ended(h.now)
	case 4:
		if len(h.due) > 0 && !h.mute {
			h.answer(h.rng.IntN(len(h.due)))
		}
	case 5:
		if !h.prompt {
			h.PingAnswered(h.now.Add(-time.Minute), "unheard of")
			h.mute = false
		}
	case 6:
		h.sample()
	case 7:
		if !h.prompt && h.rng.IntN(20) == 0 {
			h.PingRefused(h.now)
		}
	case 8:
		if h.rng.IntN(300) == 0 {
			h.Exited(h.now, "")
		}
	case 9:
		h.Wrote(h.rng.IntN(1000) - 10)
	default:
		h.next()
	}
	h.check()
}

func (h *history) next() {
	do, _ := h.Next(h.now)
	if do&Ping != 0 && h.rng.IntN(4) > 0 {
		h.serial++
		id := fmt.Sprint(h.serial)
		h.PingSent(h.now, id, 60)
		h.due = append(h.due, ping{id, h.now})
	}
	if do&Sample != 0 && h.rng.IntN(4) > 0 {
		h.sample()
	}
}

func (h *history) answer(i int) {
	if !h.mute || h.prompt {
		h.PingAnswered(h.now, h.due[i].id)
	}
	h.due = slices.Delete(h.due, i, i+1)
	h.check()
}

func (h *history) sample() {
	h.Sampled(Vitals{
		At: h.now, Known: h.rng.IntN(4) > 0, Runnable: h.rng.IntN(3) == 0, Stopped: h.stops && h.rng.IntN(3) == 0,
		CPU: time.Duration(h.rng.IntN(3)) * time.Second, IO: uint64(h.rng.IntN(3)) * 1000,
		Children: h.rng.IntN(3), Procs: h.rng.IntN(3), Youngest: h.now.Add(-time.Duration(h.rng.IntN(100)) * time.Second),
	})
}

func (h *history) check() {
	r := h.Report(h.now)
	switch {
	case len(r.Evidence) == 0 || slices.Contains(r.Evidence, ""):
		h.t.Errorf("%s without evidence: %q", r.Verdict, r.Evidence)
	case r.Since.After(h.now):
		h.t.Errorf("%s since the future", r.Verdict)
	case h.prompt && (r.Verdict == Stuck || r.Verdict == Blocked):
		h.t.Errorf("%s, but each ping is answered in time: %q", r.Verdict, r.Evidence)
	case h.mute && !h.prompt && !h.stops && r.Verdict == Stuck:
		h.t.Errorf("stuck, but it never answered a ping: %q", r.Evidence)
	case h.prompt && h.Silent(h.now):
		h.t.Error("silent, but each ping is answered in time")
	}
}

func TestWords(t *testing.T) {
	for v := range Gone + 1 {
		if v.String() == "unknown" {
			t.Errorf("verdict %d: %s", v, v)
		}
	}
	if v := Gone + 1; v.String() != "unknown" {
		t.Errorf("verdict %d: %s", v, v)
	}
}
