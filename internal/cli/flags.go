package cli

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/internal/config"
	"github.com/holdfast-mcp/holdfast/internal/demo"
)

// flags are the flags of serve. A flag that is given wins over the
// configuration file.
type flags struct {
	listen, config, path, ssePath, publicURL string
	transport, isolation                     string
	logFormat, logLevel                      string
	maxBody                                  string
	allowHost, allowOrigin, env              []string
	cwd                                      string
	maxChildren, warm, maxSessions           int
	demo                                     bool
	upstream                                 upstream
	timers                                   holdfast.Timers
	stateKey                                 string // from the file only: a flag would show in the process list
}

// group is a part of the help: flags that are about one thing.
type group struct {
	title string
	flags *pflag.FlagSet
}

// groups makes all flags of serve, as the help shows them.
func (f *flags) groups() []group {
	add := func(title string, register func(s *pflag.FlagSet)) group {
		s := pflag.NewFlagSet(title, pflag.ContinueOnError)
		s.SortFlags = false
		register(s)
		return group{title, s}
	}
	return []group{
		add("What is served", f.what), add("A remote server", f.remote), add("Where", f.where), add("Server processes", f.children),
		add("Streams and sessions", f.streamTimes), add("Calls", f.callTimes), add("Liveness", f.liveness),
		add("Limits", f.limits), add("Log", f.logging),
	}
}

// register adds all flags to s, and returns them in their groups.
func (f *flags) register(s *pflag.FlagSet) []group {
	groups := f.groups()
	for _, g := range groups {
		s.AddFlagSet(g.flags)
	}
	return groups
}

func (f *flags) what(s *pflag.FlagSet) {
	s.StringVar(&f.config, "config", "", "configuration `file`: YAML, or the mcpServers JSON of a desktop client")
	s.BoolVar(&f.demo, "demo", false, "serve a built-in demo server instead of a command")
	s.StringVar(&f.transport, "transport", envOr("MCP_TRANSPORT", "http"),
		"one of `http|sse|stdio`: the first two serve both HTTP bindings, stdio this process's own stdin and stdout; or set MCP_TRANSPORT")
}

func (f *flags) where(s *pflag.FlagSet) {
	s.StringVar(&f.listen, "listen", "127.0.0.1:8080", "`address` to listen on; port 0 takes any free one")
	s.StringVar(&f.path, "path", "/mcp", "`path` of Streamable HTTP")
	s.StringVar(&f.ssePath, "sse-path", "/sse", "`path` of the HTTP+SSE stream; its messages go to /message beside it")
	s.StringVar(&f.publicURL, "public-url", "", "`URL` under which clients reach this gateway behind a proxy, http(s)://host[/prefix]")
	s.StringSliceVar(&f.allowHost, "allow-host", nil, "host `name` that requests may be addressed to, beside loopback ones; * allows all; repeatable")
	s.StringSliceVar(&f.allowOrigin, "allow-origin", nil,
		"web `origin` whose pages may call, as https://host, answered with CORS; * allows all; repeatable")
}

func (f *flags) children(s *pflag.FlagSet) {
	s.StringVar(&f.isolation, "isolation", "session", "one of `session|shared`: a process for each session, or one for all of them")
	s.IntVar(&f.maxChildren, "max-children", 64, "`number` of processes at once; past it new sessions get 503")
	s.IntVar(&f.warm, "warm", 1, "`number` of spare processes kept started")
	s.StringArrayVar(&f.env, "env", nil, "`KEY=VALUE` for the server's environment; repeatable")
	s.StringVar(&f.cwd, "cwd", "", "the server's working `directory`")
	s.DurationVar(&f.timers.StartTimeout, "start-timeout", time.Minute, "from a process's start to its answer to initialize")
	s.DurationVar(&f.timers.StopTimeout, "stop-timeout", 5*time.Second, "to stop one: stdin closed, then SIGTERM, SIGKILL at the end")
}

func (f *flags) limits(s *pflag.FlagSet) {
	s.StringVar(&f.maxBody, "max-body", "16MiB", "`size` of the largest message, in both directions")
	s.IntVar(&f.maxSessions, "max-sessions", 10_000, "`number` of sessions of each server; past it 503")
}

func (f *flags) logging(s *pflag.FlagSet) {
	s.StringVar(&f.logFormat, "log-format", "text", "one of `text|json`: form of the log on stderr")
	s.StringVar(&f.logLevel, "log-level", "info", "one of `debug|info|warn|error`: least level that is logged")
}

func envOr(name, fallback string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return fallback
}

// options makes the gateway's options of the flags, the arguments after them
// and the configuration file.
func (f *flags) options(set *pflag.FlagSet, args []string) (holdfast.Options, []config.Warning, error) {
	var o holdfast.Options
	if !slices.Contains([]string{"http", "sse", "stdio"}, f.transport) {
		return o, nil, usage("--transport (MCP_TRANSPORT): %q is not one of http, sse, stdio", f.transport)
	}
	ways := 0
	for _, given := range []bool{len(args) > 0, f.config != "", f.demo, f.upstream.url != ""} {
		if given {
			ways++
		}
	}
	switch {
	case ways == 0:
		return o, nil, usage("nothing to serve: name a command after --, or a --config file, an --upstream URL, or --demo")
	case ways > 1:
		return o, nil, usage("a command, --config, --upstream and --demo exclude each other")
	}
	if err := f.checkNumbers(); err != nil {
		return o, nil, err
	}
	file, warnings := &config.File{}, []config.Warning(nil)
	if f.config != "" {
		var err error
		if file, warnings, err = config.Load(f.config); err != nil {
			return o, warnings, err
		}
	}
	if err := f.merge(set, file); err != nil {
		return o, warnings, err
	}
	servers, err := f.servers(set, file, args)
	if err != nil {
		return o, warnings, err
	}
	o = holdfast.Options{
		Servers: servers, Listen: f.listen, Path: f.path, SSEPath: f.ssePath, PublicURL: f.publicURL,
		AllowHosts: f.allowHost, AllowOrigins: f.allowOrigin, MaxSessions: f.maxSessions, Timers: f.timers, StateKey: f.stateKey,
	}
	size, err := config.ParseSize(f.maxBody)
	if err != nil {
		return o, warnings, usage("--max-body: %s", strings.TrimPrefix(err.Error(), config.ErrInvalid.Error()+": "))
	}
	o.MaxBody = int(size)
	return o, warnings, nil
}

func (f *flags) checkNumbers() error {
	if err := f.checkTimers(); err != nil {
		return err
	}
	switch {
	case f.maxChildren < 1 || f.maxSessions < 1:
		return usage("--max-children and --max-sessions must be at least 1")
	case f.warm < 0 || f.warm > f.maxChildren:
		return usage("--warm must be between 0 and --max-children (%d)", f.maxChildren)
	}
	return nil
}

// orNone turns a zero that was asked for into the library's word for it, where
// zero means the default.
func orNone[T int | time.Duration](v T) T {
	if v == 0 {
		return -1
	}
	return v
}

// merge takes from the file what no flag says.
func (f *flags) merge(set *pflag.FlagSet, file *config.File) error {
	take(set, "listen", &f.listen, file.Listen)
	take(set, "path", &f.path, file.Path)
	take(set, "sse-path", &f.ssePath, file.SSEPath)
	take(set, "public-url", &f.publicURL, file.PublicURL)
	take(set, "log-format", &f.logFormat, file.LogFormat)
	take(set, "log-level", &f.logLevel, file.LogLevel)
	take(set, "max-sessions", &f.maxSessions, file.MaxSessions)
	f.mergeTimers(set, file)
	f.stateKey = file.StateKey
	if !set.Changed("allow-host") {
		f.allowHost = file.AllowHost
	}
	if !set.Changed("allow-origin") {
		f.allowOrigin = file.AllowOrigin
	}
	if !set.Changed("max-body") && file.MaxBody > 0 {
		f.maxBody = itoa(file.MaxBody)
	}
	file.Path, file.SSEPath = f.path, f.ssePath
	if f.config != "" {
		return file.Check()
	}
	return nil
}

func take[T comparable](set *pflag.FlagSet, name string, flag *T, file T) {
	var zero T
	if !set.Changed(name) && file != zero {
		*flag = file
	}
}

// ifGiven returns the value of a flag that is on the command line, else zero.
func ifGiven[T any](set *pflag.FlagSet, name string, value T) T {
	var zero T
	if set.Changed(name) {
		return value
	}
	return zero
}

// servers describes what is to be served.
func (f *flags) servers(set *pflag.FlagSet, file *config.File, args []string) ([]holdfast.Server, error) {
	base := config.Children{
		Isolation: f.isolation, MaxChildren: f.maxChildren, Warm: orNone(f.warm),
		StartTimeout: f.timers.StartTimeout, StopTimeout: f.timers.StopTimeout,
	}
	given := config.Children{ // wins over the file
		Isolation:    ifGiven(set, "isolation", base.Isolation),
		MaxChildren:  ifGiven(set, "max-children", base.MaxChildren),
		Warm:         ifGiven(set, "warm", base.Warm),
		StartTimeout: ifGiven(set, "start-timeout", base.StartTimeout),
		StopTimeout:  ifGiven(set, "stop-timeout", base.StopTimeout),
	}
	if f.isolation != "session" && f.isolation != "shared" {
		return nil, usage("--isolation: %q is not session or shared", f.isolation)
	}
	for _, kv := range f.env {
		if key, _, ok := strings.Cut(kv, "="); !ok || key == "" {
			return nil, usage("--env: %q is not KEY=VALUE", kv)
		}
	}
	if len(args) == 0 && (len(f.env) > 0 || f.cwd != "") {
		return nil, usage("--env and --cwd belong to a command after --; in a --config file each server has its own")
	}
	if err := f.upstream.checkUnused(); err != nil {
		return nil, err
	}
	if f.demo {
		s := holdfast.InProcess(func(ctx context.Context, r io.ReadCloser, w io.WriteCloser) error { return demo.Serve(ctx, r, w) })
		s.Name, s.Isolation, s.MaxChildren, s.Warm = "demo", holdfast.Isolation(base.Isolation), cmp.Or(given.MaxChildren, 1000), base.Warm
		return []holdfast.Server{s}, nil
	}
	if len(args) > 0 {
		s := holdfast.Command(args[0], args[1:]...)
		apply(&s, base)
		s.Env, s.Dir = f.env, f.cwd
		return []holdfast.Server{s}, nil
	}
	far := base // an idle session at a remote server costs others something
	far.Warm = config.None
	if f.upstream.url != "" {
		s, err := f.upstream.server("--upstream-")
		apply(&s, given.Or(far))
		return []holdfast.Server{s}, err
	}
	var out []holdfast.Server
	for _, e := range file.Servers {
		s := holdfast.Command(e.Command, e.Args...)
		s.Env, s.Dir = e.Env, e.Dir
		children := given.Or(e.Children).Or(file.Children)
		if e.URL != "" {
			s, children = remoteServer(e, f.upstream.insecureHTTP), children.Or(far)
		}
		s.Name = e.Name
		apply(&s, children.Or(base))
		s.Timers, s.Tools = serverTimers(set, e.Clocks), tools(set, e.Tools)
		out = append(out, s)
	}
	return out, nil
}

func apply(s *holdfast.Server, c config.Children) {
	s.Isolation, s.MaxChildren, s.Warm = holdfast.Isolation(c.Isolation), c.MaxChildren, c.Warm
	s.StartTimeout, s.StopTimeout = c.StartTimeout, c.StopTimeout
}

// logger returns the logger that the flags ask for.
func (f *flags) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, usage("--log-level: %q is not debug, info, warn or error", f.logLevel)
	}
	opts := &slog.HandlerOptions{Level: level}
	switch f.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return nil, usage("--log-format: %q is not text or json", f.logFormat)
}
