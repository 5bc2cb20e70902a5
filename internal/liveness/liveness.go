// Package liveness judges from what was heard of a peer, and when, whether it works, is blocked, waits, is stuck or gone.
//
// It is a value without I/O, clock, goroutine or lock: whoever owns a Monitor
// tells it what happens and at what time, does what Next asks for, and reads
// the verdict from Report.
package liveness

import (
	"slices"
	"time"
)

// Verdict is what is held of a peer.
type Verdict uint8

// The verdicts.
const (
	Idle    Verdict = iota // nothing is asked of it
	Working                // output or progress lately, or a call began just now
	Busy                   // silent, but it answers pings
	Blocked                // it answers no ping, but its processes use CPU
	Waiting                // no ping, no CPU, but I/O moves, or it waits for something that can be named, or it cannot be judged
	Stuck                  // it used to answer pings and does not, and nothing moves; or it was stopped
	Gone                   // it exited, or closed its output
)

var names = [...]string{"idle", "working", "busy", "blocked", "waiting", "stuck", "gone"}

// String returns the verdict in one word.
func (v Verdict) String() string {
	if int(v) < len(names) {
		return names[v]
	}
	return "unknown"
}

// Vitals are what the operating system tells of a peer's process tree at one
// moment. Counters only grow, but for processes that end.
type Vitals struct {
	At    time.Time // when they were taken, by the same clock as all other times
	Known bool      // whether the other fields hold anything
	// Stopped says that a process of the tree is stopped, by SIGSTOP for example.
	Stopped bool
	CPU     time.Duration // used by the whole tree
	IO      uint64        // bytes that the tree read and wrote, pipes and sockets included where the system tells
	// Runnable says that a process of the tree runs or waits for a core: on a
	// machine with too much to do it may use next to nothing, and yet not be idle.
	Runnable bool
	// Children is the number of processes below the first, Procs that of all.
	Children int
	Procs    int
	// Youngest is when the last started process below the first began, and
	// YoungestPID its id. Zero if there is none or the system does not tell.
	Youngest    time.Time
	YoungestPID int
	// Waits names what a process of the tree is seen to wait for, such as
	// "a reply from 10.1.2.3:443". Empty if nothing is known of it.
	Waits string
}

// Settings is the configuration of a Monitor. Zero fields mean the defaults.
type Settings struct {
	Interval time.Duration // of silence before a ping. Default 30 s.
	Timeout  time.Duration // after which a ping counts as unanswered. Default 20 s.
	Misses   int           // how many pings must be unanswered where nothing but ping tells. Default 2.
	// Remote says that there are no processes to look at: Next asks for no Sample.
	Remote bool
	// NoPing says that the peer's protocol has none, as if it had refused one.
	NoPing bool
}

func (s Settings) withDefaults() Settings {
	if s.Interval <= 0 {
		s.Interval = 30 * time.Second
	}
	if s.Timeout <= 0 {
		s.Timeout = 20 * time.Second
	}
	if s.Misses <= 0 {
		s.Misses = 2
	}
	return s
}

// Action is what the owner of a Monitor is to do, as bits.
type Action uint8

// The actions.
const (
	Ping   Action = 1 << iota // send a ping, then call PingSent
	Sample                    // look at the processes, then call Sampled
)

// Report is a verdict with what led to it.
type Report struct {
	Verdict  Verdict
	Since    time.Time // when it was reached
	Evidence []string  // short sentences for people, what tells most first
	// Works says that there is evidence of work, so that the idle clocks of calls
	// are to stand still: the peer is blocked, or waits for something that shows.
	Works bool
}

// RTT holds the round trips of pings, late ones included. All zero before the first.
type RTT struct {
	Last, Min, Max, Mean time.Duration
	Count                int
}

// wakeup is how many bytes a peer may move by itself because it read a ping:
// its reader wakes its event loop through a pipe or an eventfd.
const wakeup = 64

// maxLate bounds how many old pings are remembered for the sake of their round trip.
const maxLate = 8

type ping struct {
	id   string
	sent time.Time
}

// Monitor follows one peer: a server with calls in flight, or a client with an
// open stream. It is not safe for concurrent use. Times may stand still but
// should not run backwards; nothing worse than a wrong duration comes of it.
type Monitor struct {
	s Settings

	asked     int       // calls in flight
	busySince time.Time // when asked last rose from 0
	output    time.Time // the last output other than answers to pings; zero: none
	progress  time.Time
	sign      time.Time // the last sign of life, or busySince

	answered bool // a ping, ever
	missed   bool // a ping was not answered in time, ever
	refused  bool
	answer   time.Time // of the last answered ping
	open     []ping    // unanswered since the last sign of life, oldest first
	late     []ping    // older ones, whose answers only tell the round trip
	rtt      RTT
	total    time.Duration

	before, last Vitals    // the last two samples since the last sign of life
	ioMoved      time.Time // the sample that last showed I/O; zero: none since the last sign of life
	ioBytes      uint64    // as much as it showed
	allowance    uint64    // bytes we gave the peer to read that no sample has shown yet

	pingRetry, sampleRetry time.Time // not asked for again before

	gone    string
	verdict Verdict
	since   time.Time
}

// New returns a Monitor of a peer that is just there, with no call in flight.
func New(s Settings, now time.Time) *Monitor {
	return &Monitor{s: s.withDefaults(), refused: s.NoPing, sign: now, since: now}
}

// Heard says that the peer sent anything but the answer to a ping: told of that
// too, it would be taken for output, and a peer that only answers for one that works.
func (m *Monitor) Heard(now time.Time) {
	m.output = now
	m.alive(now)
}

// Progress says that the peer sent progress of a call. It implies Heard.
func (m *Monitor) Progress(now time.Time) {
	m.progress = now
	m.Heard(now)
}

// Began says that one more call is in flight to the peer, or that a stream to
// it is open.
func (m *Monitor) Began(now time.Time) {
	m.asked++
	// Only the first: a peer that is stuck must not look young for as long as
	// calls keep coming.
	if m.asked == 1 {
		m.busySince = now
		m.alive(now)
	}
	m.settle(now)
}

// Ended says that one less is.
func (m *Monitor) Ended(now time.Time) {
	if m.asked == 0 {
		return
	}
	m.asked--
	m.settle(now)
}

// PingSent says that a ping of size bytes was written to the peer, and by which
// id its answer will be told.
func (m *Monitor) PingSent(now time.Time, id string, size int) {
	m.open = append(m.open, ping{id, now})
	if n := len(m.open); n > m.s.Misses { // sent unasked; those that are overdue must not go
		m.open = m.open[:n-1]
		m.remember(ping{id, now})
	}
	m.pingRetry = time.Time{}
	m.Wrote(size)
	m.settle(now)
}

// Wrote says that something other than a ping was written to the peer, as many
// bytes: what it reads of them is no I/O of its own. It may be left out where
// the peer is not silent.
func (m *Monitor) Wrote(size int) { m.allowance += uint64(max(size, 0)) + wakeup }

// PingAnswered says that the peer answered a ping, however late, and returns
// the round trip: 0 if that ping is not remembered.
func (m *Monitor) PingAnswered(now time.Time, id string) (rtt time.Duration) {
	m.answered, m.answer = true, now
	is := func(p ping) bool { return p.id == id }
	for _, list := range [][]ping{m.open, m.late} {
		if i := slices.IndexFunc(list, is); i >= 0 {
			rtt = max(now.Sub(list[i].sent), 1) // a clock may be coarse
			m.measure(rtt)
			break
		}
	}
	m.alive(now)
	m.late = slices.DeleteFunc(m.late, is)
	return rtt
}

// PingRefused says that the peer answered a ping with an error: a sign of life,
// and from now on it is not judged by ping and gets none.
func (m *Monitor) PingRefused(now time.Time) {
	m.refused = true
	m.alive(now)
	m.late = nil
}

// Sampled takes what the system tells of the peer's processes.
func (m *Monitor) Sampled(v Vitals) {
	m.sampleRetry = time.Time{}
	m.before, m.last = m.last, v
	if m.before.Known && v.Known {
		moved := v.IO - min(v.IO, m.before.IO)
		ours := min(moved, m.allowance)
		m.allowance -= ours
		if moved > ours {
			m.ioMoved, m.ioBytes = v.At, moved-ours
		}
	} else if v.Known && len(m.open) == 0 {
		m.allowance = 0 // what was written before is not told apart
	}
	m.settle(v.At)
}

// Exited says that the peer is gone and why. Nothing changes it afterwards.
func (m *Monitor) Exited(now time.Time, why string) {
	if m.gone == "" {
		m.gone = why
		if why == "" {
			m.gone = "it ended"
		}
	}
	m.settle(now)
}

// Next returns what is to be done now and when to call Next again at the
// latest, if nothing happens before. A zero wake means that there is nothing to
// do until something is told to the Monitor; after that, Next is to be called
// again. Whoever cannot do what is asked for is asked again later.
func (m *Monitor) Next(now time.Time) (do Action, wake time.Time) {
	m.settle(now)
	due := func(what Action, at time.Time, retry *time.Time) {
		if at.IsZero() {
			return
		}
		if retry.After(at) {
			at = *retry
		}
		if !at.After(now) {
			do |= what
			at = now.Add(m.gap())
			*retry = at
		}
		wake = earlier(wake, at)
	}
	due(Ping, m.pingAt(), &m.pingRetry)
	due(Sample, m.sampleAt(), &m.sampleRetry)
	for _, p := range m.open { // each that becomes overdue may change the verdict
		if late := p.sent.Add(m.s.Timeout); late.After(now) && m.watched() {
			wake = earlier(wake, late)
			break
		}
	}
	return do, wake
}

// Report returns the verdict at a time.
func (m *Monitor) Report(now time.Time) Report {
	m.settle(now)
	_, moves := m.moves()
	works := m.verdict == Blocked || m.verdict == Waiting && moves
	return Report{Verdict: m.verdict, Since: m.since, Evidence: m.evidence(now), Works: works}
}

// Silent reports whether the peer used to answer pings and has now left Misses
// of them unanswered for Timeout each, and sent nothing else meanwhile.
func (m *Monitor) Silent(now time.Time) bool {
	return m.gone == "" && m.answered && !m.refused && m.overdue(now) >= m.s.Misses
}

// RTT returns the round trips so far.
func (m *Monitor) RTT() RTT { return m.rtt }

// alive takes a sign of life: what was found out about a silence is void.
func (m *Monitor) alive(now time.Time) {
	m.noteMissed(now)
	m.sign = now
	m.remember(m.open...)
	m.open = m.open[:0]
	m.before, m.last = Vitals{}, Vitals{}
	m.ioMoved, m.allowance = time.Time{}, 0
	m.pingRetry, m.sampleRetry = time.Time{}, time.Time{}
	m.settle(now)
}

// remember keeps pings for their round trip only.
func (m *Monitor) remember(old ...ping) {
	m.late = append(m.late, old...)
	if extra := len(m.late) - maxLate; extra > 0 {
		m.late = slices.Delete(m.late, 0, extra)
	}
}

func (m *Monitor) measure(rtt time.Duration) {
	if m.rtt.Count == 0 || rtt < m.rtt.Min {
		m.rtt.Min = rtt
	}
	m.rtt.Count++
	m.total += rtt
	m.rtt.Last, m.rtt.Max, m.rtt.Mean = rtt, max(m.rtt.Max, rtt), m.total/time.Duration(m.rtt.Count)
}

// watched reports whether anything is to be found out about the peer.
func (m *Monitor) watched() bool { return m.gone == "" && m.asked > 0 }

// pingAt returns when to send the next ping, zero for never.
func (m *Monitor) pingAt() time.Time {
	switch n := len(m.open); {
	case !m.watched() || m.refused || n >= m.s.Misses:
		return time.Time{} // more would only fill its input
	case n > 0:
		return m.open[n-1].sent.Add(m.s.Timeout)
	}
	return m.sign.Add(m.s.Interval)
}

// sampleAt returns when to look at the processes next, zero for never. The
// first look is taken halfway through a ping's time-out, so that the second
// comes when that is over, with a span between them.
func (m *Monitor) sampleAt() time.Time {
	switch {
	case !m.watched() || m.s.Remote:
		return time.Time{}
	case m.before.At.IsZero() && !m.last.At.IsZero() && m.last.Known:
		return m.last.At.Add(m.gap())
	case !m.last.At.IsZero():
		return m.last.At.Add(max(m.s.Interval/2, m.gap()))
	case m.unjudged():
		return m.sign.Add(m.s.Interval)
	case len(m.open) > 0:
		return m.open[0].sent.Add(m.gap())
	}
	return time.Time{}
}

// gap is the least time between two looks at the processes.
func (m *Monitor) gap() time.Duration { return max(m.s.Timeout/2, time.Millisecond) }

// earlier returns the earlier of two times of which zero ones do not count.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
