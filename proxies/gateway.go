package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// entry is one line of the gateway's log.
type entry map[string]any

func (e entry) text(key string) string {
	s, _ := e[key].(string)
	return s
}

// duration reads an attribute that is nanoseconds or a text.
func (e entry) duration(key string) time.Duration {
	switch v := e[key].(type) {
	case float64:
		return time.Duration(v)
	case string:
		d, _ := time.ParseDuration(v)
		return d
	}
	return 0
}

// gateway is a holdfast process, and what it has logged.
type gateway struct {
	addr    string
	process *exec.Cmd
	reading sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	lines []entry
	more  chan struct{} // closed with the next line
}

// startGateway starts holdfast before the slow server.
func startGateway(holdfast, dir, name, countFile string, flags ...string) (*gateway, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := append([]string{"serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--log-level", "debug", "--max-children", "200", "--warm", "2"}, flags...)
	g := &gateway{process: exec.Command(holdfast, append(args, "--", self, "-server", countFile)...), more: make(chan struct{})}
	out, err := g.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	log, err := g.process.StderrPipe()
	if err != nil {
		return nil, err
	}
	keep, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	if err := g.process.Start(); err != nil {
		return nil, err
	}
	g.reading.Go(func() { defer keep.Close(); g.read(io.TeeReader(log, keep)) }) // ends with the process
	ready := make(chan string, 1)
	g.reading.Go(func() { // the same
		line, _ := bufio.NewReader(out).ReadString('\n')
		ready <- strings.TrimSpace(line)
	})
	select {
	case line := <-ready:
		addr, ok := strings.CutPrefix(line, "listening on http://")
		if !ok {
			g.stop()
			return nil, fmt.Errorf("the gateway said %q; see %s", line, keep.Name())
		}
		g.addr = addr
	case <-time.After(30 * time.Second):
		g.stop()
		return nil, errors.New("the gateway does not get ready")
	}
	return g, nil
}

func (g *gateway) read(r io.Reader) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		e := entry{}
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		g.mu.Lock()
		g.lines = append(g.lines, e)
		close(g.more)
		g.more = make(chan struct{})
		g.mu.Unlock()
	}
}

func (g *gateway) look(want func(entry) bool) (found []entry, more <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.lines {
		if want(e) {
			found = append(found, e)
		}
	}
	return found, g.more
}

// logged returns the lines that are wanted.
func (g *gateway) logged(want func(entry) bool) []entry {
	found, _ := g.look(want)
	return found
}

// await waits for a line that is wanted, after skipping some; nil if none comes in time.
func (g *gateway) await(timeout time.Duration, skip int, want func(entry) bool) entry {
	late := time.After(timeout)
	for {
		found, more := g.look(want)
		if len(found) > skip {
			return found[skip]
		}
		select {
		case <-more:
		case <-late:
			return nil
		}
	}
}

// says selects lines with this message, of this session if one is given.
func says(msg, session string) func(entry) bool {
	return func(e entry) bool {
		short := e.text("session")
		return e.text("msg") == msg && (session == "" || short != "" && strings.HasPrefix(session, short))
	}
}

func (g *gateway) stop() {
	_ = g.process.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(20*time.Second, func() { _ = g.process.Process.Kill() })
	defer kill.Stop()
	g.reading.Wait()
	_ = g.process.Wait()
}
