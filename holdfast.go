// Package holdfast puts MCP servers on the network and keeps their calls alive.
//
// A Gateway takes servers that speak MCP over stdio, over HTTP, or in this
// process over a reader and a writer, and serves them as an http.Handler to
// clients of every revision, over HTTP+SSE and Streamable HTTP at once.
// Connections may break; calls go on, and what they have to say waits to be
// read.
package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Isolation says who shares a server process.
type Isolation string

// The isolations.
const (
	// PerSession starts a process for each session: nothing mixes.
	PerSession Isolation = "session"
	// Shared serves all sessions by one process. Ids and progress tokens are
	// mapped. The server hears the gateway's name instead of the clients', and
	// a question of the server is refused unless exactly one call is running.
	Shared Isolation = "shared"
)

// Server describes one MCP server. Make it with Command, InProcess or Upstream,
// then set what should differ from the defaults.
type Server struct {
	// Name is part of the paths if there are several servers, and stands in
	// logs. Default: the command's base name, or the URL's host.
	Name string
	// Command and Args are the program to run. It speaks MCP on its stdin and
	// stdout. Empty for any other server.
	Command string
	Args    []string
	// Env is added to the inherited environment, KEY=VALUE. MCP_TRANSPORT and
	// HOLDFAST_* are not inherited.
	Env []string
	// Dir is the working directory. Default: this process's.
	Dir string
	// Serve is an in-process server. It reads messages from r and writes
	// messages to w, one a line, until r ends, w fails or ctx is done. It is
	// called once for each process that a command would be started for.
	Serve func(ctx context.Context, r io.ReadCloser, w io.WriteCloser) error
	// URL is a server on the network, of any revision: its MCP endpoint, or the
	// stream of HTTP+SSE. What stands below of processes then holds for sessions
	// with it. It need not be there when the gateway starts.
	URL string
	// Header goes with every request to URL, and only there: never to another
	// origin.
	Header http.Header
	// HeaderFunc is asked before every request to URL for what to add to Header
	// and to set in place of what it has, so that credentials may change. It must
	// not block, and is called from several goroutines.
	HeaderFunc func() http.Header
	// CA is a PEM file with certificates that are trusted beside the system's.
	CA string
	// InsecureHTTP allows a plain http URL that is not of this machine.
	InsecureHTTP bool
	// Trace is given every message that goes to the server or comes from it, and
	// no header. It must not block, nor keep or change the message, and is called
	// from several goroutines.
	Trace func(toServer bool, message []byte)
	// Isolation. Default: PerSession.
	Isolation Isolation
	// MaxChildren bounds the processes at once; past it new sessions get 503.
	// Default: 64.
	MaxChildren int
	// Warm is how many spare processes are kept started. Default: 1, of a URL
	// none; negative: none.
	Warm int
	// StartTimeout is from a process's start to its answer to initialize.
	// Default: that of Timers.
	StartTimeout time.Duration
	// StopTimeout is for the whole ladder of stdin closed, SIGTERM and SIGKILL.
	// Default: that of Timers.
	StopTimeout time.Duration
	// Timers override the gateway's for this server: PingInterval, PingTimeout,
	// PingMisses, RequestTimeout, RequestMax, OrphanGrace and TaskAfter. Zero
	// fields inherit; fields other than these seven are ignored.
	Timers Timers
	// Tools say what holds for the calls of some tools; see Server.Tool. Tools
	// without an entry have what the server has.
	Tools []Tool
}

// Command describes a server that is a program. The name is looked up in PATH.
func Command(name string, args ...string) Server { return Server{Command: name, Args: args} }

// InProcess describes a server in this process; see Server.Serve.
func InProcess(serve func(ctx context.Context, r io.ReadCloser, w io.WriteCloser) error) Server {
	return Server{Serve: serve}
}

// Options of a Gateway. Zero fields mean the default.
type Options struct {
	// Server is the one server to serve, at Path and SSEPath.
	Server Server
	// Servers are several, each at /<name> + Path and /<name> + SSEPath. A
	// single one is served as Server would be.
	Servers []Server
	// Listen is the address that New binds, "127.0.0.1:8080" or with port 0.
	// Empty: none; the Gateway is only an http.Handler.
	Listen string
	// Path is the Streamable HTTP endpoint. Default: /mcp.
	Path string
	// SSEPath is the event stream of HTTP+SSE. Default: /sse. Its messages are
	// posted to /message beside it.
	SSEPath string
	// PublicURL is where clients reach the gateway behind a proxy that changes
	// the path, "https://host/prefix". HTTP+SSE tells clients where to post.
	PublicURL string
	// AllowHosts are names that requests may be addressed to beside loopback
	// ones; "*" admits all.
	AllowHosts []string
	// AllowOrigins are web origins whose pages may call; "*" admits all. They
	// are answered with CORS headers.
	AllowOrigins []string
	// MaxBody bounds a message, in bytes, in both directions. Default: 16 MiB.
	MaxBody int
	// MaxSessions bounds the sessions at once. Default: 10,000.
	MaxSessions int
	// Timers are the time-outs. Timers.Lint tells what contradicts what.
	Timers Timers
	// StateKey protects the requestState that stateless clients carry while a
	// server waits for their answer. Default: a random one, with which a restart
	// of the gateway makes what they carry worthless, as it ends the calls.
	StateKey string
	// Companion is the command line of a process that ends the servers when
	// this one is killed: one that copies its stdin to RunCompanion. Empty: none.
	Companion []string
	// Logger gets what happens. Default: nothing is logged.
	Logger *slog.Logger
	// Version is told to servers and clients as the gateway's own.
	Version string
}

func (o Options) withDefaults() Options {
	o.Path = cmp.Or(o.Path, "/mcp")
	o.SSEPath = cmp.Or(o.SSEPath, "/sse")
	o.MaxBody = cmp.Or(o.MaxBody, 16<<20)
	o.MaxSessions = cmp.Or(o.MaxSessions, 10_000)
	o.Timers = o.Timers.withDefaults()
	o.Version = cmp.Or(o.Version, "dev")
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if len(o.Servers) == 0 {
		o.Servers = []Server{o.Server}
	}
	o.Servers = append([]Server(nil), o.Servers...)
	for i := range o.Servers {
		s := &o.Servers[i]
		s.Isolation = cmp.Or(s.Isolation, PerSession)
		s.MaxChildren = cmp.Or(s.MaxChildren, 64)
		if s.Warm == 0 && s.URL == "" {
			s.Warm = 1
		}
		s.Warm = max(0, s.Warm)
		s.StartTimeout = cmp.Or(s.StartTimeout, o.Timers.StartTimeout)
		s.StopTimeout = cmp.Or(s.StopTimeout, o.Timers.StopTimeout)
		s.Timers = s.timers(o.Timers)
		if s.Name == "" {
			s.Name = baseName(cmp.Or(s.Command, s.host()))
		}
	}
	return o
}

func baseName(command string) string {
	if i := strings.LastIndexAny(command, `/\`); i >= 0 {
		command = command[i+1:]
	}
	return cmp.Or(command, "server")
}

// ErrOptions: the options make no gateway. Match with errors.Is.
var ErrOptions = errors.New("holdfast: bad options")

// reserved are the first path segments that the gateway keeps for itself.
var reserved = []string{"healthz", "readyz", "metrics", "dashboard", "debug", ".well-known"}

func (o Options) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrOptions, fmt.Sprintf(format, args...))
	}
	for _, p := range []string{o.Path, o.SSEPath} {
		if !strings.HasPrefix(p, "/") || p == "/" || strings.ContainsAny(p, "?# ") {
			return bad("path %q must begin with / and be more than that", p)
		}
	}
	if o.Path == o.SSEPath || o.Path == messagePath(o.SSEPath) {
		return bad("path %q and SSE path %q must differ", o.Path, o.SSEPath)
	}
	if o.PublicURL != "" {
		u, err := url.Parse(o.PublicURL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
			return bad("public URL %q must be http(s)://host[/prefix]", o.PublicURL)
		}
	}
	seen := map[string]bool{}
	for _, s := range o.Servers {
		switch {
		case s.kinds() != 1:
			return bad("server %q: give it a command, a URL or, in process, a Serve function: one of them", s.Name)
		case s.checkURL() != "":
			return bad("server %q: %s", s.Name, s.checkURL())
		case s.Isolation != PerSession && s.Isolation != Shared:
			return bad("server %q: isolation %q must be session or shared", s.Name, s.Isolation)
		case s.MaxChildren < 0:
			return bad("server %q: max children %d must be positive", s.Name, s.MaxChildren)
		case s.Timers.PingTimeout < 0 || s.Timers.PingMisses < 0 || s.Timers.ResultTTL < 0:
			return bad("server %q: ping timeout, ping misses and result TTL must be positive", s.Name)
		case len(o.Servers) > 1 && seen[s.Name]:
			return bad("two servers are named %q", s.Name)
		case len(o.Servers) > 1 && !validName(s.Name, o):
			return bad("server name %q: use letters, digits, - _ . and none of the gateway's own paths", s.Name)
		}
		for _, t := range s.Tools {
			if wrong := t.check(); wrong != "" {
				return bad("server %q: tool %q: %s", s.Name, t.Name, wrong)
			}
		}
		seen[s.Name] = true
	}
	return nil
}

// validName reports whether a name can be the first segment of a path.
func validName(name string, o Options) bool {
	own := append([]string{strings.Trim(o.Path, "/"), strings.Trim(o.SSEPath, "/"), strings.Trim(messagePath(o.SSEPath), "/"), "", ".", ".."},
		reserved...)
	if slices.Contains(own, name) {
		return false
	}
	return strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
	}) < 0
}

// messagePath is where HTTP+SSE messages are posted: beside the stream.
func messagePath(ssePath string) string {
	return ssePath[:strings.LastIndexByte(ssePath, '/')+1] + "message"
}
