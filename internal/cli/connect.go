package cli

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/internal/config"
)

const connectHelp = `Is an MCP server on its own stdin and stdout, for a client that starts its servers
as commands, and brings everything to the server at URL. In the client's
configuration:

  {
    "mcpServers": {
      "example": {
        "command": "holdfast",
        "args": ["connect", "https://example.org/mcp"]
      }
    }
  }

The client and the server may be of any two revisions of MCP (2024-11-05 to
2026-07-28); of the server, the newest one is used that it speaks, over Streamable
HTTP or HTTP+SSE.

The network may go away, the machine sleep, the server be deployed anew, a token be
replaced (--header-file). Requests wait for --reconnect-wait meanwhile. A call in
flight gets its answer where the server still has it, else an error that says
whether it may have been executed; it is never executed twice.

A command after -- is a server to use instead if nothing at URL answers as an MCP
server within --connect-timeout of the start.

stdout has messages only; the log goes to stderr. At the end of stdin, calls in
flight have --drain to end.`

const connectExample = `  holdfast connect https://example.org/mcp
  holdfast connect --header 'Authorization: Bearer ${TOKEN}' https://example.org/mcp
  holdfast connect --header-file ~/.config/example/headers https://example.org/mcp
  holdfast connect https://example.org/mcp -- npx -y example-mcp-server
  holdfast connect --trace trace.jsonl http://localhost:8080/sse`

// connect has the flags of connect. Of those of serve it shows a few; the
// others have their defaults.
type connect struct {
	flags
	wait  time.Duration
	trace string
}

func newConnect(std streams) *cobra.Command {
	var c connect
	cmd := &cobra.Command{
		Use:     "connect [flags] URL [-- fallback command…]",
		Short:   "Be the server at a URL for a client that speaks stdio",
		Long:    connectHelp,
		Example: connectExample,
		Version: version(),
		RunE: func(cmd *cobra.Command, args []string) error {
			remote, fallback := args, []string(nil)
			if n := cmd.ArgsLenAtDash(); n >= 0 {
				remote, fallback = args[:n], args[n:]
			}
			return c.run(remote, fallback, std)
		},
	}
	groups := c.groups()
	for _, g := range groups {
		cmd.Flags().AddFlagSet(g.flags)
	}
	cmd.SetUsageFunc(func(cmd *cobra.Command) error { return groupedUsage(cmd, groups) })
	return cmd
}

// groups makes the flags of connect, as the help shows them.
func (c *connect) groups() []group {
	all := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	c.flags.register(all)
	take := func(s *pflag.FlagSet, names ...string) {
		for _, name := range names {
			s.AddFlag(all.Lookup(name))
		}
	}
	add := func(title string, register func(s *pflag.FlagSet)) group {
		s := pflag.NewFlagSet(title, pflag.ContinueOnError)
		s.SortFlags = false
		register(s)
		return group{title, s}
	}
	c.flags.upstream = upstream{}
	return []group{
		add("The server", func(s *pflag.FlagSet) {
			c.upstream.register(s, "")
			take(s, "reconnect-wait")
			s.DurationVar(&c.wait, "connect-timeout", 10*time.Second, "with a fallback command: for the server at URL to answer at the start")
		}),
		add("Calls", func(s *pflag.FlagSet) { take(s, "request-timeout", "request-max", "question-timeout", "drain") }),
		add("Liveness", func(s *pflag.FlagSet) { take(s, "ping-interval", "ping-timeout", "ping-misses") }),
		add("Limits", func(s *pflag.FlagSet) { take(s, "max-body", "start-timeout", "stop-timeout") }),
		add("Log", func(s *pflag.FlagSet) {
			s.StringVar(&c.trace, "trace", "", "`file` to which every message is added, in each direction, with its time; headers never are")
			take(s, "log-format", "log-level")
		}),
	}
}

// run is the server until stdin ends, or a signal.
func (c *connect) run(remote, fallback []string, std streams) error {
	o, err := c.options(remote)
	if err != nil {
		return err
	}
	lines := newLogWriter(std.err)
	defer lines.close()
	log, err := c.logger(lines)
	if err != nil {
		return err
	}
	o.Logger, o.Version = log, version()
	c.upstream.logTo(log)
	for _, finding := range o.Lint() {
		log.Warn(finding.Text, "setting", finding.Setting)
	}
	t, err := openTrace(c.trace)
	if err != nil {
		return usage("--trace: %w", err)
	}
	defer t.close()
	std.in, std.out = t.client(std.in, std.out)
	ctx, stop := awaitSignals(log, lines.close)
	defer stop()
	o.Servers[0] = c.choose(ctx, o.Servers[0], fallback, log)
	o.Servers[0].Trace = t.server()
	if len(fallback) > 0 {
		if self, err := os.Executable(); err == nil {
			o.Companion = []string{self, companionCommand}
		}
	}
	err = serveStdio(ctx, o, std)
	if ctx.Err() != nil {
		return nil // told to stop, it stopped
	}
	if err != nil && c.logFormat == "json" && !isUsage(err) {
		log.Error("cannot go on", "cause", message(explain(err)))
		return exitStatus(1)
	}
	return explain(err)
}

// options makes the gateway's options of the flags and the URL.
func (c *connect) options(remote []string) (holdfast.Options, error) {
	var o holdfast.Options
	switch {
	case len(remote) == 0:
		return o, usage("name the URL of the server: holdfast connect https://example.org/mcp")
	case len(remote) > 1 && !strings.Contains(remote[1], "://"):
		return o, usage("%q is no URL; a fallback command comes after --: holdfast connect %s -- %s …", remote[1], remote[0], remote[1])
	case len(remote) > 1:
		return o, usage("one URL, please: %d were given", len(remote))
	case !strings.Contains(remote[0], "://"):
		return o, usage("%q is no URL; write it with its scheme, as https://example.org/mcp", remote[0])
	case c.wait < time.Millisecond:
		return o, usage("--connect-timeout: %s is too short, give it at least 1ms", c.wait)
	}
	if err := c.checkTimers(); err != nil {
		return o, err
	}
	c.upstream.url = remote[0]
	s, err := c.upstream.server("--")
	if err != nil {
		return o, err
	}
	s.StopTimeout = time.Second // the client is gone by then
	size, err := config.ParseSize(c.maxBody)
	if err != nil {
		return o, usage("--max-body: %s", strings.TrimPrefix(err.Error(), config.ErrInvalid.Error()+": "))
	}
	o = holdfast.Options{Servers: []holdfast.Server{s}, Timers: c.timers, MaxBody: int(size)}
	return o, nil
}

// choose returns the server to use: the fallback command, if there is one and
// the remote server is not.
func (c *connect) choose(ctx context.Context, s holdfast.Server, fallback []string, log *slog.Logger) holdfast.Server {
	if len(fallback) == 0 {
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	err := s.Reach(ctx)
	if err == nil {
		return s
	}
	log.Warn("the server is not used, the fallback command is", "why", message(err), "command", strings.Join(fallback, " "))
	local := holdfast.Command(fallback[0], fallback[1:]...)
	local.Warm = config.None // there is one client
	return local
}
