package holdfast

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-mcp/holdfast/eventlog"
	"github.com/holdfast-mcp/holdfast/internal/era/pipe"
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
		h, err := g.newHost(s, budget)
		if err != nil {
			return nil, g.unbind(err)
		}
		x, err := g.newExchange(s, h)
		if err != nil {
			return nil, g.unbind(err)
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
		ReadTimeout:       o.Timers.ReadTimeout, // of a body: net/http lifts it once all is read
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(g.log.Handler(), slog.LevelWarn),
		ConnContext:       wire.WithFate,
	}
	return g, nil
}

// unbind gives the listener up, and returns err.
func (g *Gateway) unbind(err error) error {
	if g.listener != nil {
		_ = g.listener.Close()
	}
	return err
}

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
			if err := g.http.Serve(wire.Fateful(g.listener)); !errors.Is(err, http.ErrServerClosed) {
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
		n, unfetched := 0, 0
		for _, h := range g.hosts {
			n += h.Sessions.InFlight()
			unfetched += h.Sessions.Unfetched()
		}
		for _, x := range g.exchanges {
			n += x.InFlight()
			unfetched += x.Unfetched()
		}
		if n+unfetched == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-limit.C:
			g.log.Warn("calls were still running at the end of the drain time", "calls", n, "drain", g.o.Timers.Drain, "not_fetched", unfetched)
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
