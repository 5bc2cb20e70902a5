package testkit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is a server as a child of this test.
type process struct {
	wire
	cmd    *exec.Cmd
	stderr bytes.Buffer
}

func launch(t *testing.T, args ...string) *process {
	t.Helper()
	path, argv, env := Command(args...)
	p := &process{cmd: exec.CommandContext(t.Context(), path, argv...)}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = &p.stderr
	p.cmd.WaitDelay = 10 * time.Second
	in, err1 := p.cmd.StdinPipe()
	out, err2 := p.cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	p.wire = wire{t: t, in: in, out: bufio.NewReader(out)}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// exit waits for the process and checks its exit code; -1 is a signal.
func (p *process) exit(code int) {
	p.t.Helper()
	if _, err := io.Copy(io.Discard, p.out); err != nil {
		p.t.Error(err)
	}
	_ = p.cmd.Wait()
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Errorf("exit code %d, want %d; stderr %q", got, code, p.stderr.String())
	}
}

func (p *process) whoami() Identity {
	p.t.Helper()
	var id Identity
	if err := json.Unmarshal([]byte(p.call("whoami", `{}`)), &id); err != nil {
		p.t.Fatal(err)
	}
	return id
}

func TestProcessServes(t *testing.T) {
	counts := filepath.Join(t.TempDir(), "counts")
	p := launch(t, "-name=child", "-versions=2024-11-05,2025-03-26", "-stderr=100000", "-counts="+counts)
	m := p.initialize("2025-11-25")
	if !strings.Contains(string(m.Result), `"protocolVersion":"2025-03-26","serverInfo":{"name":"child"`) {
		t.Errorf("got %s", m.Result)
	}
	id := p.whoami()
	if id.Pid != p.cmd.Process.Pid || id.Ppid != os.Getpid() || !Alive(id.Pid) {
		t.Errorf("got %+v, which lives: %t", id, Alive(id.Pid))
	}
	if got := p.call("sleep", `{"ms":1,"key":"k"}`); got != "slept" {
		t.Errorf("got %s", got)
	}
	_ = p.in.Close()
	p.exit(0)
	if p.stderr.Len() != 100000 {
		t.Errorf("%d bytes of stderr", p.stderr.Len())
	}
	if got, err := ReadCounts(counts, "k"); err != nil || got != (Counts{Start: 1, End: 1}) {
		t.Errorf("counted %+v, %v", got, err)
	}
	if Alive(id.Pid) {
		t.Error("alive after its end")
	}
}

func TestProcessEnds(t *testing.T) {
	once := filepath.Join(t.TempDir(), "once")
	tests := []struct {
		name  string
		flags []string
		tool  string
		code  int
	}{
		{"at once", []string{"-exit=17", "-say=cannot"}, "", 17},
		{"by a crash", nil, "crash", 3},
		{"after a reply", nil, "exit-after-reply", 3},
		{"by its age", []string{"-life=200ms", "-ignore-eof"}, "", maxLifeCode},
		{"by its age, holding", []string{"-life=200ms", "-hold"}, "", maxLifeCode},
		{"by a wrong flag", []string{"-nonsense"}, "", 2},
		{"the first time", []string{"-once=" + once, "-first-exit=4", "-then-exit=5"}, "", 4},
		{"the second time", []string{"-once=" + once, "-first-exit=4", "-then-exit=5"}, "", 5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := launch(t, tt.flags...)
			if tt.tool != "" {
				p.send(CallTool("1", tt.tool, `{"code":3}`))
			}
			if tt.tool == "exit-after-reply" {
				if m := p.next(); m.Text() != "bye" {
					t.Errorf("got %s", m.Bytes)
				}
			}
			p.exit(tt.code)
		})
	}
}

func TestProcessChangesAfterItsFirstStart(t *testing.T) {
	flags := []string{"-once=" + filepath.Join(t.TempDir(), "once"), "-then-versions=2024-11-05", `-then-capabilities={"tools":{}}`}
	for _, want := range []string{`"protocolVersion":"2025-11-25"`, `{"capabilities":{"tools":{}},`} {
		p := launch(t, flags...)
		if m := p.initialize("2025-11-25"); !strings.Contains(string(m.Result), want) {
			t.Errorf("got %s, want %s", m.Result, want)
		}
		_ = p.in.Close()
		p.exit(0)
	}
}

func TestProcessIsStubborn(t *testing.T) {
	p := launch(t, "-ignore-eof", "-ignore-term", "-life=1m")
	pid := p.whoami().Pid
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := p.call("echo", `{"text":"still here"}`); got != "still here" {
		t.Errorf("got %q", got)
	}
	_ = p.in.Close()
	// That it has seen the end shows in nothing; that it lives on must hold
	// for longer than ending takes.
	begin := time.Now()
	Eventually(t, 5*time.Second, "a while passes", func() bool { return time.Since(begin) > 200*time.Millisecond })
	if !Alive(pid) {
		t.Error("ended by the end of its input")
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.exit(-1)
}

func TestProcessThatHearsNothing(t *testing.T) {
	p := launch(t, "-life=1m")
	if got := p.call("close-stdin", `{"ms":30000}`); got != "closing" {
		t.Fatalf("got %q", got)
	}
	Eventually(t, 10*time.Second, "a write fails", func() bool {
		_, err := io.WriteString(p.in, "\n")
		return err != nil
	})
	if !Alive(p.cmd.Process.Pid) {
		t.Error("ended")
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.exit(-1)
}

func TestProcessSpawns(t *testing.T) {
	p := launch(t)
	var child struct{ Pid int }
	if err := json.Unmarshal([]byte(p.call("spawn", `{}`)), &child); err != nil {
		t.Fatal(err)
	}
	_ = p.in.Close()
	p.exit(0)
	if !Alive(child.Pid) {
		t.Fatal("the grandchild ended with its parent")
	}
	grandchild, err := os.FindProcess(child.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := grandchild.Kill(); err != nil {
		t.Fatal(err)
	}
	Eventually(t, 10*time.Second, "the grandchild is gone", func() bool { return !Alive(child.Pid) })
}
