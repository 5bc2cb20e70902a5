//go:build unix

package stdio

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

func TestExitBySignal(t *testing.T) {
	checkExit(t, helperCommand(t, "raise", "9"), ExitError{Code: -1, Signal: "killed"}, "killed by signal: killed")
	checkExit(t, helperCommand(t, "raise", "15"), ExitError{Code: -1, Signal: "terminated"}, "killed by signal: terminated")
}

func TestWorkingDirectory(t *testing.T) {
	c := Command{Path: "./program", Dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(c.Dir, "program"), []byte("#!/bin/sh\npwd; echo $PWD\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p := startHelperProcess(t, c, ProcessOptions{})
	awaitClosed(t, 20*time.Second, "the exit is known", p.Exited())
	if out, err := io.ReadAll(p.Stdout()); string(out) != c.Dir+"\n"+c.Dir+"\n" || err != nil {
		t.Errorf("got %q, %v; want %s", out, err, c.Dir)
	}
}

func TestStopLadder(t *testing.T) {
	tests := []struct {
		name    string
		cmd     Command
		timeout time.Duration
		words   string
		min     time.Duration // as parts of 5 of the timeout
		max     time.Duration
	}{
		{"end of stdin", helperCommand(t, "echo"), 30 * time.Second, "exited with status 0", 0, 2},
		{"SIGTERM", helperCommand(t, "deaf"), 3 * time.Second, "killed by signal: terminated", 2, 5},
		{"SIGKILL", helperCommand(t, "stubborn"), time.Second, "killed by signal: killed", 5, 5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := startHelperProcess(t, tt.cmd, ProcessOptions{StopTimeout: tt.timeout})
			p.Stdin().WriteString("hello\n") // for echo; the others say when they are ready
			readLine(t, p.Stdout())
			begin := time.Now()
			p.Stop()
			took := time.Since(begin)
			if got := p.ExitError(); got == nil || got.Error() != tt.words {
				t.Errorf("ended as %v, want %s", got, tt.words)
			}
			if took < tt.timeout*tt.min/5 || took > tt.timeout*tt.max/5+slack {
				t.Errorf("took %v", took)
			}
			assertGroupGone(t, p)
		})
	}
}

// Case C36: the wrapper ends, the server that it started ignores everything.
func TestStopEndsGrandchildren(t *testing.T) {
	const timeout = time.Second
	p := startHelperProcess(t, shellCommand(t, `"$0" "$1" stubborn & wait`), ProcessOptions{StopTimeout: timeout})
	grandchild := atoi(t, readLine(t, p.Stdout()))
	if grandchild == p.PID() {
		t.Fatal("the shell did not start a process of its own")
	}
	begin := time.Now()
	p.Stop()
	if took := time.Since(begin); took > timeout+slack {
		t.Errorf("took %v", took)
	}
	if !processGone(grandchild) {
		t.Error("the grandchild is left")
	}
	assertGroupGone(t, p)
}

func TestLeaderExitsGrandchildHoldsStreams(t *testing.T) {
	for _, program := range []string{"deaf", "stubborn"} {
		t.Run(program, func(t *testing.T) {
			p := startHelperProcess(t, helperCommand(t, "leave", "group", program), ProcessOptions{StopTimeout: 2 * time.Second})
			awaitClosed(t, 20*time.Second, "the exit is known", p.Exited())
			got, _ := errors.AsType[*ExitError](p.ExitError())
			if got == nil || got.Code != 3 || got.Stderr != "leaving\n" {
				t.Fatalf("ended as %#v", got)
			}
			// Without Stop: a server whose leader is gone is not one any more.
			within(t, 10*time.Second, "the group is gone", (&groupWatch{pgid: p.PID()}).gone)
			p.Stop()
		})
	}
}

// A process that has left the group is not ours to end, but nothing waits for
// the streams it holds.
func TestEscapedProcessHoldsStreams(t *testing.T) {
	p := startHelperProcess(t, helperCommand(t, "leave", "session", "stubborn"), ProcessOptions{StopTimeout: time.Second})
	escaped := atoi(t, readLine(t, p.Stdout()))
	defer syscall.Kill(escaped, syscall.SIGKILL)
	awaitClosed(t, 20*time.Second, "the exit is known", p.Exited())
	begin := time.Now()
	p.Stop()
	if took := time.Since(begin); took > time.Second+slack {
		t.Errorf("Stop took %v", took)
	}
	if processGone(escaped) {
		t.Error("the process did not leave the group: the test shows nothing")
	}
}

// A stopped process sees SIGTERM only once it is continued.
func TestStopContinuesStoppedChild(t *testing.T) {
	p := startHelperProcess(t, helperCommand(t, "deaf"), ProcessOptions{StopTimeout: 3 * time.Second})
	readLine(t, p.Stdout())
	if err := syscall.Kill(p.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.Stop()
	if got := p.ExitError(); got == nil || got.Error() != "killed by signal: terminated" {
		t.Errorf("ended as %v", got)
	}
}

func TestKillGroup(t *testing.T) {
	p := startHelperProcess(t, shellCommand(t, `"$0" "$1" stubborn & wait`), ProcessOptions{StopTimeout: time.Minute})
	grandchild := atoi(t, readLine(t, p.Stdout()))
	p.KillGroup()
	awaitClosed(t, 10*time.Second, "the exit is known", p.Exited())
	if got := p.ExitError().Error(); got != "killed by signal: killed" {
		t.Errorf("ended as %s", got)
	}
	p.Stop()
	if !processGone(grandchild) {
		t.Error("the grandchild is left")
	}
	p.KillGroup() // signals nobody any more
}

// KillGroup cuts a ladder short that has begun.
func TestKillGroupDuringStop(t *testing.T) {
	p := startHelperProcess(t, helperCommand(t, "stubborn"), ProcessOptions{StopTimeout: time.Minute})
	readLine(t, p.Stdout())
	done := make(chan struct{})
	go func() {
		p.Stop()
		close(done)
	}()
	within(t, 10*time.Second, "stdin is closed", func() bool {
		_, err := p.Stdin().Write(nil)
		return errors.Is(err, os.ErrClosed)
	})
	p.KillGroup()
	awaitClosed(t, 10*time.Second, "Stop is over", done)
}

func TestChildLeadsItsOwnGroup(t *testing.T) {
	p := startHelperProcess(t, helperCommand(t, "echo"), ProcessOptions{})
	if pgid, err := syscall.Getpgid(p.PID()); err != nil || pgid != p.PID() {
		t.Errorf("group %d, %v; want %d", pgid, err, p.PID())
	}
}

// Many servers do not expect a stream that does not block.
func TestChildStreamsBlock(t *testing.T) {
	p := startHelperProcess(t, helperCommand(t, "flags"), ProcessOptions{})
	awaitClosed(t, 20*time.Second, "the exit is known", p.Exited())
	got, err := io.ReadAll(p.Stdout())
	if want := "0 false <nil>\n1 false <nil>\n2 false <nil>\n"; string(got) != want || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestDeadlinesWork(t *testing.T) {
	p := startHelperProcess(t, helperCommand(t, "deaf"), ProcessOptions{})
	readLine(t, p.Stdout())
	if err := p.Stdout().SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Stdout().Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v", err)
	}
	if err := p.Stdin().SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Stdin().Write(make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("write: %v", err)
	}
}

// Stop leaves nothing behind.
func TestNoLeak(t *testing.T) {
	const cycles = 200
	c := helperCommand(t, "echo")
	cycle := func() {
		p, err := StartProcess(c, ProcessOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p.Stop()
		if got := p.ExitError().Error(); got != "exited with status 0" {
			t.Fatal(got)
		}
		assertGroupGone(t, p)
	}
	cycle() // what the runtime opens on first use is there now
	files, goroutines := openFiles(t), runtime.NumGoroutine()
	for range cycles {
		cycle()
	}
	// A goroutine that has closed its last channel may need a moment to end.
	within(t, 5*time.Second, "goroutines are back where they were", func() bool {
		return runtime.NumGoroutine() <= goroutines
	})
	if now := openFiles(t); now > files {
		t.Errorf("%d open files, %d before", now, files)
	}
}

func assertGroupGone(t *testing.T, p *Process) {
	t.Helper()
	if err := syscall.Kill(p.PID(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the leader is left: %v", err)
	}
	// Zombies of grandchildren belong to the first process of the system.
	within(t, 5*time.Second, "the group is gone", (&groupWatch{pgid: p.PID()}).gone)
}

// openFiles counts the descriptors of this process where that can be asked.
func openFiles(t *testing.T) int {
	t.Helper()
	dir := "/proc/self/fd"
	if runtime.GOOS != "linux" {
		dir = "/dev/fd"
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
