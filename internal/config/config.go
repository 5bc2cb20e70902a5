// Package config reads a configuration file into a plain, checked struct.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// MaxSize is how many bytes a configuration file may have.
const MaxSize = 1 << 20

// None is the value of what may be 0, such as Drain, Warm and RequestMax, where
// the file says 0. The zero value means that the file says nothing.
const None = -1

// ErrInvalid is what every error about the content of a file wraps.
var ErrInvalid = errors.New("invalid configuration")

// File is what one configuration file says. A zero field was not set, and the
// default named beside it holds.
type File struct {
	// Source is the name of the file, as given to Load or Parse.
	Source string
	// Listen is the address to listen on as "host:port"; default 127.0.0.1:8080.
	// Port 0 takes any free port.
	Listen string
	// Path is the path of Streamable HTTP; default /mcp.
	Path string
	// SSEPath is the path of HTTP+SSE; default /sse.
	SSEPath string
	// PublicURL is the absolute URL under which a proxy offers the gateway, its
	// path prefix included; default: what the request says.
	PublicURL string
	// AllowHost lists the Host names that are served besides the loopback ones.
	AllowHost []string
	// AllowOrigin lists the origins of web pages that are served besides the
	// loopback ones, as "scheme://host[:port]", or "*".
	AllowOrigin []string
	// MaxBody is the largest message in bytes; default 16 MiB.
	MaxBody int64
	// MaxSessions is how many sessions may be open at once; the default is the
	// gateway's.
	MaxSessions int
	// Drain is how long calls in flight may go on at shutdown; default 10s.
	Drain time.Duration
	// LogFormat is "text" or "json"; default text.
	LogFormat string
	// LogLevel is "debug", "info", "warn" or "error"; default info.
	LogLevel string
	// Heartbeat is the longest silence on an open stream; default 15s.
	Heartbeat time.Duration
	// AnswerGrace is how long an answer may take and still be one JSON body;
	// default 100ms.
	AnswerGrace time.Duration
	// SessionTimeout ends a session without any call or stream; default 30m.
	SessionTimeout time.Duration
	// ReconnectGrace is how long a client of HTTP+SSE may be away before its
	// session ends; the default is the gateway's.
	ReconnectGrace time.Duration
	// QuestionTimeout is how long a server's question waits for a stateless
	// client's answer; default 10m.
	QuestionTimeout time.Duration
	// ProbeTimeout is how long a server may be silent to server/discover before
	// it is sent initialize, too; default 2s.
	ProbeTimeout time.Duration
	// ReconnectWait is how long a request waits for a remote server that cannot be
	// reached; default 30s.
	ReconnectWait time.Duration
	// StateKey protects requestState; default: a random key for each process.
	StateKey string
	// WriteTimeout is how long one single write may take; the default is the
	// gateway's.
	WriteTimeout time.Duration
	// ResultTTL is how long an answer that was not delivered is kept; default
	// 10m.
	ResultTTL time.Duration
	// AdoptWindow is how long after the loss of its reader an ended call is
	// handed to an equal one, None for not at all; default 2m.
	AdoptWindow time.Duration
	// Children holds the defaults of every server.
	Children
	// Clocks holds the defaults of every server.
	Clocks
	// Servers are the servers in the order of the file, at least one.
	Servers []Server
}

// Children says how the child processes of a server are run.
type Children struct {
	// Isolation is "session" (a child for each session) or "shared" (one for
	// all); default session.
	Isolation string
	// MaxChildren is how many children may run at once; default 64.
	MaxChildren int
	// Warm is how many spare children are kept started, None for 0; default 1.
	Warm int
	// StartTimeout is how long a child may take until its handshake is done;
	// default 60s.
	StartTimeout time.Duration
	// StopTimeout is how long stopping a child may take, all steps together; default
	// 5s.
	StopTimeout time.Duration
}

// Or returns c with its unset fields taken from defaults.
func (c Children) Or(defaults Children) Children {
	return Children{
		Isolation:    cmp.Or(c.Isolation, defaults.Isolation),
		MaxChildren:  cmp.Or(c.MaxChildren, defaults.MaxChildren),
		Warm:         cmp.Or(c.Warm, defaults.Warm),
		StartTimeout: cmp.Or(c.StartTimeout, defaults.StartTimeout),
		StopTimeout:  cmp.Or(c.StopTimeout, defaults.StopTimeout),
	}
}

// Clocks say how long a server and its calls may be silent.
type Clocks struct {
	// PingInterval is the silence after which a peer is sent a ping, None for no
	// pings; default 30s.
	PingInterval time.Duration
	// PingTimeout is when a ping counts as missed; default 20s.
	PingTimeout time.Duration
	// PingMisses is how many in a row count as silence; default 2.
	PingMisses int
	// RequestTimeout ends a call without progress, None for never; default 15m.
	RequestTimeout time.Duration
	// RequestMax ends a call whatever it reports, None for never; default 1h.
	RequestMax time.Duration
	// OrphanGrace is how long a call goes on that nobody reads, None for not at
	// all; default 2m.
	OrphanGrace time.Duration
	// TaskAfter is when a call becomes a task, None for never; default 10s.
	TaskAfter time.Duration
}

// Tool is what holds for the calls of one tool, or of those that a pattern
// names. Unset fields are the server's.
type Tool struct {
	// Name is a tool's name, or a pattern in which * stands for any text.
	Name string
	// Pos is where the file names it.
	Pos Pos
	// Adopt is "auto", "key" or "never"; default auto.
	Adopt string
	// OnDisconnect is "cancel", "keep" or "linger"; default: the era's rule.
	OnDisconnect string
	// RequestTimeout, RequestMax and OrphanGrace are those of Clocks.
	RequestTimeout, RequestMax, OrphanGrace time.Duration
	// Task is "never", "always" or "required"; default: calls become tasks after
	// TaskAfter, which is that of Clocks.
	Task      string
	TaskAfter time.Duration
}

// Server is one MCP server that speaks stdio.
type Server struct {
	// Name is unique in the file and may stand in a URL path as it is.
	Name string
	// Pos is where the file names the server.
	Pos Pos
	// Command is the program to start, empty for a remote server.
	Command string
	// Args are its arguments.
	Args []string
	// Env are variables to add to its environment, as "KEY=value" in the order
	// of the file, each key once.
	Env []string
	// Dir is its working directory; default: the gateway's own.
	Dir string
	// URL is where a remote server is, empty for a program.
	URL string
	// Headers go with each request to it, as "Name: value" in the order of the
	// file.
	Headers []string
	// CA is a PEM file with certificates to trust besides the system's.
	CA string
	// InsecureHTTP allows plain http to another machine.
	InsecureHTTP bool
	// Children overrides the defaults of the file; use Or to merge.
	Children
	// Clocks overrides the defaults of the file.
	Clocks
	// Tools are what the file says of some tools, in its order, each name once.
	Tools []Tool
}

// Pos is a place in a file. Lines and columns count from 1; a column is a
// Unicode code point. Line 0 means that no place is known.
type Pos struct {
	File         string
	Line, Column int
}

// String returns "file:line:column".
func (p Pos) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Warning says that something in the file has no effect, or not the one that
// its author may expect.
type Warning struct {
	Pos  Pos
	Text string
}

// String returns "file:line:column: text".
func (w Warning) String() string { return w.Pos.String() + ": " + w.Text }

// Error is one thing that is wrong with a file. It wraps ErrInvalid.
type Error struct {
	Pos  Pos
	Text string
}

// Error returns "file:line:column: text".
func (e *Error) Error() string {
	if e.Pos == (Pos{}) {
		return e.Text
	}
	return e.Pos.String() + ": " + e.Text
}

// Unwrap returns ErrInvalid.
func (e *Error) Unwrap() error { return ErrInvalid }

// Load reads the file at path and parses it. See Parse.
func Load(path string) (*File, []Warning, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, nil, fmt.Errorf("read configuration: %w", err)
	}
	return Parse(path, data)
}

// Parse reads the content of a configuration file; name stands for the file in
// messages. By its content it is either in the gateway's own format (YAML or
// JSON) or a file of a desktop client with its servers under "mcpServers", or,
// as VS Code has it, under "servers" with a "type" in every entry.
//
// Text of the own format may refer to environment variables of this process.
// The error holds one line for each thing that is wrong, each an *Error, in
// the order of the file. Warnings are returned beside an error too.
func Parse(name string, data []byte) (*File, []Warning, error) {
	r := &reader{file: name, lookup: os.LookupEnv}
	f := r.parse(data)
	if err := r.err(); err != nil {
		return nil, r.warnings, err
	}
	return f, r.warnings, nil
}

// parse returns a file that means something only if r has no errors.
func (r *reader) parse(data []byte) *File {
	root := r.tree(data)
	if root == nil {
		return nil
	}
	f := &File{Source: r.file}
	if key := clientServers(root); key != "" {
		r.clientFile(f, root, key)
	} else {
		r.ownFile(f, root)
	}
	if len(r.errs) == 0 {
		r.add(f.Check())
	}
	slices.SortStableFunc(r.warnings, func(a, b Warning) int { return comparePos(a.Pos, b.Pos) })
	return f
}

func comparePos(a, b Pos) int {
	return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
}
