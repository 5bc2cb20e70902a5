package main

import (
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/liveness"
	"github.com/holdfast-mcp/holdfast/internal/stdio"
)

// The times of the run: ping interval and time-out are a fifteenth of the defaults.
const (
	interval    = 2 * time.Second
	timeout     = 1300 * time.Millisecond
	requestIdle = 10 * time.Second
	// A server whose state holds the idle clock works for longer than that, one
	// whose state does not for less.
	held    = 14 * time.Second
	notHeld = 8 * time.Second
)

// end is what became of the call.
type end string

const (
	answered end = "answered, once"
	idle     end = "ended by the idle clock"
	lost     end = "ended at once"
)

// surroundings are what scenarios run in.
type surroundings struct {
	node, python string
	children     string // folder
	url          string // of the slow web server
}

// scenario is one row: a server, what is asked of it, and what is to be found.
type scenario struct {
	server string // the name in the table, and of its command
	tool   string
	lasts  time.Duration
	what   string // the tool does, or is done to it
	dead   bool   // nothing will ever come of it
	stop   bool   // SIGSTOP to what answers after a second, SIGCONT after eight
	want   liveness.Verdict
	also   liveness.Verdict // true too now and then, if it is not zero
	end    end
}

var scenarios = []scenario{
	{server: "node", tool: "cpu", lasts: held, what: "CPU loop that blocks the event loop", want: liveness.Blocked, end: answered},
	{server: "asyncio", tool: "cpu", lasts: held, what: "CPU loop that blocks the event loop", want: liveness.Blocked, end: answered},
	{server: "thread", tool: "cpu", lasts: held, what: "the same, while a thread reads its input", want: liveness.Blocked, end: answered},
	{server: "ignores", tool: "cpu", lasts: held, what: "works, never answered a ping", want: liveness.Blocked, end: answered},
	{server: "refuses", tool: "cpu", lasts: held, what: "works, refuses pings", want: liveness.Blocked, end: answered},
	{server: "node", tool: "cpu_with_progress", lasts: held, what: "100 % CPU with progress", want: liveness.Working, end: answered},
	{server: "asyncio", tool: "cpu_with_progress", lasts: held, what: "100 % CPU with progress", want: liveness.Working, end: answered},
	{server: "node", tool: "cpu_in_worker", lasts: notHeld, what: "100 % CPU in a worker, pings answered", want: liveness.Busy, end: answered},
	{server: "node, gc", tool: "collect_garbage", lasts: notHeld, what: "pauses for garbage, one after the other", want: liveness.Busy, also: liveness.Blocked, end: answered},
	{server: "asyncio", tool: "collect_garbage", lasts: notHeld, what: "pauses for garbage, one after the other", want: liveness.Busy, also: liveness.Blocked, end: answered},

	{server: "node", tool: "sleep", lasts: notHeld, what: "long `await sleep`", want: liveness.Busy, end: answered},
	{server: "asyncio", tool: "sleep", lasts: notHeld, what: "long `await sleep`", want: liveness.Busy, end: answered},
	{server: "asyncio", tool: "sleep_blocking", lasts: held, what: "long `time.sleep`", want: liveness.Waiting, end: answered},
	{server: "ignores", tool: "sleep", lasts: held, what: "`time.sleep`, never answered a ping", want: liveness.Waiting, end: answered},
	{server: "node", tool: "process", lasts: notHeld, what: "awaits a process", want: liveness.Busy, end: answered},
	{server: "asyncio", tool: "process", lasts: notHeld, what: "awaits a process", want: liveness.Busy, end: answered},
	{server: "node", tool: "process_blocking", lasts: held, what: "`spawnSync`", want: liveness.Waiting, end: answered},
	{server: "asyncio", tool: "process_blocking", lasts: held, what: "`subprocess.run`", want: liveness.Waiting, end: answered},
	{server: "node", tool: "http", lasts: notHeld, what: "awaits a slow HTTP reply", want: liveness.Busy, end: answered},
	{server: "asyncio", tool: "http", lasts: notHeld, what: "awaits a slow HTTP reply", want: liveness.Busy, end: answered},
	{server: "asyncio", tool: "http_blocking", lasts: held, what: "slow HTTP reply, blocking", want: liveness.Waiting, end: answered},
	{server: "asyncio", tool: "http_blocking_with_timeout", lasts: held, what: "the same with a time-out of its own", want: liveness.Waiting, end: answered},
	{server: "asyncio", tool: "copy_blocking", lasts: held, what: "writes a file, blocking", want: liveness.Waiting, end: answered},

	{server: "node", tool: "sleep", lasts: time.Second, stop: true, what: "SIGSTOP, SIGCONT after 8 s", want: liveness.Stuck, end: answered},
	{server: "asyncio", tool: "sleep", lasts: time.Second, stop: true, what: "SIGSTOP, SIGCONT after 8 s", want: liveness.Stuck, end: answered},
	{server: "ignores", tool: "sleep", lasts: time.Second, stop: true, what: "SIGSTOP, never answered a ping", want: liveness.Stuck, end: answered},
	{server: "node", tool: "deadlock", dead: true, what: "deadlock: `Atomics.wait`", want: liveness.Stuck, end: idle},
	{server: "asyncio", tool: "deadlock", dead: true, what: "deadlock: a lock taken twice", want: liveness.Stuck, end: idle},
	{server: "thread", tool: "deadlock", dead: true, what: "the same, while a thread reads its input", want: liveness.Stuck, end: idle},
	{server: "script", tool: "deadlock", dead: true, what: "the same, below `sh -c`", want: liveness.Stuck, end: idle},
	{server: "asyncio", tool: "deadlock_in_thread", dead: true, what: "the same in a worker thread", want: liveness.Busy, end: idle},
	{server: "node", tool: "never", dead: true, what: "answers pings only", want: liveness.Busy, end: idle},
	{server: "asyncio", tool: "never", dead: true, what: "answers pings only", want: liveness.Busy, end: idle},
	{server: "node", tool: "exit", dead: true, what: "exits", want: liveness.Gone, end: lost},
	{server: "asyncio", tool: "exit", dead: true, what: "exits", want: liveness.Gone, end: lost},
	{server: "node", tool: "close_stdout", dead: true, lasts: notHeld, what: "closes its output, lives on", want: liveness.Gone, end: lost},
	{server: "asyncio", tool: "close_stdout", dead: true, lasts: notHeld, what: "closes its output, lives on", want: liveness.Gone, end: lost},
}

// allows reports whether a verdict is true of the scenario at some time: before
// the state is clear, while it lasts, and when it is over.
func (s scenario) allows(v liveness.Verdict) bool {
	switch v {
	case liveness.Idle, liveness.Working, s.want, s.also:
		return true
	case liveness.Busy:
		return !s.dead // the late answer to a ping may come before that of the call
	}
	return false
}

func (s scenario) command(env surroundings) stdio.Command {
	in := func(file string) string { return filepath.Join(env.children, file) }
	c := stdio.Command{Name: s.server, Path: env.python}
	switch s.server {
	case "node":
		c.Path, c.Args = env.node, []string{in("loop.mjs")}
	case "node, gc":
		c.Path, c.Args = env.node, []string{"--expose-gc", in("loop.mjs")}
	case "asyncio":
		c.Args = []string{in("loop.py")}
	case "thread":
		c.Args = []string{in("loop.py"), "thread"}
	case "script":
		c.Path, c.Args = "sh", []string{"-c", `"$0" "$1"; exit`, env.python, in("loop.py")}
	case "ignores", "refuses":
		c.Args = []string{in("plain.py"), s.server}
	}
	return c
}

func (s scenario) arguments(env surroundings) string {
	switch s.tool {
	case "http", "http_blocking", "http_blocking_with_timeout":
		return fmt.Sprintf(`{"url":%q}`, fmt.Sprintf("%s/?after=%s", env.url, s.lasts))
	}
	return fmt.Sprintf(`{"seconds":%g}`, s.lasts.Seconds())
}

// signals does to the process what is to be done by a time after the call.
func (s scenario) signals() []timed {
	if !s.stop {
		return nil
	}
	return []timed{{time.Second / 2, syscall.SIGSTOP}, {8 * time.Second, syscall.SIGCONT}}
}

type timed struct {
	at     time.Duration
	signal syscall.Signal
}
