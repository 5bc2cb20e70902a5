//go:build unix

package stdio

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// tree is a leader and what it started: a process group, whose id is the
// leader's process id.
type tree struct {
	watch groupWatch

	mu    sync.Mutex // guards the field below; held while a signal is sent, which must not come after it
	ended bool       // the id may belong to somebody else by now
}

// startTree starts the command as the leader of a new group.
func startTree(cmd *exec.Cmd) (*tree, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &tree{watch: groupWatch{pgid: cmd.Process.Pid}}, nil
}

// id names the group to the companion.
func (t *tree) id() int { return t.watch.pgid }

func (t *tree) terminate() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		terminateGroup(t.watch.pgid)
	}
}

func (t *tree) kill() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		killGroup(t.watch.pgid)
	}
}

// gone reports whether the group has no process any more. To be called only
// after the leader has been reaped, and from one goroutine.
func (t *tree) gone() bool {
	// Orphans of the group are ours to reap if we are the first process of a
	// container.
	reapGroup(t.watch.pgid)
	if !t.watch.gone() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	return true
}

func (t *tree) release() {}

func reapGroup(pgid int) {
	for {
		pid, err := syscall.Wait4(-pgid, nil, syscall.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// terminateGroup also continues the group: a process that is stopped, as a
// background process is that reads from the terminal, would not see the signal.
func terminateGroup(pgid int) {
	syscall.Kill(-pgid, syscall.SIGTERM)
	syscall.Kill(-pgid, syscall.SIGCONT)
}

func killGroup(pgid int) { syscall.Kill(-pgid, syscall.SIGKILL) }

const (
	// The first look through the process table for zombies, and the longest
	// pause between two; both well below killWait.
	zombieFirst = 20 * time.Millisecond
	zombieMax   = 400 * time.Millisecond
)

// groupWatch asks whether a process group is gone, again and again.
type groupWatch struct {
	pgid  int
	scan  time.Time // when to look for zombies next
	pause time.Duration
}

// gone reports whether the group has no process but zombies. Those it looks for
// after a moment only and then ever less often, because that is costly.
func (w *groupWatch) gone() bool {
	switch err := syscall.Kill(-w.pgid, 0); {
	case errors.Is(err, syscall.EPERM):
		// For Linux this is a process of another user, for the BSD family,
		// macOS among them, a group of zombies.
		return runtime.GOOS != "linux"
	case err != nil:
		return true
	}
	now := time.Now()
	if now.Before(w.scan) {
		return false
	}
	first := w.pause == 0
	w.pause = min(max(2*w.pause, zombieFirst), zombieMax)
	w.scan = now.Add(w.pause)
	return !first && onlyZombies(w.pgid)
}

func exitSignal(state *os.ProcessState) string {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return ws.Signal().String()
	}
	return ""
}

// envKey is the form in which names of environment variables are compared.
func envKey(key string) string { return key }
