//go:build unix

package stdio

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// companionGrace is how long a group has between SIGTERM and SIGKILL when
	// we are gone.
	companionGrace = 2 * time.Second
	// watchWait bounds how long Watch waits for its line to be written.
	watchWait = 250 * time.Millisecond
	// companionWrite bounds the writing of lines to a companion that does not
	// read: the pipe takes thousands before.
	companionWrite = time.Second
	// companionEnd bounds the wait for the companion's end in Close: its grace,
	// its wait after SIGKILL, and time to spare.
	companionEnd = companionGrace + killWait + time.Second
)

// Companion is one more process of the same binary that ends the process
// groups of all children when this process ends without doing so, killed with
// SIGKILL for example. All methods are safe for concurrent use and do nothing
// on a nil *Companion.
type Companion struct {
	argv []string
	log  *logSink

	wake      chan struct{} // holds one token if there is news for run
	closing   chan struct{} // closed by Close
	closeOnce sync.Once
	done      chan struct{} // closed when run returns

	mu      sync.Mutex       // guards the fields below
	groups  map[int]struct{} // to be ended with us
	waiters []chan struct{}  // to be closed when the companion knows all groups, or there is none
	down    bool             // there is no companion now
}

// StartCompanion starts argv, whose main part is to be RunCompanion with its
// stdin, in a session of its own. If it ends too early it is started again and
// told everything again. A nil logger discards.
func StartCompanion(argv []string, logger *slog.Logger) (*Companion, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	h, err := startHelper(argv)
	if err != nil {
		return nil, fmt.Errorf("%w: companion process: %w", ErrStart, err)
	}
	c := &Companion{
		argv: argv, log: newLogSink(logger),
		wake: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{}),
		groups: map[int]struct{}{},
	}
	go c.run(h) // ends with Close
	return c, nil
}

// Watch adds a process group to those that end with this process. It returns
// when the companion has been told, or after a quarter of a second without
// that; it is told as soon as it can be.
func (c *Companion) Watch(pgid int) {
	if c == nil || pgid < 2 {
		return
	}
	told := make(chan struct{})
	c.mu.Lock()
	c.groups[pgid] = struct{}{}
	if c.down {
		close(told)
	} else {
		c.waiters = append(c.waiters, told)
	}
	c.mu.Unlock()
	c.poke()
	select {
	case <-told:
	case <-c.done:
	case <-time.After(watchWait):
	}
}

// Forget takes a process group away again. To be called once the group is known
// to be gone: its id may soon be somebody else's. It does not wait.
func (c *Companion) Forget(pgid int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	delete(c.groups, pgid)
	c.mu.Unlock()
	c.poke()
}

// Close ends the companion, and with it the groups that are still watched. It
// waits for that, at most a few seconds. Repeated calls wait for the same end.
func (c *Companion) Close() {
	if c == nil {
		return
	}
	c.closeOnce.Do(func() { close(c.closing) })
	<-c.done
}

func (c *Companion) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run owns the companion process.
func (c *Companion) run(h *helper) {
	defer close(c.done)
	defer c.log.close()
	var backoff Backoff
	for {
		err := c.serve(h)
		if err == nil {
			return
		}
		for h = nil; h == nil; {
			delay := backoff.Next(time.Now())
			c.log.add(slog.LevelWarn, "companion process lost: children would outlive a kill of this process until it is back",
				slog.Any("error", err), slog.Duration("restart_in", delay))
			select {
			case <-c.closing:
				return
			case <-time.After(delay):
			}
			h, err = startHelper(c.argv)
		}
	}
}

// serve keeps one companion process told until Close, then returns nil, or an
// error that says why the process is of no use any more.
func (c *Companion) serve(h *helper) error {
	told := map[int]struct{}{}
	for {
		if err := c.tell(h, told); err != nil {
			h.discard()
			return err
		}
		select {
		case <-c.wake:
		case <-h.exited:
			c.setDown()
			h.discard()
			return errors.New(h.cmd.ProcessState.String())
		case <-c.closing:
			err := c.tell(h, told)
			if !h.finish(companionEnd) {
				err = errors.New("it did not end in time")
			}
			if err != nil {
				c.log.add(slog.LevelWarn, "companion process", slog.Any("error", err))
			}
			return nil
		}
	}
}

// tell writes the difference between the groups and what the companion was
// told of them, and lets go who waits for that.
func (c *Companion) tell(h *helper, told map[int]struct{}) error {
	c.mu.Lock()
	groups, waiters := maps.Clone(c.groups), c.waiters
	c.waiters, c.down = nil, false
	c.mu.Unlock()
	defer func() {
		for _, w := range waiters {
			close(w)
		}
	}()

	var lines strings.Builder
	for pgid := range told {
		if _, ok := groups[pgid]; !ok {
			lines.WriteString(formatCompanionLine(false, pgid))
		}
	}
	for pgid := range groups {
		if _, ok := told[pgid]; !ok {
			lines.WriteString(formatCompanionLine(true, pgid))
		}
	}
	if lines.Len() == 0 {
		return nil
	}
	if err := h.write(lines.String()); err != nil {
		c.setDown()
		return err
	}
	clear(told)
	maps.Copy(told, groups)
	return nil
}

// setDown lets Watch go on without a companion.
func (c *Companion) setDown() {
	c.mu.Lock()
	waiters := c.waiters
	c.waiters, c.down = nil, true
	c.mu.Unlock()
	for _, w := range waiters {
		close(w)
	}
}

// helper is one run of the companion process.
type helper struct {
	cmd    *exec.Cmd
	in     *os.File
	exited chan struct{} // closed once it has been reaped
}

// startHelper keeps it out of our process group and session, for what ends
// those must not end it, and off our stderr, whose reader it would hold up
// after our end.
func startHelper(argv []string) (*helper, error) {
	if len(argv) == 0 {
		return nil, errors.New("no command is given")
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin = r
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, err
	}
	h := &helper{cmd: cmd, in: w, exited: make(chan struct{})}
	go func() { // ends with the process
		cmd.Wait()
		close(h.exited)
	}()
	return h, nil
}

func (h *helper) write(lines string) error {
	if err := h.in.SetWriteDeadline(time.Now().Add(companionWrite)); err != nil {
		return err
	}
	_, err := io.WriteString(h.in, lines)
	return err
}

// discard ends it in such a way that it does not end the groups: dead before
// it can see the end of its pipe.
func (h *helper) discard() {
	h.cmd.Process.Kill()
	<-h.exited
	h.in.Close()
}

// finish ends it by the end of its pipe and reports whether that was enough.
func (h *helper) finish(wait time.Duration) bool {
	h.in.Close()
	select {
	case <-h.exited:
		return true
	case <-time.After(wait):
		h.cmd.Process.Kill()
		<-h.exited
		return false
	}
}

// RunCompanion is the companion's side: it reads which process groups to watch
// from r, and when r ends, which happens when the process that started it is
// gone, it ends those that are still watched: SIGTERM, SIGKILL two seconds
// later. It returns the exit status for the process: 1 if a group is still
// there. The caller ignores SIGINT, SIGTERM and SIGHUP before, since what ends
// the other process may reach this one too.
func RunCompanion(r io.Reader) int {
	var watches []*groupWatch
	for pgid := range readGroups(r) {
		terminateGroup(pgid)
		watches = append(watches, &groupWatch{pgid: pgid})
	}
	if watches = awaitGroups(watches, companionGrace); len(watches) == 0 {
		return 0
	}
	for _, w := range watches {
		killGroup(w.pgid)
	}
	if watches = awaitGroups(watches, killWait); len(watches) == 0 {
		return 0
	}
	return 1
}

// readGroups reads lines to the end of r and returns the groups that were added
// and not removed. What is no such line is left out, however long it is; so is
// a last line without its end, which may name another group than was meant.
func readGroups(r io.Reader) map[int]struct{} {
	groups := map[int]struct{}{}
	own := syscall.Getpgrp()
	br := bufio.NewReaderSize(r, 64)
	for {
		line, err := br.ReadSlice('\n')
		whole := !errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = br.ReadSlice('\n')
		}
		if err != nil {
			return groups
		}
		if !whole {
			continue
		}
		switch add, pgid, ok := parseCompanionLine(string(line[:len(line)-1])); {
		case !ok || pgid == own:
		case add:
			groups[pgid] = struct{}{}
		default:
			delete(groups, pgid)
		}
	}
}

// awaitGroups waits until all are gone and returns those that are not in time.
func awaitGroups(watches []*groupWatch, wait time.Duration) []*groupWatch {
	deadline := time.Now().Add(wait)
	for poll := pollMin; ; poll = min(2*poll, pollMax) {
		watches = slices.DeleteFunc(watches, (*groupWatch).gone)
		if len(watches) == 0 || time.Now().After(deadline) {
			return watches
		}
		time.Sleep(poll)
	}
}
