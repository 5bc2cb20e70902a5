package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/internal/guard"
	"github.com/holdfast-mcp/holdfast/internal/stdio"
)

const serveHelp = `Starts an MCP server that speaks stdio and offers it on the network, to clients
of every published revision of MCP (2024-11-05 to 2026-07-28), whichever the server
itself speaks:

  /mcp              Streamable HTTP
  /sse, /message    HTTP+SSE
  /healthz, /readyz for what watches over the gateway

With --upstream it is a server that is on the network already, of any revision and
transport, which is offered the same way.

Several servers come from a configuration file, YAML or the JSON "mcpServers"
file of a desktop client; each is then at /<name>/mcp and /<name>/sse.

Once ready, one line "listening on http://HOST:PORT" is written to stdout; logs
and a snippet for clients go to stderr.`

const serveExample = `  holdfast serve -- npx -y @modelcontextprotocol/server-everything
  holdfast serve --isolation shared -- uvx mcp-server-fetch
  holdfast serve --upstream https://example.org/mcp --upstream-header 'Authorization: Bearer ${TOKEN}'
  holdfast serve --config servers.yaml --listen 127.0.0.1:0
  holdfast serve --demo
  MCP_TRANSPORT=stdio holdfast serve -- ./my-server`

func newServe(std streams) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:     "serve [flags] -- command [args…]",
		Short:   "Offer MCP servers to every client",
		Long:    serveHelp,
		Example: serveExample,
		Version: version(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.serve(cmd, args, std)
		},
	}
	groups := f.register(cmd.Flags())
	cmd.SetUsageFunc(func(cmd *cobra.Command) error { return groupedUsage(cmd, groups) })
	return cmd
}

// serve runs the gateway until a signal, or the end of stdin with the stdio
// transport.
func (f *flags) serve(cmd *cobra.Command, args []string, std streams) error {
	o, warnings, err := f.options(cmd.Flags(), args)
	if err != nil {
		return err
	}
	lines := newLogWriter(std.err)
	defer lines.close()
	std.err = lines
	log, err := f.logger(lines)
	if err != nil {
		return err
	}
	o.Logger, o.Version = log, version()
	f.upstream.logTo(log)
	for _, w := range warnings {
		log.Warn(w.Text, "at", w.Pos.String())
	}
	for _, finding := range o.Lint() {
		log.Warn(finding.Text, "setting", finding.Setting)
	}
	if self, err := os.Executable(); err == nil {
		o.Companion = []string{self, companionCommand}
	}
	defer tuneGC()()
	ctx, stop := awaitSignals(log, lines.close)
	defer stop()
	if f.transport == "stdio" {
		err = serveStdio(ctx, o, std)
	} else {
		err = f.serveHTTP(ctx, o, std)
	}
	if ctx.Err() != nil {
		return nil // told to stop, it stopped
	}
	if err != nil && f.logFormat == "json" && !isUsage(err) {
		log.Error("cannot go on", "cause", message(explain(err)))
		return exitStatus(1) // every line is a record: no plain text after them
	}
	return explain(err)
}

// oneSignal is within what time signals count as one: shells and process
// managers signal a process, and its whole group at the same moment.
const oneSignal = 100 * time.Millisecond

// awaitSignals returns a context that ends with the first SIGTERM or SIGINT.
// The second one ends the process at once.
func awaitSignals(log *slog.Logger, flush func()) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	// Whoever reads the ready line or the log may go away: a write fails then,
	// instead of ending the process. Unlike an ignored signal, this one is not
	// handed down to the servers.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	done := make(chan struct{})
	go func() { // ends with stop
		var first time.Time
		for {
			select {
			case s := <-signals:
				if !first.IsZero() && time.Since(first) < oneSignal {
					continue
				}
				if !first.IsZero() {
					log.Error("second signal: exiting at once", "signal", s.String())
					flush()
					os.Exit(1)
				}
				first = time.Now()
				log.Info("shutting down: calls in flight may end; a second signal exits at once", "signal", s.String())
				cancel(fmt.Errorf("signal: %s", s))
			case <-done:
				return
			}
		}
	}()
	return ctx, func() { signal.Stop(signals); close(done); cancel(nil) }
}

// serveHTTP serves both HTTP bindings until ctx is done.
func (f *flags) serveHTTP(ctx context.Context, o holdfast.Options, std streams) error {
	log := o.Logger
	g, err := holdfast.New(o)
	if err != nil {
		return err
	}
	if err := start(ctx, g); err != nil {
		return err
	}
	base := "http://" + g.Addr().String()
	if host, port, err := net.SplitHostPort(g.Addr().String()); err == nil && !guard.Loopback(host) {
		log.Warn("listening beyond loopback, without authentication: everybody who reaches this address can use the servers", "address", g.Addr().String())
		if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
			base = "http://" + net.JoinHostPort("localhost", port)
		}
	}
	if o.PublicURL != "" {
		base = strings.TrimSuffix(o.PublicURL, "/")
	}
	if _, err := fmt.Fprintf(std.out, "listening on http://%s\n", g.Addr()); err != nil {
		log.Warn("the ready line could not be written", "cause", err)
	}
	if f.logFormat == "json" { // every line of stderr is a record
		for _, e := range g.Endpoints() {
			log.Info("serving", "server", e.Name, "streamable_http", base+e.Streamable, "sse", base+e.SSE)
		}
	} else {
		_, _ = fmt.Fprint(std.err, snippet(base, g.Endpoints(), f.demo))
	}
	select {
	case <-ctx.Done():
	case err = <-g.Failed():
	}
	_ = g.Stop(context.Background())
	if err == nil {
		log.Info("stopped")
	}
	return err
}

func serveStdio(ctx context.Context, o holdfast.Options, std streams) error {
	if len(o.Servers) > 1 {
		return usage("the stdio transport offers one server, the configuration has %d", len(o.Servers))
	}
	o.Listen = ""
	o.Timers.Heartbeat = max(o.Timers.Heartbeat, time.Second)
	g, err := holdfast.New(o)
	if err != nil {
		return err
	}
	if err := start(ctx, g); err != nil {
		return err
	}
	err = g.ServePipe(ctx, std.in, std.out)
	_ = g.Stop(context.Background())
	return err
}

// start starts the gateway, or stops what it has begun.
func start(ctx context.Context, g *holdfast.Gateway) error {
	err := g.Start(ctx)
	if err != nil {
		_ = g.Stop(context.Background())
	}
	return err
}

// explain adds to an error what helps to mend it.
func explain(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w; choose another address with --listen, or port 0 for any free one", err)
	}
	exit, ok := errors.AsType[*stdio.ExitError](err)
	switch {
	case ok && strings.TrimSpace(exit.Stderr) != "":
		return fmt.Errorf("%w; its stderr ends:\n%s", err, exit.Stderr)
	case ok && exit.Code == 0:
		return fmt.Errorf("%w, without a word; an MCP server on stdio runs until its stdin is closed", err)
	}
	return err
}
