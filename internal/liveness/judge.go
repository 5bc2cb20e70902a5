package liveness

import (
	"fmt"
	"time"
)

const (
	// A process that uses less than this part of one core does nothing.
	idleShare = 100
	// tick is what the system counts CPU time in: over short spans one or two
	// of them mean nothing.
	tick = 10 * time.Millisecond
	// birthSlack is how much earlier than it was a process may seem to have begun.
	birthSlack = 30 * time.Millisecond
)

// settle brings verdict and since up to a time.
func (m *Monitor) settle(now time.Time) {
	m.noteMissed(now)
	if v := m.judge(now); v != m.verdict {
		m.verdict, m.since = v, now
	}
}

func (m *Monitor) noteMissed(now time.Time) {
	m.missed = m.missed || m.overdue(now) > 0
}

// unjudged reports whether unanswered pings say nothing about the peer: it
// refuses them, or was asked in vain and never answered one.
func (m *Monitor) unjudged() bool { return m.refused || m.missed && !m.answered }

// overdue counts the pings unanswered for the time-out since the last sign of life.
func (m *Monitor) overdue(now time.Time) (n int) {
	for _, p := range m.open {
		if now.Sub(p.sent) >= m.s.Timeout {
			n++
		}
	}
	return n
}

// silent reports whether nothing but answers to pings came for an interval.
func (m *Monitor) silent(now time.Time) bool {
	last := m.busySince
	if m.output.After(last) {
		last = m.output
	}
	return now.Sub(last) >= m.s.Interval
}

func (m *Monitor) judge(now time.Time) Verdict {
	switch {
	case m.gone != "":
		return Gone
	case m.asked == 0:
		return Idle
	case !m.silent(now):
		return Working
	case m.unjudged():
		return m.unjudgedVerdict()
	case m.overdue(now) > 0:
		return m.unansweredVerdict(now)
	}
	return m.soFar()
}

// soFar is the verdict while a ping may still be answered, or the processes
// are still to be looked at: what it was before.
func (m *Monitor) soFar() Verdict {
	if m.answered && !m.answer.Before(m.busySince) && !m.answer.Before(m.output) {
		return Busy
	}
	return Working
}

// unjudgedVerdict is that on a silent peer of which ping tells nothing: it is
// never called stuck for what cannot be seen.
func (m *Monitor) unjudgedVerdict() Verdict {
	switch v, sure := m.moves(); {
	case sure:
		return v
	case m.before.At.IsZero() && !m.s.Remote:
		return m.soFar()
	}
	return Waiting
}

// unansweredVerdict is that on a peer that used to answer pings and does not.
// Where its processes can be seen, one ping is enough, since they are the
// second witness.
func (m *Monitor) unansweredVerdict(now time.Time) Verdict {
	v, sure := m.moves()
	switch {
	case sure:
		return v
	case m.before.Known && m.last.Known:
		return Stuck
	case !m.last.Known && m.overdue(now) >= m.s.Misses:
		return Stuck
	}
	return m.soFar()
}

// moves judges by the processes alone. It is not sure if nothing moves, or
// nothing is known.
func (m *Monitor) moves() (v Verdict, sure bool) {
	if !m.before.Known || !m.last.Known {
		return 0, false
	}
	switch {
	case m.burns():
		return Blocked, true
	case m.last.Stopped && !m.ioMoved.Equal(m.last.At):
		return Stuck, true
	case m.ioLately(), m.child(), m.last.Waits != "", m.before.Procs != m.last.Procs:
		return Waiting, true
	}
	return 0, false
}

// burns reports whether CPU was used between the last two samples, or wanted at both.
func (m *Monitor) burns() bool {
	used, span := m.used()
	return used > 0 && used >= max(span/idleShare, 2*tick) || m.before.Runnable && m.last.Runnable
}

func (m *Monitor) used() (cpu, span time.Duration) {
	return m.last.CPU - m.before.CPU, m.last.At.Sub(m.before.At)
}

// ioLately reports whether I/O moved in the last interval: it comes in pieces.
func (m *Monitor) ioLately() bool {
	return !m.ioMoved.IsZero() && m.last.At.Sub(m.ioMoved) <= m.s.Interval
}

// child reports whether the peer runs a process that began since something was
// asked of it. Older ones say nothing: the server itself may be one, below the
// script that starts it.
func (m *Monitor) child() bool {
	return m.last.Children > 0 && !m.last.Youngest.IsZero() && !m.last.Youngest.Before(m.busySince.Add(-birthSlack))
}

// evidence says why, in sentences.
func (m *Monitor) evidence(now time.Time) []string {
	switch m.verdict {
	case Gone:
		return []string{m.gone}
	case Idle:
		return []string{"no call in flight"}
	case Working, Busy:
		return append(m.outputEvidence(now), m.pingEvidence(now)...)
	}
	all := append(m.processEvidence(), m.pingEvidence(now)...)
	return append(all, m.outputEvidence(now)...)
}

func (m *Monitor) outputEvidence(now time.Time) []string {
	ago := func(t time.Time) string { return inWords(now.Sub(t)) }
	switch {
	case m.output.Before(m.busySince):
		return []string{"no output since the call began " + ago(m.busySince) + " ago"}
	case m.silent(now):
		return []string{"no output for " + ago(m.output)}
	case m.progress.Equal(m.output):
		return []string{"progress " + ago(m.progress) + " ago"}
	}
	return []string{"output " + ago(m.output) + " ago"}
}

func (m *Monitor) pingEvidence(now time.Time) []string {
	late := m.overdue(now)
	switch {
	case m.refused:
		return []string{"it takes no pings and is not judged by them"}
	case m.unjudged():
		return []string{"it never answered a ping and is not judged by them"}
	case late == 1:
		return []string{"ping unanswered for " + inWords(now.Sub(m.open[0].sent))}
	case late > 1:
		return []string{fmt.Sprintf("%d pings unanswered, oldest %s", late, inWords(now.Sub(m.open[0].sent)))}
	case len(m.open) > 0:
		return []string{"ping sent " + inWords(now.Sub(m.open[0].sent)) + " ago, not answered yet"}
	case m.verdict == Busy:
		return []string{"ping answered " + inWords(now.Sub(m.answer)) + " ago"}
	}
	return nil
}

func (m *Monitor) processEvidence() (all []string) {
	if m.s.Remote {
		return nil
	}
	if !m.before.Known || !m.last.Known {
		return []string{"nothing is known of its processes"}
	}
	if m.last.Stopped {
		all = append(all, "stopped by a signal")
	}
	used, span := m.used()
	over := " over " + inWords(span)
	if m.burns() {
		share := max(used, 0).Seconds() / max(span, 1).Seconds()
		all = append(all, fmt.Sprintf("CPU %.2f s/s", share)+over)
		if m.before.Runnable && m.last.Runnable {
			all = append(all, "it runs, or waits for a core, whenever it is looked at")
		}
	} else {
		all = append(all, "no CPU"+over)
	}
	switch {
	case m.ioMoved.Equal(m.last.At):
		all = append(all, fmt.Sprintf("%d bytes of I/O", m.ioBytes)+over)
	case m.ioLately():
		all = append(all, "I/O "+inWords(m.last.At.Sub(m.ioMoved))+" before")
	case !m.burns():
		all = append(all, "no I/O"+over)
	}
	if m.child() {
		all = append(all, fmt.Sprintf("child process %d is running", m.last.YoungestPID))
	}
	if m.before.Procs != m.last.Procs {
		all = append(all, fmt.Sprintf("%d processes, %d before", m.last.Procs, m.before.Procs))
	}
	if m.last.Waits != "" {
		all = append(all, "it waits for "+m.last.Waits)
	}
	return all
}

// inWords rounds a duration to what is worth reading.
func inWords(d time.Duration) string {
	switch d = max(d, 0); {
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}
