package stdio

import (
	"io"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/liveness"
)

// span is how far two looks are apart: long enough for a busy machine to give
// a process some ticks of its time.
const span = 300 * time.Millisecond

// look takes the vital signs, which must be known.
func look(t *testing.T, p *Process) liveness.Vitals {
	t.Helper()
	v := p.Vitals()
	if !v.Known || time.Since(v.At) > slack || time.Since(v.At) < 0 {
		t.Fatalf("got %+v", v)
	}
	return v
}

// until looks again and again, to the end of slack.
func until(t *testing.T, p *Process, what string, is func(v liveness.Vitals) bool) liveness.Vitals {
	t.Helper()
	ticker := time.NewTicker(span)
	defer ticker.Stop()
	for end := time.Now().Add(slack); time.Now().Before(end); <-ticker.C {
		if v := look(t, p); is(v) {
			return v
		}
	}
	t.Fatalf("never %s: %+v", what, p.Vitals())
	return liveness.Vitals{}
}

func TestVitalsOfCPU(t *testing.T) {
	busy := startHelperProcess(t, helperCommand(t, "spin"), ProcessOptions{})
	idle := startHelperProcess(t, helperCommand(t, "deaf"), ProcessOptions{})
	readLine(t, busy.Stdout())
	readLine(t, idle.Stdout())
	was, quiet := look(t, busy), look(t, idle)
	v := until(t, busy, "used CPU", func(v liveness.Vitals) bool { return v.CPU-was.CPU > 50*time.Millisecond })
	if v.Procs != 1 || v.Children != 0 || v.Stopped || !v.Youngest.IsZero() {
		t.Errorf("one process that works: %+v", v)
	}
	if v := look(t, idle); v.CPU-quiet.CPU > v.At.Sub(quiet.At)/5 {
		t.Errorf("an idle process used %s", v.CPU-quiet.CPU)
	}
}

// The server is often a child of what was started: npx, uvx, a script.
func TestVitalsOfChild(t *testing.T) {
	began := time.Now()
	p := startHelperProcess(t, helperCommand(t, "beside", "spin"), ProcessOptions{})
	pid := readLine(t, p.Stdout())
	was := look(t, p)
	if was.Procs != 2 || was.Children != 1 || formatCompanionLine(true, was.YoungestPID) != "+"+pid+"\n" {
		t.Fatalf("a process and its child %s: %+v", pid, was)
	}
	// The system rounds down, by a hundredth of a second at most.
	if was.Youngest.Before(began.Add(-50*time.Millisecond)) || was.Youngest.After(time.Now()) {
		t.Errorf("the child began at %s, we before it at %s", was.Youngest, began)
	}
	until(t, p, "the child's CPU counted", func(v liveness.Vitals) bool { return v.CPU-was.CPU > 50*time.Millisecond })
}

func TestVitalsAfterTheEnd(t *testing.T) {
	p := startHelperProcess(t, helperCommand(t, "exit", "0"), ProcessOptions{})
	awaitClosed(t, slack, "the exit is known", p.Exited())
	if v := p.Vitals(); v.Known || v.At.IsZero() {
		t.Errorf("got %+v", v)
	}
}

func TestVitalsOfLink(t *testing.T) {
	l, err := Launch(helperCommand(t, "deaf"), ProcessOptions{StopTimeout: time.Second}, ConnOptions{}, discard{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Stop()
	if v := l.Vitals(); !v.Known || v.Procs != 1 {
		t.Errorf("a process: %+v", v)
	}
	r, w := io.Pipe()
	c := Connect(r, w, w, ConnOptions{}, discard{})
	defer c.Stop()
	if v := c.Vitals(); v.Known || v.At.IsZero() {
		t.Errorf("no process: %+v", v)
	}
}

type discard struct{}

func (discard) Line([]byte)          {}
func (discard) Oversize([]byte, int) {}
func (discard) Closed(error)         {}
