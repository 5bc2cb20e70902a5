package soak

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/testkit"
)

// process is one program that was started.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	pipe  *os.File // of out; to be closed by who reads it
	ended chan struct{}
	err   error // once ended is closed
}

// launch starts a program whose stderr is added to a file.
func launch(command []string, log string) (*process, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("soak: %w", err)
	}
	p := &process{cmd: exec.Command(command[0], command[1:]...), ended: make(chan struct{})}
	p.cmd.Stderr = f
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("soak: %w", err)
	}
	r, w, err := os.Pipe() // not StdoutPipe: it is closed when the process ends, read or not
	if err != nil {
		return nil, fmt.Errorf("soak: %w", err)
	}
	p.in, p.out, p.pipe, p.cmd.Stdout = in, bufio.NewReader(r), r, w
	err = p.cmd.Start()
	_ = w.Close()
	if err != nil {
		_ = r.Close()
		_ = f.Close()
		return nil, fmt.Errorf("soak: %w", err)
	}
	go func() { // ends with the process
		p.err = p.cmd.Wait()
		_ = f.Close()
		close(p.ended)
	}()
	return p, nil
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// holding is what a process holds at a moment of the run.
type holding struct {
	rss   int // bytes
	files int
}

// holds asks Linux what the process holds.
func (p *process) holds() (holding, error) {
	dir := filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid))
	files, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return holding{}, fmt.Errorf("soak: %w", err)
	}
	statm, err := os.ReadFile(filepath.Join(dir, "statm"))
	if err != nil {
		return holding{}, fmt.Errorf("soak: %w", err)
	}
	fields := bytes.Fields(statm)
	if len(fields) < 2 {
		return holding{}, fmt.Errorf("soak: statm: %q", statm)
	}
	pages, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return holding{}, fmt.Errorf("soak: statm: %w", err)
	}
	return holding{rss: pages * os.Getpagesize(), files: len(files)}, nil
}

// site is where one server process follows another. Clients come through
// proxies, which are told of each.
type site struct {
	command      []string
	journal, log string
	proc         *process
	base         string
	proxies      []*testkit.CutProxy
}

// deploy starts the first server.
func deploy(ctx context.Context, command []string, journal, log string) (*site, error) {
	s := &site{command: command, journal: journal, log: log}
	return s, s.start(ctx)
}

// startLimit is how long a server may take to listen.
const startLimit = 20 * time.Second

// start starts a server that knows nothing of those before it.
func (s *site) start(ctx context.Context) error {
	command := append(s.command[:len(s.command):len(s.command)], "127.0.0.1:0", s.journal)
	p, err := launch(command, s.log)
	if err != nil {
		return err
	}
	late := time.AfterFunc(startLimit, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	stop := context.AfterFunc(ctx, func() { _ = p.cmd.Process.Kill() })
	defer stop()
	said, err := p.out.ReadString('\n')
	base, ok := strings.CutPrefix(strings.TrimSpace(said), "listening on http://")
	if err != nil || !ok {
		p.kill()
		_ = p.pipe.Close()
		return fmt.Errorf("soak: the server said %q: %w", said, err)
	}
	s.proc, s.base = p, base
	for _, proxy := range s.proxies {
		proxy.Retarget(s.address())
	}
	return nil
}

func (s *site) address() string { return s.base }

// stop ends the server: by SIGKILL, or by SIGTERM and then what it takes.
func (s *site) stop(kill bool, limit time.Duration) {
	defer s.proc.pipe.Close()
	if kill {
		s.proc.kill()
		return
	}
	_ = s.proc.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(limit, func() { _ = s.proc.cmd.Process.Kill() })
	<-s.proc.ended
	late.Stop()
}

func (s *site) close() {
	if s.proc != nil {
		s.stop(false, 10*time.Second)
	}
}
