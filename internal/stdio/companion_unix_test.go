//go:build unix

package stdio

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestReadGroups(t *testing.T) {
	tests := []struct {
		name, in string
		want     []int
	}{
		{"nothing", "", nil},
		{"added and removed", "+100\n+200\n-100\n", []int{200}},
		{"added again", "+100\n-100\n+100\n+100\n", []int{100}},
		{"removed without being added", "-100\n+200\n", []int{200}},
		{"junk", "\n+\nhello\n+0\n+1\n+-1\n+100\n", []int{100}},
		{"a long line", "+" + strings.Repeat("1", 500) + "\n+100\n", []int{100}},
		{"a last line that is cut", "+100\n+200", []int{100}},
		{"our own group", fmt.Sprintf("+%d\n", syscall.Getpgrp()), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := slices.Sorted(maps.Keys(readGroups(strings.NewReader(tt.in))))
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestRunCompanionEndsGroups(t *testing.T) {
	polite := startHelperProcess(t, helperCommand(t, "deaf"), ProcessOptions{})
	stubborn := startHelperProcess(t, helperCommand(t, "stubborn"), ProcessOptions{})
	spared := startHelperProcess(t, helperCommand(t, "deaf"), ProcessOptions{})
	for _, p := range []*Process{polite, stubborn, spared} {
		readLine(t, p.Stdout())
	}
	in := fmt.Sprintf("+%d\n+%d\n+%d\n-%d\n", spared.PID(), polite.PID(), stubborn.PID(), spared.PID())
	if code := RunCompanion(strings.NewReader(in)); code != 0 {
		t.Errorf("status %d", code)
	}
	for p, want := range map[*Process]string{polite: "killed by signal: terminated", stubborn: "killed by signal: killed"} {
		awaitClosed(t, 5*time.Second, "the exit is known", p.Exited())
		if got := p.ExitError().Error(); got != want {
			t.Errorf("ended as %s, want %s", got, want)
		}
	}
	if processGone(spared.PID()) {
		t.Error("a group that was taken away again was ended")
	}
}

// The reason for it all: the gateway is killed and cannot do anything, and
// neither child nor grandchild is left. What the terminal or the service
// manager sends to all does not end the companion first.
func TestKillOfGatewayLeavesNothing(t *testing.T) {
	gateway := startHelperProcess(t, helperCommand(t, "gateway"), ProcessOptions{})
	var child, grandchild int
	line := readLine(t, gateway.Stdout())
	if _, err := fmt.Sscan(line, &child, &grandchild); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	for _, pid := range []int{child, grandchild} {
		if processGone(pid) {
			t.Fatalf("process %d is gone too early", pid)
		}
	}
	// The leader alone, not its group: the children have groups of their own.
	if err := syscall.Kill(gateway.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	within(t, companionGrace+slack, "child and grandchild are gone", func() bool {
		return processGone(child) && processGone(grandchild)
	})
}

func TestCompanionKeepsStep(t *testing.T) {
	rec, c := startRecorder(t)
	c.Watch(1001)
	c.Watch(1002)
	rec.await(t, "+1001", "+1002")
	c.Forget(1001)
	c.Forget(1001)
	c.Forget(9999)
	c.Watch(0)
	c.Watch(1)
	rec.await(t, "+1001", "+1002", "-1001")
	c.Close()
	c.Close()
	c.Watch(1003) // too late to be of use, but it returns
	rec.await(t, "+1001", "+1002", "-1001", "end")
}

// A companion that is lost is replaced, and the new one knows everything.
func TestCompanionIsReplaced(t *testing.T) {
	rec, c := startRecorder(t)
	c.Watch(1001)
	c.Watch(1002)
	rec.await(t, "+1001", "+1002")
	c.Forget(1001)
	rec.await(t, "+1001", "+1002", "-1001")
	for range 2 {
		if err := syscall.Kill(rec.pid(t), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		rec.awaitNext(t)
		rec.await(t, "+1002")
	}
	c.Watch(1003)
	rec.await(t, "+1002", "+1003")
}

// A companion that does not read is replaced too, and holds up nobody.
func TestStuckCompanionIsReplaced(t *testing.T) {
	rec, c := startRecorder(t)
	c.Watch(1001)
	rec.await(t, "+1001")
	stuck := rec.pid(t)
	if err := syscall.Kill(stuck, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	for i := range 20_000 { // more than a pipe takes
		c.groups[1_000_000+i] = struct{}{}
	}
	c.mu.Unlock()
	begin := time.Now()
	c.Watch(1002)
	if took := time.Since(begin); took >= companionWrite {
		t.Errorf("Watch took %v", took)
	}
	rec.awaitNext(t)
	if !processGone(stuck) {
		t.Error("the stuck companion is left")
	}
	within(t, 20*time.Second, "the new one is told everything", func() bool {
		return len(rec.told(t)) == 20_002
	})
}

func TestCompanionStartError(t *testing.T) {
	for _, argv := range [][]string{nil, {filepath.Join(t.TempDir(), "none")}} {
		if c, err := StartCompanion(argv, nil); err == nil {
			c.Close()
			t.Errorf("%q started", argv)
		}
	}
}

func TestNoCompanion(t *testing.T) {
	var c *Companion
	c.Watch(1001)
	c.Forget(1001)
	c.Close()
}

// A process is watched as long as its group exists.
func TestProcessTellsCompanion(t *testing.T) {
	rec, c := startRecorder(t)
	p := startHelperProcess(t, helperCommand(t, "echo"), ProcessOptions{Companion: c})
	rec.await(t, fmt.Sprintf("+%d", p.PID()))
	p.Stop()
	rec.await(t, fmt.Sprintf("+%d", p.PID()), fmt.Sprintf("-%d", p.PID()))
}

// recorder reads what companions write down that do nothing else.
type recorder struct {
	file string
	seen int // companions
}

func startRecorder(t *testing.T) (*recorder, *Companion) {
	t.Helper()
	rec := &recorder{file: filepath.Join(t.TempDir(), "told")}
	cmd := helperCommand(t, "record", rec.file)
	c, err := StartCompanion(append([]string{cmd.Path}, cmd.Args...), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	rec.awaitNext(t)
	return rec, c
}

// lines is all that was written, whole lines only.
func (r *recorder) lines(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(r.file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	return lines[:len(lines)-1]
}

// told is what the latest companion was told, in order.
func (r *recorder) told(t *testing.T) []string {
	t.Helper()
	lines := r.lines(t)
	for i, line := range slices.Backward(lines) {
		if strings.HasPrefix(line, "pid ") {
			return lines[i+1:]
		}
	}
	return nil
}

// pid is the process id of the latest companion.
func (r *recorder) pid(t *testing.T) int {
	t.Helper()
	for _, line := range slices.Backward(r.lines(t)) {
		if pid, ok := strings.CutPrefix(line, "pid "); ok {
			return atoi(t, pid)
		}
	}
	t.Fatal("no companion yet")
	return 0
}

// await waits until the latest companion has been told these lines.
func (r *recorder) await(t *testing.T, want ...string) {
	t.Helper()
	within(t, 20*time.Second, fmt.Sprintf("the companion is told %q", want), func() bool {
		return slices.Equal(r.told(t), want)
	})
}

// awaitNext waits until one more companion runs.
func (r *recorder) awaitNext(t *testing.T) {
	t.Helper()
	r.seen++
	within(t, 20*time.Second, "the next companion runs", func() bool {
		n := 0
		for _, line := range r.lines(t) {
			if strings.HasPrefix(line, "pid ") {
				n++
			}
		}
		return n == r.seen
	})
}
