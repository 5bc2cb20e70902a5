//go:build unix

package holdfast_test

import (
	"bufio"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ready waits until a program serves, and returns where.
func (p *program) ready(t *testing.T) (url string) {
	t.Helper()
	line, err := bufio.NewReader(p.out).ReadString('\n')
	if err != nil {
		t.Fatalf("the ready line: %q, %v", line, err)
	}
	return strings.TrimPrefix(strings.TrimSpace(line), "listening on ")
}

// terminated ends a program with SIGTERM, and returns how long that took.
func (p *program) terminated(t *testing.T, meanwhile func()) time.Duration {
	t.Helper()
	begin := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	meanwhile()
	select {
	case <-p.ended:
	case <-time.After(bound):
		t.Fatal("it does not end")
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	return time.Since(begin)
}

// A long call whose client dies is fetched by another process: one execution, the
// answer. The gateway's SIGTERM lets a task end that can, and its client have the
// answer; what it cuts off the next process says to be unknown. All with real
// processes: the client's, the gateway's and a legacy server's that knows nothing
// of tasks. The minute of the call is two seconds here; TestTaskOutlivesItsConnection
// has it in full.
func TestTaskOutlivesItsClientAndTheGateway(t *testing.T) {
	t.Parallel()
	flags := []string{"--listen=127.0.0.1:0", "--task-after=200ms", "--drain=4s", "--stop-timeout=1s", "--log-level=debug"}
	p := run(t, flags, nil)
	p.collectErr()
	base := p.ready(t)
	url := base + "/mcp"

	one := killed(t, "call", url, "sleep", `{"ms":2000,"key":"one"}`)
	wantAnswer(t, said(t, "look", url, one), `"status":"working"`)
	wantAnswer(t, said(t, "poll", url, one), `"status":"completed"`, "slept")

	ends := killed(t, "call", url, "sleep", `{"ms":2500,"key":"ends"}`)
	lasts := killed(t, "call", url, "sleep", `{"ms":60000,"key":"lasts"}`)
	took := p.terminated(t, func() {
		wantAnswer(t, said(t, "poll", url, ends), `"status":"completed"`, "slept")
		wantAnswer(t, said(t, "look", url, lasts), `"status":"working"`)
		out, err := caller(t, "call", url, "sleep", `{"ms":1,"key":"new"}`).Output()
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 1 {
			t.Errorf("a new call was answered %s, %v", out, err)
		}
	})
	if took < 4*time.Second || took > 8*time.Second { // the drain time, then at most the stop time-out
		t.Errorf("the gateway ended after %v", took)
	}
	for _, key := range []string{"one", "ends", "lasts"} {
		wantRuns(t, p.childCounts, key, 1)
	}
	wantRuns(t, p.childCounts, "new", 0)

	flags[0] = "--listen=" + strings.TrimPrefix(base, "http://")
	p = run(t, flags, nil)
	p.collectErr()
	if at := p.ready(t); at != base {
		t.Fatalf("started again at %s, not %s", at, base)
	}
	for _, task := range []string{ends, lasts} {
		wantAnswer(t, said(t, "poll", url, task), `"code":-32602`, `"outcome":"unknown"`, "started anew", "before calling again")
	}
	wantAnswer(t, said(t, "poll", url, "hf-task-"), `"code":-32602`)
	for _, key := range []string{"ends", "lasts"} {
		wantRuns(t, p.childCounts, key, 0)
	}
}
