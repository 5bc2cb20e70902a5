package testkit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const (
	serverEnv = "TESTKIT_SERVER"
	serverArg = "testkit-server"
	// maxLife is how long a server process lives at most, so that no failed
	// test leaves one behind for good.
	maxLife     = 3 * time.Minute
	maxLifeCode = 98
)

// Main runs the scripted server and exits, if this process was started by
// Command; otherwise it returns at once. Call it first in TestMain.
func Main() {
	args := os.Args[1:]
	marked := len(args) > 0 && args[0] == serverArg
	if marked {
		args = args[1:]
	}
	if marked || os.Getenv(serverEnv) == "1" {
		os.Exit(serveProcess(args))
	}
}

// Command is the running test binary as an MCP server on its stdin and stdout:
// the program, its arguments without the program itself, and what its
// environment must hold (the first argument says the same, for callers that
// have no say in the environment). Each of args is a flag:
//
//	-name=S -versions=A,B -capabilities=JSON   as in Options
//	-start-delay=4s -init-delay=4s             as in Options
//	-stderr=N -junk -counts=FILE               as in Options
//	-say=TEXT       a line on stderr, at once
//	-exit=17        exit with that code, at once
//	-ignore-eof     live on when stdin ends
//	-ignore-term    live on when asked to end
//	-hold           serve nothing, only live
//	-life=3m        the longest it lives, whatever happens
//	-once=FILE      the first process to see it makes FILE; the flags -first-exit
//	                and -then-exit, -then-versions, -then-capabilities apply to
//	                that process, and to those after it
func Command(args ...string) (path string, argv, env []string) {
	path, err := os.Executable()
	if err != nil {
		path = os.Args[0]
	}
	return path, append([]string{serverArg}, args...), []string{serverEnv + "=1"}
}

// processFlags are the flags that are about the process, not the server.
type processFlags struct {
	say                   string
	exit                  int
	ignoreEOF, ignoreTerm bool
	hold                  bool
	life                  time.Duration

	once                           string
	firstExit, thenExit            int
	thenVersions, thenCapabilities string
}

func parseFlags(args []string) (Options, processFlags, error) {
	var o Options
	var p processFlags
	var versions string
	set := flag.NewFlagSet(serverArg, flag.ContinueOnError)
	set.StringVar(&o.Name, "name", "", "")
	set.StringVar(&versions, "versions", "", "")
	set.StringVar(&o.Capabilities, "capabilities", "", "")
	set.DurationVar(&o.StartDelay, "start-delay", 0, "")
	set.DurationVar(&o.InitDelay, "init-delay", 0, "")
	set.IntVar(&o.StderrBytes, "stderr", 0, "")
	set.BoolVar(&o.Junk, "junk", false, "")
	set.StringVar(&o.CountFile, "counts", "", "")
	set.StringVar(&p.say, "say", "", "")
	set.IntVar(&p.exit, "exit", -1, "")
	set.BoolVar(&p.ignoreEOF, "ignore-eof", false, "")
	set.BoolVar(&p.ignoreTerm, "ignore-term", false, "")
	set.BoolVar(&p.hold, "hold", false, "")
	set.DurationVar(&p.life, "life", maxLife, "")
	set.StringVar(&p.once, "once", "", "")
	set.IntVar(&p.firstExit, "first-exit", -1, "")
	set.IntVar(&p.thenExit, "then-exit", -1, "")
	set.StringVar(&p.thenVersions, "then-versions", "", "")
	set.StringVar(&p.thenCapabilities, "then-capabilities", "", "")
	err := set.Parse(args)
	if err == nil && p.once != "" {
		err = p.applyOnce(&o, &versions)
	}
	if versions != "" {
		o.Versions = strings.Split(versions, ",")
	}
	return o, p, err
}

func (p *processFlags) applyOnce(o *Options, versions *string) error {
	f, err := os.OpenFile(p.once, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	switch {
	case err == nil:
		p.exit = max(p.exit, p.firstExit)
		return f.Close()
	case errors.Is(err, fs.ErrExist):
		p.exit = max(p.exit, p.thenExit)
		o.Capabilities = cmp.Or(p.thenCapabilities, o.Capabilities)
		*versions = cmp.Or(p.thenVersions, *versions)
		return nil
	}
	return fmt.Errorf("testkit: %w", err)
}

// serveProcess is the whole life of a server process.
func serveProcess(args []string) int {
	o, p, err := parseFlags(args)
	if err != nil {
		return 2 // the flag set has said why
	}
	if p.ignoreTerm {
		signal.Ignore(syscall.SIGTERM, os.Interrupt)
	}
	ctx, stop := context.WithTimeout(context.Background(), p.life)
	defer stop()
	defer context.AfterFunc(ctx, func() { os.Exit(maxLifeCode) })() // whatever hangs
	if p.say != "" {
		fmt.Fprintln(os.Stderr, p.say)
	}
	if p.exit >= 0 {
		return p.exit
	}
	o.Stderr, o.Exit = os.Stderr, os.Exit
	if !p.hold {
		err = Serve(ctx, os.Stdin, os.Stdout, o)
	}
	if p.hold || p.ignoreEOF {
		<-ctx.Done()
		return maxLifeCode
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// spawn starts a process of this binary that only lives, deaf to everything
// but SIGKILL, as a grandchild of whoever started this server.
func spawn(inherit bool) (any, error) {
	path, argv, env := Command("-hold", "-ignore-term")
	attr := &os.ProcAttr{Env: append(os.Environ(), env...)}
	if inherit {
		attr.Files = []*os.File{nil, os.Stdout, os.Stderr}
	}
	p, err := os.StartProcess(path, append([]string{path}, argv...), attr)
	if err != nil {
		return nil, fmt.Errorf("testkit: spawn: %w", err)
	}
	pid := p.Pid
	if err := p.Release(); err != nil {
		return nil, fmt.Errorf("testkit: spawn: %w", err)
	}
	return toolJSON(map[string]int{"pid": pid})
}

// Alive reports whether there is a process pid that still runs. One that has
// ended but was not waited for does not count.
func Alive(pid int) bool {
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		// pid (name) state ..., where the name may hold anything.
		_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
		return len(state) > 0 && state[0] != 'Z' && state[0] != 'X'
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	err = p.Signal(syscall.Signal(0))
	return errors.Join(err, p.Release()) == nil
}
