package stdio

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestExitError(t *testing.T) {
	checkExit(t, helperCommand(t, "exit", "17", "first\nlast words\n"), ExitError{Code: 17, Stderr: "first\nlast words\n"}, "exited with status 17")
	checkExit(t, helperCommand(t, "exit", "0"), ExitError{}, "exited with status 0")
}

func checkExit(t *testing.T, c Command, want ExitError, words string) {
	t.Helper()
	p := startHelperProcess(t, c, ProcessOptions{})
	awaitClosed(t, 20*time.Second, "the exit is known", p.Exited())
	got, ok := errors.AsType[*ExitError](p.ExitError())
	if !ok {
		t.Fatalf("ExitError() = %v", p.ExitError())
	}
	want.Name, want.PID = c.Name, p.PID()
	if *got != want || got.Error() != words {
		t.Errorf("got %+v (%v), want %+v (%s)", *got, got, want, words)
	}
	if p.StderrTail() != want.Stderr {
		t.Errorf("StderrTail() = %q", p.StderrTail())
	}
}

func TestExitErrorIsNilWhileRunning(t *testing.T) {
	p := startHelperProcess(t, helperCommand(t, "echo"), ProcessOptions{})
	if err := p.ExitError(); err != nil {
		t.Errorf("ExitError() = %v while the child runs", err)
	}
}

// What a child wrote before it ended stays readable, case C35 (iv).
func TestLastOutputSurvivesExit(t *testing.T) {
	p := startHelperProcess(t, helperCommand(t, "reply", "last", "words"), ProcessOptions{})
	awaitClosed(t, 20*time.Second, "the exit is known", p.Exited())
	if got := readLine(t, p.Stdout()); got != "last words" {
		t.Errorf("got %q", got)
	}
	if _, err := p.Stdin().WriteString("x"); err == nil {
		t.Error("a write to the dead child succeeds")
	}
}

func TestStopIsIdempotentAndConcurrent(t *testing.T) {
	p := startHelperProcess(t, helperCommand(t, "deaf"), ProcessOptions{StopTimeout: 500 * time.Millisecond})
	readLine(t, p.Stdout())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			p.Stop()
			if p.ExitError() == nil {
				t.Error("Stop returned before the end")
			}
		})
	}
	wg.Wait()
	p.Stop()
	if _, err := p.Stdout().Read(make([]byte, 1)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("read after Stop: %v", err)
	}
	if _, err := p.Stdin().Write([]byte("x")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("write after Stop: %v", err)
	}
}

func TestChildEnvironment(t *testing.T) {
	t.Setenv("MCP_TRANSPORT", "stdio")
	t.Setenv("HOLDFAST_LISTEN", "x")
	t.Setenv("STDIO_TEST_KEPT", "kept")
	t.Setenv("STDIO_TEST_REPLACED", "old")
	c := helperCommand(t, "env")
	c.Env = []string{"STDIO_TEST_REPLACED=new", "HOLDFAST_EXPLICIT=yes"}
	p := startHelperProcess(t, c, ProcessOptions{})
	awaitClosed(t, 20*time.Second, "the exit is known", p.Exited())
	out, err := io.ReadAll(p.Stdout())
	if err != nil {
		t.Fatal(err)
	}
	env := "\n" + strings.ReplaceAll(string(out), "\r", "")
	for _, want := range []string{"STDIO_TEST_KEPT=kept", "STDIO_TEST_REPLACED=new", "HOLDFAST_EXPLICIT=yes"} {
		if !strings.Contains(env, "\n"+want+"\n") {
			t.Errorf("missing: %s", want)
		}
	}
	for _, unwanted := range []string{"MCP_TRANSPORT=", "HOLDFAST_LISTEN=", "STDIO_TEST_REPLACED=old"} {
		if strings.Contains(env, "\n"+unwanted) {
			t.Errorf("there: %s", unwanted)
		}
	}
}

// Case C34: a child that fills its stderr goes on, even when the log stands still.
func TestFloodOfStderr(t *testing.T) {
	sink := newStuckHandler()
	t.Cleanup(sink.free)
	p := startHelperProcess(t, helperCommand(t, "flood", fmt.Sprint(1<<20)), ProcessOptions{
		Logger: sink.logger(), StderrTail: 1000, StopTimeout: time.Second,
	})
	if got := readLine(t, p.Stdout()); got != "flooded" {
		t.Errorf("got %q", got)
	}
	begin := time.Now()
	p.Stop()
	if took := time.Since(begin); took > time.Second+slack {
		t.Errorf("Stop took %v", took)
	}
	if got, want := p.StderrTail(), "…"+strings.Repeat("x", 1000); got != want {
		t.Errorf("tail of %d bytes: %.40q", len(got), got)
	}
	sink.free()
	awaitClosed(t, 10*time.Second, "the log has taken the rest", p.log.done)
}
