//go:build unix

package cli_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// patience bounds everything that a script waits for.
const patience = 20 * time.Second

// world is what one script has beside its files.
type world struct {
	vars     []string // the environment of what it starts
	procs    map[string]*proc
	sessions map[string]*client
}

type worldKey struct{}

func setup(env *testscript.Env) error {
	w := &world{vars: env.Vars, procs: map[string]*proc{}, sessions: map[string]*client{}}
	env.Values[worldKey{}] = w
	env.Defer(func() {
		for _, p := range w.procs {
			p.kill()
		}
		for _, c := range w.sessions {
			c.abandon()
		}
	})
	return nil
}

func worldOf(ts *testscript.TestScript) *world { return ts.Value(worldKey{}).(*world) }

type command = func(ts *testscript.TestScript, neg bool, args []string)

func scriptCommands() map[string]command {
	return map[string]command{
		"status":  status,
		"spawn":   spawn,
		"feed":    feed,
		"start":   start,
		"signal":  sendSignal,
		"ended":   ended,
		"running": running,
		"hangup":  hangup,
		"waitfor": waitFor,
		"gone":    gone,
		"http":    fetch,
		"mcp":     mcp,
		"bouncer": bouncer,
	}
}

func need(ts *testscript.TestScript, ok bool, usage string) {
	if !ok {
		ts.Fatalf("usage: %s", usage)
	}
}

// status N program [args…] runs a program that must end with status N.
func status(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) >= 2, "status N program [args…]")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	begin := time.Now()
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got, err = exit.ExitCode(), nil
	}
	ts.Check(err)
	if got != want {
		ts.Fatalf("status %d, want %d", got, want)
	}
	if took := time.Since(begin); took > patience {
		ts.Fatalf("took %s", took)
	}
}

// proc is a program in the background.
type proc struct {
	cmd   *exec.Cmd
	in    io.Writer
	ended chan struct{}
}

func (p *proc) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

func (p *proc) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// spawn NAME [KEY=VALUE…] program [args…] starts a program in the background,
// its output in NAME.out and NAME.err. Its input stays open and has nothing,
// but for what feed writes.
func spawn(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) >= 2, "spawn NAME [KEY=VALUE…] program [args…]")
	w, name, rest := worldOf(ts), args[0], args[1:]
	env := w.vars
	for strings.Contains(rest[0], "=") {
		env, rest = append(env[:len(env):len(env)], rest[0]), rest[1:]
	}
	out, err := os.Create(ts.MkAbs(name + ".out"))
	ts.Check(err)
	defer out.Close()
	log, err := os.Create(ts.MkAbs(name + ".err"))
	ts.Check(err)
	defer log.Close()
	cmd := exec.Command(rest[0], rest[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = ts.MkAbs("."), env, out, log
	in, err := cmd.StdinPipe()
	ts.Check(err)
	launch(ts, w, name, cmd)
	w.procs[name].in = in
}

// feed NAME FILE writes a file to the input of what spawn began.
func feed(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) == 2, "feed NAME FILE")
	_, err := io.WriteString(procOf(ts, args[0]).in, ts.ReadFile(args[1]))
	ts.Check(err)
}

// start is spawn for holdfast with HTTP. It waits for the ready line, and sets
// $NAME to the URL that it names, $NAME_addr to the address.
func start(ts *testscript.TestScript, neg bool, args []string) {
	spawn(ts, neg, args)
	name := args[0]
	p := procOf(ts, name)
	ready := regexp.MustCompile(`^listening on (http://\S+)\n`)
	poll(ts, name+" to be ready", func() bool {
		text := ts.ReadFile(name + ".out")
		if m := ready.FindStringSubmatch(text); m != nil {
			ts.Setenv(name, m[1])
			ts.Setenv(name+"_addr", strings.TrimPrefix(m[1], "http://"))
			return true
		}
		if !p.running() {
			ts.Fatalf("%s ended before it was ready: %s\n%s", name, p.cmd.ProcessState, ts.ReadFile(name+".err"))
		}
		return false
	})
}

func launch(ts *testscript.TestScript, w *world, name string, cmd *exec.Cmd) {
	ts.Check(cmd.Start())
	p := &proc{cmd: cmd, ended: make(chan struct{})}
	w.procs[name] = p
	go func() { // ends with the process, which is killed at the script's end
		_ = cmd.Wait()
		close(p.ended)
	}()
}

// hangup NAME program [args…] starts holdfast as start does, but with pipes
// that nobody reads any more once it is ready.
func hangup(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) >= 2, "hangup NAME program [args…]")
	w, name := worldOf(ts), args[0]
	r, out, err := os.Pipe()
	ts.Check(err)
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = ts.MkAbs("."), w.vars, out, out
	launch(ts, w, name, cmd)
	ts.Check(out.Close())
	ts.Check(r.SetReadDeadline(time.Now().Add(patience)))
	var text []byte
	for buf := make([]byte, 4096); !strings.Contains(string(text), "\n"); {
		n, err := r.Read(buf)
		ts.Check(err)
		text = append(text, buf[:n]...)
	}
	ts.Check(r.Close())
	line, _, _ := strings.Cut(string(text), "\n")
	ts.Setenv(name, strings.TrimPrefix(line, "listening on "))
}

func procOf(ts *testscript.TestScript, name string) *proc {
	p := worldOf(ts).procs[name]
	if p == nil {
		ts.Fatalf("nothing was started as %s", name)
	}
	return p
}

// signal NAME TERM|INT|KILL
func sendSignal(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) == 2, "signal NAME TERM|INT|KILL")
	sig := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL}[args[1]]
	ts.Check(procOf(ts, args[0]).cmd.Process.Signal(sig))
}

// ended NAME STATUS waits for the end of what start began.
func ended(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) == 2, "ended NAME STATUS")
	p := procOf(ts, args[0])
	select {
	case <-p.ended:
	case <-time.After(patience):
		ts.Fatalf("%s still runs after %s:\n%s", args[0], patience, ts.ReadFile(args[0]+".err"))
	}
	if got := strconv.Itoa(p.cmd.ProcessState.ExitCode()); got != args[1] {
		ts.Fatalf("%s: %s, want %s", args[0], p.cmd.ProcessState, args[1])
	}
}

// running NAME says that it has not ended.
func running(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, len(args) == 1, "running NAME")
	if procOf(ts, args[0]).running() == neg {
		ts.Fatalf("running is %v", neg)
	}
}

// waitfor FILE REGEXP waits until a file holds what matches.
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) == 2, "waitfor FILE REGEXP")
	want := regexp.MustCompile("(?m)" + args[1])
	poll(ts, args[1]+" in "+args[0], func() bool {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && want.Match(text)
	})
}

// gone FILE waits until none of the processes runs whose ids the file holds.
func gone(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) == 1, "gone FILE")
	for field := range strings.FieldsSeq(ts.ReadFile(args[0])) {
		pid, err := strconv.Atoi(field)
		ts.Check(err)
		poll(ts, fmt.Sprintf("process %d to end", pid), func() bool { return !alive(pid) })
	}
}

// alive reports whether a process runs. One that has ended and waits to be
// reaped, perhaps for ever where nobody adopts it, does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist) || !hasProc()
	}
	after := stat[strings.LastIndexByte(string(stat), ')')+1:]
	return !strings.HasPrefix(string(after), " Z")
}

func hasProc() bool {
	_, err := os.Stat("/proc/self/stat")
	return err == nil
}

func poll(ts *testscript.TestScript, what string, done func() bool) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !done() {
		select {
		case <-tick.C:
		case <-limit:
			ts.Fatalf("waited %s for %s", patience, what)
		}
	}
}

// http STATUS URL gets a page, and writes it to stdout.
func fetch(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) == 2, "http STATUS URL")
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(args[1])
	ts.Check(err)
	defer resp.Body.Close()
	_, err = io.Copy(ts.Stdout(), resp.Body)
	ts.Check(err)
	if strconv.Itoa(resp.StatusCode) != args[0] {
		ts.Fatalf("status %s, want %s", resp.Status, args[0])
	}
}
