// Package stdio runs one MCP server as a child process and carries messages over its standard streams.
package stdio

import (
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"time"
)

const (
	defaultStopTimeout = 5 * time.Second
	defaultStderrTail  = 8 << 10

	// stderrWait bounds how long the exit of the leader waits for the end of
	// its stderr, which a grandchild may hold open for ever.
	stderrWait = 500 * time.Millisecond
	// killWait bounds how long a process may take to vanish after SIGKILL; one
	// in an uninterruptible system call takes as long as it likes.
	killWait = time.Second
	// pollMin and pollMax space the looks at whether a process group is gone,
	// of which no system tells by itself.
	pollMin = 2 * time.Millisecond
	pollMax = 50 * time.Millisecond
)

// Command says which MCP server to run.
type Command struct {
	// Path is the program: a path, or a bare name to look up in PATH (the one
	// in Env if Env sets it). A relative path is relative to Dir.
	Path string
	// Args are the arguments after the program's name.
	Args []string
	// Env holds KEY=VALUE entries that are added to the inherited environment
	// or replace what is there.
	Env []string
	// Dir is the working directory; empty means that of this process.
	Dir string
	// Name names the server in logs; empty means the base name of Path.
	Name string
}

// ProcessOptions is the configuration of one Process. The zero value is usable.
type ProcessOptions struct {
	// StopTimeout is the length of the whole stop ladder: stdin is closed at
	// its start, SIGTERM sent after 2/5 of it, SIGKILL at its end.
	// Default 5 s.
	StopTimeout time.Duration
	// Logger takes the lines that the child writes to stderr, at level info,
	// and what goes wrong with the process. Nil discards.
	Logger *slog.Logger
	// Companion is told of the child's process group for as long as that
	// exists. Nil means none.
	Companion *Companion
	// StderrTail is how many of the last bytes of stderr are kept for errors.
	// Default 8 KiB.
	StderrTail int
}

func (o ProcessOptions) withDefaults() ProcessOptions {
	if o.StopTimeout <= 0 {
		o.StopTimeout = defaultStopTimeout
	}
	if o.StderrTail <= 0 {
		o.StderrTail = defaultStderrTail
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Process is a running child, the leader, with all that it started: its
// process group on Unix, its job object on Windows. Whoever starts one calls
// Stop in the end, also after the leader has ended by itself. All methods are
// safe for concurrent use.
type Process struct {
	name string
	opts ProcessOptions
	cmd  *exec.Cmd
	tree *tree

	stdin  *os.File
	stdout *os.File
	stderr *stderrDrain
	log    *logSink

	stopOnce sync.Once
	killOnce sync.Once
	stopping chan struct{} // closed by the first Stop
	killing  chan struct{} // closed by the first KillGroup
	reaped   chan struct{} // closed by reap; cmd.ProcessState is set
	exited   chan struct{} // closed by supervise; exitErr is set
	done     chan struct{} // closed when supervise returns
	exitErr  *ExitError
}

// StartProcess starts the command as the leader of its own process group, so
// that a Ctrl-C in the terminal does not reach it. Every error wraps ErrStart
// and says what to check.
func StartProcess(c Command, opts ProcessOptions) (*Process, error) {
	opts = opts.withDefaults()
	cmd, err := c.build()
	if err != nil {
		return nil, err
	}
	ps, err := openPipes()
	if err != nil {
		return nil, c.startError(cmd, err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = ps.childIn, ps.childOut, ps.childErr
	tree, err := startTree(cmd)
	ps.closeChildEnds()
	if err != nil {
		ps.closeOurEnds()
		return nil, c.startError(cmd, err)
	}
	opts.Companion.Watch(tree.id())

	sink := newLogSink(opts.Logger.With("server", c.name(), "pid", cmd.Process.Pid))
	p := &Process{
		name: c.name(), opts: opts, cmd: cmd, tree: tree,
		stdin: ps.ourIn, stdout: ps.ourOut, log: sink,
		stderr:   startStderrDrain(ps.ourErr, opts.StderrTail, sink),
		stopping: make(chan struct{}), killing: make(chan struct{}),
		reaped: make(chan struct{}), exited: make(chan struct{}), done: make(chan struct{}),
	}
	go p.reap()      // ends with the leader
	go p.supervise() // ends with the group, bounded once the leader has ended or Stop was called
	return p, nil
}

// Stdin is the write end of the child's stdin. Deadlines work on it. Stop
// closes it; so may its user.
func (p *Process) Stdin() *os.File { return p.stdin }

// Stdout is the read end of the child's stdout. Deadlines work on it. It stays
// open after the leader has ended, for what it wrote last, until Stop closes
// it. A grandchild may hold the other end open, so the end of the stream may
// come much later than the end of the leader: bound the wait for it.
func (p *Process) Stdout() *os.File { return p.stdout }

// PID is the process id of the leader, on Unix that of its group too.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed once the leader has been reaped and what it wrote to stderr
// has been collected, for which it waits at most half a second. The rest of
// the group is being ended by then.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// ExitError says how the leader ended: an *ExitError, also for code 0. Nil
// before Exited is closed.
func (p *Process) ExitError() error {
	select {
	case <-p.exited:
		return p.exitErr
	default:
		return nil
	}
}

// StderrTail is the end of what the child has written to stderr so far.
func (p *Process) StderrTail() string { return p.stderr.tail() }

// Stop takes the child down the ladder and returns when it is over: stdin is
// closed, the group gets SIGTERM after 2/5 of StopTimeout and SIGKILL at its
// end; what is left of the group when the leader has ended gets SIGTERM at once
// and SIGKILL 3/5 of StopTimeout later. Afterwards there is no process of the
// group and no descriptor or goroutine of ours, and Exited is closed. Repeated
// and concurrent calls wait for the same end.
//
// Two things are given up on, with a warning in the log, rather than waited for
// without bound: a process that the system does not end within a second of
// SIGKILL, and a Logger that does not return.
func (p *Process) Stop() {
	p.stopOnce.Do(func() { close(p.stopping) })
	<-p.done
	// A second Close only returns an error that says so.
	p.stdin.Close()
	p.stdout.Close()
}

// KillGroup sends SIGKILL to the whole group before it returns and does not
// wait for the end. Stop must still be called.
func (p *Process) KillGroup() {
	p.tree.kill()
	p.killOnce.Do(func() { close(p.killing) })
}

// pipes are the standard streams of a child, both ends of each.
type pipes struct {
	childIn, childOut, childErr *os.File
	ourIn, ourOut, ourErr       *os.File
}

// openPipes opens them close-on-exec, as os.Pipe does: another child that held
// a copy would keep this one from seeing the end of its input.
func openPipes() (ps pipes, err error) {
	defer func() {
		if err != nil {
			ps.closeChildEnds()
			ps.closeOurEnds()
		}
	}()
	if ps.childIn, ps.ourIn, err = os.Pipe(); err != nil {
		return ps, err
	}
	if ps.ourOut, ps.childOut, err = os.Pipe(); err != nil {
		return ps, err
	}
	ps.ourErr, ps.childErr, err = os.Pipe()
	return ps, err
}

// Close on a nil *os.File only returns an error.
func (ps pipes) closeChildEnds() { ps.childIn.Close(); ps.childOut.Close(); ps.childErr.Close() }
func (ps pipes) closeOurEnds()   { ps.ourIn.Close(); ps.ourOut.Close(); ps.ourErr.Close() }
