package stdio

import (
	"log/slog"
	"time"
)

// reap waits for the leader. It is on its own because nothing can bound a wait
// for a process that the system does not end.
func (p *Process) reap() {
	// All three streams are files, so Wait waits for the process alone and its
	// error only repeats what ProcessState says.
	p.cmd.Wait()
	close(p.reaped)
}

// supervise sees the leader to its end, then the rest of the group.
func (p *Process) supervise() {
	defer close(p.done)
	killAt, ended := p.awaitLeader()
	if ended && killAt.IsZero() {
		p.tree.terminate()
		killAt = time.Now().Add(p.termGrace())
	}
	if ended && p.awaitGroup(killAt) {
		p.opts.Companion.Forget(p.tree.id())
	} else {
		// It stays with the companion, which tries once more when we end.
		p.log.add(slog.LevelError, "server processes outlive SIGKILL")
	}
	if !ended {
		p.publishExit(false)
	}
	p.tree.release()
	p.stderr.stop()
	p.log.close()
}

func (p *Process) publishExit(ended bool) {
	p.exitErr = p.describeExit(ended)
	close(p.exited)
}

// termGrace is how long the group has between SIGTERM and SIGKILL.
func (p *Process) termGrace() time.Duration { return p.opts.StopTimeout * 3 / 5 }

// awaitLeader returns when the leader has been reaped, and takes it down the
// stop ladder once Stop is called. It returns the time for SIGKILL if SIGTERM
// has been sent, and false if the leader is still there after SIGKILL.
func (p *Process) awaitLeader() (killAt time.Time, ended bool) {
	stopping, killing := p.stopping, p.killing
	var rung <-chan time.Time // nil until there is a next step down
	killed := false
	for {
		select {
		case <-p.reaped:
			return killAt, true
		case <-stopping:
			stopping = nil
			p.stdin.Close()
			rung = time.After(p.opts.StopTimeout * 2 / 5)
		case <-killing:
			stopping, killing = nil, nil
			p.stdin.Close()
			killAt, killed = time.Now(), true
			rung = time.After(killWait)
		case <-rung:
			switch {
			case killed:
				return killAt, false
			case killAt.IsZero():
				p.tree.terminate()
				killAt = time.Now().Add(p.termGrace())
				rung = time.After(p.termGrace())
			default:
				p.tree.kill()
				killed = true
				rung = time.After(killWait)
			}
		}
	}
}

// awaitGroup returns when the group, whose leader has been reaped, is gone. It
// sends SIGKILL at killAt and reports false if that does not help. Meanwhile it
// publishes the exit of the leader, as soon as its stderr has ended or has had
// its time: that must not wait for a grandchild, nor the grandchild for that.
func (p *Process) awaitGroup(killAt time.Time) bool {
	killing, stderrEnd := p.killing, p.stderr.ended
	stderrLate := time.After(stderrWait)
	publish := func() {
		p.publishExit(true)
		stderrEnd, stderrLate = nil, nil
	}
	for poll := pollMin; ; poll = min(2*poll, pollMax) {
		gone := p.tree.gone()
		if gone && stderrEnd == nil {
			return true
		}
		if over := time.Since(killAt); !gone && over >= 0 {
			if over > killWait && stderrEnd == nil {
				return false
			}
			p.tree.kill()
		}
		select {
		case <-stderrEnd:
			publish()
		case <-stderrLate:
			publish()
		case <-killing:
			killing, killAt = nil, time.Now()
		case <-time.After(poll):
		}
	}
}
