//go:build unix

package holdfast_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
)

// Cases of kind f with process trees, and with holdfast as a process of its own.

// pids asks a server who it is: its process and its parent.
func pids(t *testing.T, c *client, id string) (self, parent int) {
	t.Helper()
	var m struct {
		Result struct{ StructuredContent testkit.Identity }
	}
	if err := json.Unmarshal([]byte(c.ask(toolCall(id, "whoami", `{}`, ""))), &m); err != nil || m.Result.StructuredContent.Pid == 0 {
		t.Fatalf("whoami: %v, %+v", err, m)
	}
	return m.Result.StructuredContent.Pid, m.Result.StructuredContent.Ppid
}

// grandchild makes a server start a process that is deaf to everything.
func grandchild(t *testing.T, c *client, id string) int {
	t.Helper()
	var m struct {
		Result struct{ StructuredContent struct{ Pid int } }
	}
	if err := json.Unmarshal([]byte(c.ask(toolCall(id, "spawn", `{"inherit":true}`, ""))), &m); err != nil || m.Result.StructuredContent.Pid == 0 {
		t.Fatalf("spawn: %v, %+v", err, m)
	}
	pid := m.Result.StructuredContent.Pid
	t.Cleanup(func() {
		if testkit.Alive(pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return pid
}

// descriptors counts this process's open files, where that can be told.
func descriptors() int {
	names, _ := os.ReadDir("/dev/fd")
	return len(names)
}

// C36: a wrapper around a server that ignores the end of its input and SIGTERM.
func TestC36WholeTreeGoesAtTheEndOfASession(t *testing.T) {
	inner, counts := scripted(t, "-ignore-eof", "-ignore-term")
	script := `exec 3<&0; "$0" "$@" <&3 & wait`
	server := holdfast.Command("sh", append([]string{"-c", script, inner.Command}, inner.Args...)...)
	server.StopTimeout, server.Warm = time.Second, -1
	before := descriptors()
	really(t, setup{options: holdfast.Options{Server: server}}, func(t *testing.T, b *bench) {
		c := b.streamable(v11)
		pid, wrapper := pids(t, c, "1")
		grand := grandchild(t, c, "2")
		got := c.ask(toolCall("3", "sleep", `{"ms":200,"key":"a"}`, ""))
		if c.do(http.MethodDelete, "/mcp", "").done(); !strings.Contains(got, "slept") { // it was out before
			t.Errorf("answered with %s", got)
		}
		begin := time.Now()
		for _, p := range []int{pid, wrapper, grand} {
			b.within(3*time.Second, fmt.Sprintf("the end of process %d of %v", p, []int{pid, wrapper, grand}), func() bool { return !testkit.Alive(p) })
		}
		b.within(time.Second, "the reaping of the wrapper", func() bool { return syscall.Kill(wrapper, 0) == syscall.ESRCH })
		if d := time.Since(begin); d > 2*server.StopTimeout {
			t.Errorf("it took %v", d)
		}
		begin = time.Now()
		b.close()
		if d := time.Since(begin); d > 3*time.Second {
			t.Errorf("Stop took %v", d)
		}
		b.within(time.Second, "the end of the descriptors", func() bool { return descriptors() <= before })
	})
	wantRuns(t, counts, "a", 1)
}

// C36, C38: a server sees the end of its own input, which no other child holds
// open; it needs no signal then.
func TestC36PipesAreClosedOnExec(t *testing.T) {
	t.Parallel()
	server, _ := scripted(t)
	server.StopTimeout = 20 * time.Second // SIGTERM would come after 8 s
	really(t, setup{options: holdfast.Options{Server: server}}, func(t *testing.T, b *bench) {
		one, two := b.streamable(v11), b.streamable(v11)
		first, _ := pids(t, one, "1")
		second, _ := pids(t, two, "1")
		one.do(http.MethodDelete, "/mcp", "").done()
		b.within(3*time.Second, "the end of the first server", func() bool { return !testkit.Alive(first) })
		if !testkit.Alive(second) {
			t.Error("the second server is gone, too")
		}
	})
}

// C38: a grandchild that holds a copy of a dead server's output keeps nobody
// waiting.
func TestC38GrandchildHoldsThePipe(t *testing.T) {
	t.Parallel()
	server, counts := scripted(t)
	really(t, setup{options: holdfast.Options{Server: server}}, func(t *testing.T, b *bench) {
		c := b.streamable(v11)
		grand := grandchild(t, c, "1")
		c.send(toolCall("2", "sleep", `{"ms":60000,"key":"a"}`, ""))
		b.running(counts, "a")
		before := time.Now()
		c.ask(toolCall("3", "crash", `{"code":17}`, ""))
		if got := c.answer("2"); !strings.Contains(got, "exited with status 17") {
			t.Errorf("answered with %s", got)
		}
		if d := time.Since(before); d > time.Second {
			t.Errorf("the answers took %v", d)
		}
		b.within(3*time.Second, "the end of the grandchild", func() bool { return !testkit.Alive(grand) })
	})
	wantRuns(t, counts, "a", 1)
}

// program is a holdfast of its own.
type program struct {
	cmd         *exec.Cmd
	in          *os.File // the write end of its stdin
	out         *os.File // the read end of its stdout
	err         *os.File // the read end of its stderr
	ended       chan struct{}
	childCounts string
}

// run starts holdfast before a server of testkit.
func run(t *testing.T, flags, serverFlags []string) *program {
	t.Helper()
	server, counts := scripted(t, serverFlags...)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{ended: make(chan struct{}), childCounts: counts}
	p.cmd = exec.Command(exe, append(append(append([]string{"serve"}, flags...), "--", server.Command), server.Args...)...)
	p.cmd.Env = append(os.Environ(), quickExit)
	var theirs [3]*os.File
	for i, ours := range []**os.File{&p.in, &p.out, &p.err} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if theirs[i], *ours = w, r; i == 0 {
			theirs[i], *ours = r, w
		}
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range theirs {
		_ = f.Close()
	}
	go func() { defer close(p.ended); _ = p.cmd.Wait() }() // ends with the process
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // an error means that it is over
		<-p.ended
		for _, f := range []*os.File{p.in, p.out, p.err} {
			_ = f.Close()
		}
	})
	return p
}

// collectErr keeps what the program says on stderr.
func (p *program) collectErr() *logbook {
	log := &logbook{}
	go func() { // ends with the pipe
		buf := make([]byte, 4<<10)
		for {
			n, err := p.err.Read(buf)
			if _, _ = log.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	return log
}

// C38 for the stdio front. A client that speaks stdio to a remote server is
// holdfast's own bridge, which comes later.
func TestC38HostGoesAway(t *testing.T) {
	for name, leave := range map[string]func(p *program){
		"stdin closed":        func(p *program) { _ = p.in.Close() },
		"output broken":       func(p *program) { _ = p.out.Close(); _ = p.err.Close() },
		"killed, all at once": func(p *program) { _ = p.out.Close(); _ = p.err.Close(); _ = p.in.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := []string{"--transport=stdio", "--log-level=debug", "--stop-timeout=500ms"}
			if name == "stdin closed" { // else nobody is there to wait for
				flags = append(flags, "--drain=500ms")
			}
			p := run(t, flags, []string{"-ignore-eof", "-ignore-term"})
			b := &bench{t: t, log: p.collectErr()}
			defer b.close()
			c := b.pipeTo(p.in, p.out)
			c.handshake(v11, "{}")
			pid, _ := pids(t, c, "1")
			grand := grandchild(t, c, "2")
			c.send(toolCall("3", "progress", `{"n":10000,"intervalMs":10,"key":"a"}`, `{"progressToken":1}`)) // writes while it goes away
			c.await("notifications/progress")
			begin := time.Now()
			leave(p)
			select {
			case <-p.ended:
			case <-time.After(bound):
				t.Fatal("it does not end")
			}
			if d := time.Since(begin); d > 2500*time.Millisecond { // half of it to stop the servers
				t.Errorf("it took %v to end", d)
			}
			if code := p.cmd.ProcessState.ExitCode(); name == "stdin closed" && code != 0 {
				t.Errorf("exit status %d", code)
			}
			for _, gone := range []int{pid, grand} {
				b.within(3*time.Second, fmt.Sprintf("the end of process %d", gone), func() bool { return !testkit.Alive(gone) })
			}
			if name != "stdin closed" {
				c.waive("3") // there is nobody to answer
			}
			b.settle()
			wantRuns(t, p.childCounts, "a", 1)
		})
	}
}

// C34, the variant: our own stderr is a pipe that nobody reads, and then one
// that is broken.
func TestC34NobodyReadsTheLog(t *testing.T) {
	t.Parallel()
	p := run(t, []string{"--listen=127.0.0.1:0", "--log-level=debug"}, []string{"-stderr=262144"})
	line, err := bufio.NewReader(p.out).ReadString('\n')
	addr := strings.TrimPrefix(strings.TrimSpace(line), "listening on http://")
	if err != nil {
		t.Fatalf("the ready line: %q, %v", line, err)
	}
	b := &bench{t: t, log: &logbook{}, dial: func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}}
	defer b.close()
	late := time.AfterFunc(2*bound, func() { _ = p.cmd.Process.Kill() }) // or a failed test takes minutes
	defer late.Stop()
	c := b.streamable(v11)
	for i := range 100 { // 80,000 lines, more than any queue takes
		c.ask(toolCall(fmt.Sprint(i), "stderr", `{"bytes":65536,"newline":true}`, ""))
	}
	b.legacy(v2024).ask(toolCall("1", "echo", `{"text":"x"}`, ""))
	_ = p.err.Close()
	b.streamable(v11).ask(toolCall("1", "stderr", `{"bytes":65536,"newline":true}`, ""))
	b.settle()
	begin := time.Now()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(bound):
		t.Fatal("it does not end")
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 || time.Since(begin) > 5*time.Second {
		t.Errorf("ended with %d after %v", code, time.Since(begin))
	}
}
