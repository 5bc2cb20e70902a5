// Package testkit is what the tests of this project stand on: a scripted MCP
// server, raw clients, networks that fail on command.
//
// Only tests may import it.
package testkit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/lineserver"
)

// Versions are the revisions with a handshake, oldest first.
var Versions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}

// DefaultCapabilities is what the server declares unless told otherwise.
const DefaultCapabilities = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},` +
	`"resources":{"subscribe":true,"listChanged":true},"logging":{},"completions":{}}`

// Error is a JSON-RPC error, sent or received.
type Error = lineserver.Error

// Options is how the scripted server behaves. The zero value is a quick server
// of all versions that exits by ending its Serve.
type Options struct {
	Name         string         // default "testkit"
	Versions     []string       // what it negotiates, oldest first; default Versions
	Capabilities string         // JSON object; default DefaultCapabilities
	StartDelay   time.Duration  // before it reads anything
	InitDelay    time.Duration  // before it answers initialize; it reads on meanwhile
	StderrBytes  int            // written to Stderr without a line end before initialize is answered
	Junk         bool           // lines that are no messages, before initialize is answered
	CountFile    string         // where counted tools leave their traces, across processes
	Stderr       io.Writer      // default io.Discard
	Exit         func(code int) // how crash and exit-after-reply end it; default: Serve returns an ExitError
}

// ExitError is what Serve returns when a tool ends a server without Options.Exit.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("testkit: server exits with code %d", e.Code) }

// server is one connection and all that a child process would know.
type server struct {
	opts   Options
	counts *counts
	input  io.Reader

	mu          sync.Mutex // guards the fields below
	initParams  json.RawMessage
	version     string
	logLevel    string
	subscribed  map[string]bool
	invalid     []string
	initialized bool
}

// Serve is a legacy MCP server on one connection, one JSON message a line. It
// answers requests concurrently and their ids byte for byte. It returns nil at
// the end of r, and an error when ctx ends or a tool ends it.
//
// Beyond what MCP lists, it echoes the params of every method that starts
// with x/, and counts each request and notification: see the tool count.
func Serve(ctx context.Context, r io.Reader, w io.Writer, o Options) error {
	o.Name = cmp.Or(o.Name, "testkit")
	o.Capabilities = cmp.Or(o.Capabilities, DefaultCapabilities)
	if len(o.Versions) == 0 {
		o.Versions = Versions
	}
	if o.Stderr == nil {
		o.Stderr = io.Discard
	}
	if err := pause(ctx, o.StartDelay); err != nil {
		return err
	}
	s := &server{opts: o, input: r, counts: newCounts(o.CountFile), subscribed: map[string]bool{}}
	return lineserver.Serve(ctx, r, w, lineserver.Options{Receive: s.receive, Invalid: s.noteInvalid})
}

// Pipe runs Serve in the background. Closing in ends it, wait returns what it
// returned. Both pipes have no buffer.
func Pipe(ctx context.Context, o Options) (in io.WriteCloser, out io.ReadCloser, wait func() error) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan error, 1)
	go func() { // ends with ctx or in
		err := Serve(ctx, inR, outW, o)
		_ = inR.Close() // as of a process that is no more
		_ = outW.Close()
		ended <- err
	}()
	return inW, outR, sync.OnceValue(func() error { return <-ended })
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *server) noteInvalid(line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.invalid = append(s.invalid, string(line[:min(len(line), 200)]))
}

func (s *server) receive(c *lineserver.Conn, m lineserver.Message) {
	if m.ID == nil {
		s.counts.add("notification:"+m.Method, countStart)
		if m.Method == "notifications/initialized" {
			s.mu.Lock()
			s.initialized = true
			s.mu.Unlock()
		}
		return
	}
	s.counts.add("request:"+m.Method, countStart)
	switch m.Method {
	case "initialize":
		c.Go(m, func(ctx context.Context) (any, error) { return s.initialize(ctx, c, m.Params) })
	case "tools/call":
		s.callTool(c, m)
	default:
		result, err := s.answer(m)
		_ = c.Reply(m, result, err) // fails only with the connection
	}
}

func (s *server) initialize(ctx context.Context, c *lineserver.Conn, raw json.RawMessage) (any, error) {
	var params struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	if err := decode(raw, &params); err != nil {
		return nil, err
	}
	version := s.opts.Versions[len(s.opts.Versions)-1]
	if slices.Contains(s.opts.Versions, params.ProtocolVersion) {
		version = params.ProtocolVersion
	}
	s.mu.Lock()
	s.initParams, s.version = raw, version
	s.mu.Unlock()
	if err := s.spam(s.opts.StderrBytes, false); err != nil {
		return nil, err
	}
	if s.opts.Junk {
		if err := junk(c); err != nil {
			return nil, err
		}
	}
	if err := pause(ctx, s.opts.InitDelay); err != nil {
		return nil, err
	}
	return map[string]any{
		"protocolVersion": version,
		"capabilities":    json.RawMessage(s.opts.Capabilities),
		"serverInfo":      map[string]string{"name": s.opts.Name, "version": "1.0.0"},
		"instructions":    "Scripted: every tool does what its name says.",
	}, nil
}

// spam writes n bytes to stderr, in lines of 80 or as one.
func (s *server) spam(n int, lines bool) error {
	block := []byte(strings.Repeat("e", 4096))
	if lines {
		for i := 79; i < len(block); i += 80 {
			block[i] = '\n'
		}
	}
	for n > 0 {
		wrote, err := s.opts.Stderr.Write(block[:min(n, len(block))])
		if err != nil {
			return fmt.Errorf("testkit: stderr: %w", err)
		}
		n -= wrote
	}
	return nil
}

// junk writes what real servers are known to write where only messages belong.
func junk(c *lineserver.Conn) error {
	for _, line := range []string{"◇ injected env (0)", "Server v1 running", "", `{"level":"info"}`, `ready {"a":1}`} {
		if err := c.WriteLine([]byte(line)); err != nil {
			return err
		}
	}
	return nil
}

// exit ends the server as a process would end.
func (s *server) exit(c *lineserver.Conn, code int) {
	if s.opts.Exit != nil {
		s.opts.Exit(code)
	}
	c.Close(&ExitError{code})
}

func invalidParams(format string, args ...any) error {
	return &Error{Code: lineserver.InvalidParams, Message: fmt.Sprintf(format, args...)}
}

// decode reads params that are not there as an empty object.
func decode(raw json.RawMessage, into any) error {
	if raw == nil {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return invalidParams("params: %v", err)
	}
	return nil
}
