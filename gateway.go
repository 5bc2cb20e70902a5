package holdfast

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-mcp/holdfast/eventlog"
	"github.com/holdfast-mcp/holdfast/internal/conversation"
	"github.com/holdfast-mcp/holdfast/internal/era/httpsse"
	"github.com/holdfast-mcp/holdfast/internal/era/pipe"
	"github.com/holdfast-mcp/holdfast/internal/era/stateless"
	"github.com/holdfast-mcp/holdfast/internal/era/streamable"
	"github.com/holdfast-mcp/holdfast/internal/exchange"
	"github.com/holdfast-mcp/holdfast/internal/guard"
	"github.com/holdfast-mcp/holdfast/internal/httpstream"
	"github.com/holdfast-mcp/holdfast/internal/session"
	"github.com/holdfast-mcp/holdfast/internal/stdio"
	"github.com/holdfast-mcp/holdfast/internal/wire"
)

// Gateway serves the configured MCP servers. It is an http.Handler between
// Start and Stop. Safe for concurrent use.
type Gateway struct {
	o         Options
	log       *slog.Logger
	hosts     []*session.Host
	exchanges []*exchange.Host
	routes    map[string]http.HandlerFunc
	handler   http.Handler // guard before routes
	listener  net.Listener
	http      *http.Server
	companion *stdio.Companion

	draining atomic.Bool
	started  atomic.Bool
	cancel   context.CancelFunc // ends the background work
	work     sync.WaitGroup     // registries' sweeping, the HTTP server
	streams  streams            // those that have left net/http
	failed   chan error         // capacity 1: the gateway cannot go on
	stopOnce sync.Once
	stopped  chan struct{}
}

// maxRetained bounds the bytes that all streams together hold for
// resumption.
const maxRetained = 256 << 20

// New checks the options, binds the listener if there is one, and wires the
// gateway. Nothing runs before Start. The error wraps ErrOptions where the
// options are at fault.
func New(o Options) (*Gateway, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	g := &Gateway{o: o, log: o.Logger, routes: map[string]http.HandlerFunc{}, failed: make(chan error, 1), stopped: make(chan struct{})}
	if o.Listen != "" {
		l, err := net.Listen("tcp", o.Listen)
		if err != nil {
			return nil, fmt.Errorf("holdfast: listen: %w", err)
		}
		g.listener = l
	}
	budget := &eventlog.Budget{Max: maxRetained}
	output := &httpstream.Options{WriteTimeout: o.Timers.WriteTimeout, Log: g.log}
	for _, s := range o.Servers {
		h := g.newHost(s, budget)
		x, err := g.newExchange(s, h)
		if err != nil {
			return nil, err
		}
		h.Evict = x.Evict
		g.hosts, g.exchanges = append(g.hosts, h), append(g.exchanges, x)
		g.route(h, x, budget, output)
	}
	g.routes["/healthz"] = g.healthz
	g.routes["/readyz"] = g.readyz
	g.routes["/"] = g.index
	hosts := o.AllowHosts
	if host, _, err := net.SplitHostPort(o.Listen); err == nil && host != "" {
		hosts = append([]string{host}, hosts...)
	}
	g.handler = guard.New(guard.Options{Hosts: hosts, Origins: o.AllowOrigins}, http.HandlerFunc(g.dispatch))
	g.http = &http.Server{
		Handler:           g,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(g.log.Handler(), slog.LevelWarn),
	}
	return g, nil
}

// newHost makes what serves one configured server.
func (g *Gateway) newHost(s Server, budget *eventlog.Budget) *session.Host {
	info, _ := json.Marshal(map[string]string{"name": "holdfast", "title": "Holdfast", "version": g.o.Version})
	log := g.log.With("server", s.Name)
	return &session.Host{
		Name: s.Name,
		Sessions: session.NewRegistry(session.RegistryOptions{
			Limits:  session.Limits{Stream: eventlog.Limits{Events: 4096, Bytes: 4 << 20, Total: budget}},
			Timeout: g.o.Timers.SessionTimeout,
			Grace:   g.o.Timers.ReconnectGrace,
			Max:     g.o.MaxSessions,
			Log:     log,
		}),
		Pool: conversation.NewPool(conversation.PoolOptions{
			Options: conversation.Options{
				Dial:         g.dial(s),
				Shared:       s.Isolation == Shared,
				Name:         s.Name,
				ClientInfo:   info,
				StartTimeout: s.StartTimeout,
				MaxMessage:   g.o.MaxBody,
				Log:          g.log,
			},
			Max:  s.MaxChildren,
			Warm: s.Warm,
		}),
	}
}

// dial returns how to start a server.
func (g *Gateway) dial(s Server) conversation.Dial {
	opts := stdio.ConnOptions{MaxMessage: g.o.MaxBody}
	if s.Serve != nil {
		return func(h stdio.Handler) (conversation.Link, error) { return g.serveInProcess(s, opts, h), nil }
	}
	cmd := stdio.Command{Path: s.Command, Args: s.Args, Env: s.Env, Dir: s.Dir, Name: s.Name}
	return func(h stdio.Handler) (conversation.Link, error) {
		link, err := stdio.Launch(cmd, stdio.ProcessOptions{StopTimeout: s.StopTimeout, Logger: g.log, Companion: g.companion}, opts, h)
		if err != nil {
			return nil, err
		}
		return link, nil
	}
}

// inProcess ends an in-process server.
type inProcess struct {
	cancel context.CancelFunc
	ends   []io.Closer
	done   chan struct{}
}

// Close implements io.Closer.
func (p *inProcess) Close() error {
	for _, c := range p.ends {
		_ = c.Close()
	}
	p.cancel()
	<-p.done
	return nil
}

func (g *Gateway) serveInProcess(s Server, opts stdio.ConnOptions, h stdio.Handler) *stdio.Link {
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	p := &inProcess{cancel: cancel, ends: []io.Closer{toServer, fromServer, in}, done: make(chan struct{})}
	go func() { // ends with the pipes, or with ctx
		defer close(p.done)
		err := s.Serve(ctx, in, out)
		_ = out.CloseWithError(io.EOF)
		_ = in.CloseWithError(io.ErrClosedPipe)
		g.log.Debug("in-process server returned", "server", s.Name, "cause", err)
	}()
	return stdio.Connect(fromServer, toServer, p, opts, h)
}

// newExchange makes what serves the stateless requests to one server.
func (g *Gateway) newExchange(s Server, h *session.Host) (*exchange.Host, error) {
	key := sha256.Sum256([]byte(cmp.Or(g.o.StateKey, rand.Text())))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	seal, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return exchange.New(exchange.Options{
		Pool: h.Pool, Name: h.Name, Patience: g.o.Timers.ProbeTimeout, StartTimeout: s.StartTimeout,
		QuestionTimeout: g.o.Timers.QuestionTimeout, Idle: g.o.Timers.SessionTimeout, MaxWaiting: maxWaiting, Seal: seal, Log: g.log,
	}), nil
}

// maxWaiting bounds the stateless calls that wait for a server process.
const maxWaiting = 4096

// sweep ends conversations that no stateless client uses any more.
func sweep(ctx context.Context, x *exchange.Host) {
	t := time.NewTicker(10 * time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			x.Sweep(now)
		}
	}
}

// route enters the paths of one server.
func (g *Gateway) route(h *session.Host, x *exchange.Host, budget *eventlog.Budget, output *httpstream.Options) {
	prefix := ""
	if len(g.o.Servers) > 1 {
		prefix = "/" + h.Name
	}
	limits := wire.Limits{MaxBody: g.o.MaxBody, ReadTimeout: g.o.Timers.ReadTimeout, WriteTimeout: g.o.Timers.WriteTimeout}
	log := g.log.With("server", h.Name)
	modern := stateless.New(stateless.Options{
		Host: x, Limits: limits, Retained: eventlog.Limits{Events: 4096, Bytes: 4 << 20, Total: budget}, Stream: output,
		Heartbeat: g.o.Timers.Heartbeat, AnswerGrace: g.o.Timers.AnswerGrace, Draining: g.draining.Load, Go: g.streams.run, Log: log,
	})
	mcp := streamable.New(streamable.Options{
		Stateless: modern.Serve,
		Host:      h, Limits: limits, Stream: output, Heartbeat: g.o.Timers.Heartbeat, AnswerGrace: g.o.Timers.AnswerGrace,
		Retry: clientRetry, StartLimit: g.o.Timers.StartTimeout, Draining: g.draining.Load, Go: g.streams.run, Log: log,
	})
	sse := httpsse.New(httpsse.Options{
		Stateless: x,
		Host:      h, Limits: limits, Stream: output, Heartbeat: g.o.Timers.Heartbeat, Retry: clientRetry,
		Endpoint: strings.TrimSuffix(g.o.PublicURL, "/") + prefix + messagePath(g.o.SSEPath),
		Draining: g.draining.Load, Go: g.streams.run, Log: log,
	})
	for path, handler := range map[string]http.HandlerFunc{
		g.o.Path: mcp.ServeHTTP, g.o.SSEPath: sse.Events, messagePath(g.o.SSEPath): sse.Message,
	} {
		g.routes[prefix+path] = handler
		g.routes[prefix+strings.TrimSuffix(path, "/")+"/"] = handler // no redirect: it would lose a POST's body
	}
}

// clientRetry is what clients are told to wait before they come back.
const clientRetry = time.Second

// Start starts the servers and the listener, and returns once sessions can be
// opened. A server that cannot be started, or ends at once, is an error.
func (g *Gateway) Start(ctx context.Context) error {
	if g.started.Swap(true) {
		return errors.New("holdfast: started already")
	}
	if len(g.o.Companion) > 0 {
		c, err := stdio.StartCompanion(g.o.Companion, g.log)
		if err != nil {
			return fmt.Errorf("holdfast: companion: %w", err)
		}
		g.companion = c
	}
	for _, h := range g.hosts {
		if err := h.Pool.Start(ctx); err != nil {
			g.release(err)
			return fmt.Errorf("holdfast: server %q: %w", h.Name, err)
		}
	}
	background, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	for _, x := range g.exchanges {
		g.work.Go(func() { sweep(background, x) })
	}
	for _, h := range g.hosts {
		g.work.Go(func() { h.Sessions.Run(background) })
		g.work.Go(func() {
			select {
			case err := <-h.Pool.Fatal():
				g.fail(err)
			case <-background.Done():
			}
		})
	}
	if g.listener != nil {
		g.work.Go(func() {
			if err := g.http.Serve(g.listener); !errors.Is(err, http.ErrServerClosed) {
				g.fail(fmt.Errorf("holdfast: serve: %w", err))
			}
		})
	}
	return nil
}

func (g *Gateway) fail(err error) {
	select {
	case g.failed <- err:
	default:
	}
}

// Failed receives an error if the gateway cannot go on, and should be stopped.
func (g *Gateway) Failed() <-chan error { return g.failed }

// Addr returns the address that New bound, nil without a listener.
func (g *Gateway) Addr() net.Addr {
	if g.listener == nil {
		return nil
	}
	return g.listener.Addr()
}

// Stop refuses new sessions and calls, lets calls in flight end for the drain
// time or until ctx is done, ends the streams so that clients come back
// elsewhere, and stops the servers' process trees. Idempotent; it returns when
// all is over, at most a few seconds after the drain time and the stop time-out.
func (g *Gateway) Stop(ctx context.Context) error {
	g.stopOnce.Do(func() {
		g.draining.Store(true)
		g.drain(ctx)
		g.release(session.ErrShutdown)
		close(g.stopped)
	})
	<-g.stopped
	return nil
}

// Drain refuses new sessions and calls from now on.
func (g *Gateway) drain(ctx context.Context) {
	limit := time.NewTimer(g.o.Timers.Drain)
	defer limit.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		n := 0
		for _, h := range g.hosts {
			n += h.Sessions.InFlight()
		}
		for _, x := range g.exchanges {
			n += x.InFlight()
		}
		if n == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-limit.C:
			g.log.Warn("calls were still running at the end of the drain time", "calls", n, "drain", g.o.Timers.Drain)
			return
		case <-ctx.Done():
			return
		}
	}
}

// flushTime is how long streams get to deliver what they still hold.
const flushTime = 2 * time.Second

// release ends everything, in the order in which it depends on each other.
func (g *Gateway) release(cause error) {
	for _, x := range g.exchanges {
		x.Close(cause)
	}
	for _, h := range g.hosts {
		h.Sessions.Close(cause)
	}
	var pools sync.WaitGroup
	for _, h := range g.hosts {
		pools.Go(func() { h.Pool.Close(cause) })
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	if g.listener != nil {
		if err := g.http.Shutdown(ctx); err != nil {
			_ = g.http.Close()
		}
		_ = g.listener.Close()
	}
	ended := make(chan struct{})
	go func() { g.streams.wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done(): // a client that does not read; its write deadline ends it
	}
	pools.Wait()
	if g.companion != nil {
		g.companion.Close()
	}
	if g.cancel != nil {
		g.cancel()
	}
	g.work.Wait()
}

// streams are the goroutines of the streams that have left net/http. A
// sync.WaitGroup alone must not be added to while it is waited for.
type streams struct {
	running sync.WaitGroup

	mu     sync.RWMutex // guards the field below
	closed bool
}

// run runs f in a goroutine that wait waits for; after wait, in its own: the
// session is over by then, so f ends soon.
func (s *streams) run(f func()) {
	s.mu.RLock()
	closed := s.closed
	if !closed {
		s.running.Go(f)
	}
	s.mu.RUnlock()
	if closed {
		f()
	}
}

func (s *streams) wait() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.running.Wait()
}

// Run is Start, waiting until ctx is done or the gateway fails, and Stop.
func (g *Gateway) Run(ctx context.Context) error {
	if err := g.Start(ctx); err != nil {
		return err
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-g.failed:
	}
	_ = g.Stop(context.Background())
	return err
}

// ServePipe offers the first server to one client on a reader and a writer, as
// MCP's stdio transport does, until in ends or ctx is done. The gateway must be
// started.
func (g *Gateway) ServePipe(ctx context.Context, in io.Reader, out io.Writer) error {
	return pipe.Serve(ctx, in, out, pipe.Options{Host: g.hosts[0], Stateless: g.exchanges[0], MaxMessage: g.o.MaxBody, Drain: g.o.Timers.Drain, Log: g.log})
}

// RunCompanion is the body of the process that Options.Companion names: it
// reads from r which process groups live, and ends them when r ends. It returns
// the exit status.
func RunCompanion(r io.Reader) int { return stdio.RunCompanion(r) }
