package stdio

import (
	"time"

	"github.com/holdfast-mcp/holdfast/internal/liveness"
)

// sample is what the system tells of one process of a tree.
type sample struct {
	pid     int
	ended   bool // a zombie: it counts for what it used only
	stopped bool
	runs    bool // or waits for a core
	cpu     time.Duration
	io      uint64
	began   time.Time // zero if not known
	waits   string    // for what, if that is plain
}

// Vitals looks at the processes of the tree, which takes some milliseconds on a
// machine with many processes. Known is false where the system does not tell,
// and after the end of the leader. Safe for concurrent use.
func (p *Process) Vitals() liveness.Vitals {
	v := liveness.Vitals{At: time.Now()}
	select {
	case <-p.reaped:
		return v // its id may be another's
	default:
	}
	all, err := p.tree.look(p.stdin)
	if err != nil {
		return v
	}
	return sum(v, p.PID(), all)
}

// Vitals are those of the peer's processes; Known is false for one that has none.
func (l *Link) Vitals() liveness.Vitals {
	if l.proc == nil {
		return liveness.Vitals{At: time.Now()}
	}
	return l.proc.Vitals()
}

// HasProcess reports whether the peer is a process, which Vitals can look at.
func (l *Link) HasProcess() bool { return l.proc != nil }

func sum(v liveness.Vitals, leader int, all []sample) liveness.Vitals {
	for _, s := range all {
		v.CPU += s.cpu
		v.IO += s.io
		if s.ended {
			continue
		}
		v.Known = true
		v.Procs++
		v.Stopped = v.Stopped || s.stopped
		v.Runnable = v.Runnable || s.runs
		if v.Waits == "" {
			v.Waits = s.waits
		}
		if s.pid == leader {
			continue
		}
		v.Children++
		if s.began.After(v.Youngest) {
			v.Youngest, v.YoungestPID = s.began, s.pid
		}
	}
	return v
}
