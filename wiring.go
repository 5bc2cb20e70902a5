package holdfast

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-mcp/holdfast/eventlog"
	"github.com/holdfast-mcp/holdfast/internal/calls"
	"github.com/holdfast-mcp/holdfast/internal/conversation"
	"github.com/holdfast-mcp/holdfast/internal/era/httpsse"
	"github.com/holdfast-mcp/holdfast/internal/era/stateless"
	"github.com/holdfast-mcp/holdfast/internal/era/streamable"
	"github.com/holdfast-mcp/holdfast/internal/exchange"
	"github.com/holdfast-mcp/holdfast/internal/httpstream"
	"github.com/holdfast-mcp/holdfast/internal/ledger"
	"github.com/holdfast-mcp/holdfast/internal/liveness"
	"github.com/holdfast-mcp/holdfast/internal/observe"
	"github.com/holdfast-mcp/holdfast/internal/route"
	"github.com/holdfast-mcp/holdfast/internal/session"
	"github.com/holdfast-mcp/holdfast/internal/stdio"
	"github.com/holdfast-mcp/holdfast/internal/wire"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// newHost makes what serves one configured server.
func (g *Gateway) newHost(s Server, budget *eventlog.Budget) (*session.Host, error) {
	dial, err := g.dial(s)
	if err != nil {
		return nil, err
	}
	info, _ := json.Marshal(map[string]string{"name": "holdfast", "title": "Holdfast", "version": g.o.Version})
	log := g.log.With("server", s.Name)
	pulse := liveness.Settings{Interval: s.Timers.PingInterval, Timeout: s.Timers.PingTimeout, Misses: s.Timers.PingMisses}
	book := session.NewBook(ledgerOptions(s.Timers))
	rules := rulesOf(s)
	return &session.Host{
		Name: s.Name,
		Sessions: session.NewRegistry(session.RegistryOptions{
			Limits:  session.Limits{Stream: eventlog.Limits{Events: 4096, Bytes: 4 << 20, Total: budget}},
			Timeout: g.o.Timers.SessionTimeout,
			Grace:   g.o.Timers.ReconnectGrace,
			Max:     g.o.MaxSessions,
			Log:     log,

			Book:     book,
			Rules:    rules,
			Liveness: pulse,
			Observe:  g.observe(s.Name),
			Tasks:    offeredOf(s),
		}),
		Pool: conversation.NewPool(conversation.PoolOptions{
			Options: conversation.Options{
				Dial:         traced(s.Trace, dial),
				Remote:       s.URL != "",
				Shared:       s.Isolation == Shared,
				Name:         s.Name,
				ClientInfo:   info,
				StartTimeout: s.StartTimeout,
				MaxMessage:   g.o.MaxBody,
				Log:          g.log,

				Clocks: func(tool string) conversation.Clocks {
					r := rules(tool)
					return conversation.Clocks{Idle: r.Idle, Max: r.Max}
				},
				Question: g.o.Timers.QuestionTimeout,
				Liveness: pulse,
				Observe:  g.observe(s.Name),
			},
			Max:  s.MaxChildren,
			Warm: s.Warm,
		}),
	}, nil
}

// dial returns how to start a server.
func (g *Gateway) dial(s Server) (conversation.Dial, error) {
	opts := stdio.ConnOptions{MaxMessage: g.o.MaxBody}
	switch {
	case s.Serve != nil:
		return func(h stdio.Handler) (conversation.Link, error) { return g.serveInProcess(s, opts, h), nil }, nil
	case s.URL != "":
		return g.dialUpstream(s)
	}
	cmd := stdio.Command{Path: s.Command, Args: s.Args, Env: s.Env, Dir: s.Dir, Name: s.Name}
	return func(h stdio.Handler) (conversation.Link, error) {
		link, err := stdio.Launch(cmd, stdio.ProcessOptions{StopTimeout: s.StopTimeout, Logger: g.log, Companion: g.companion}, opts, h)
		if err != nil {
			return nil, err
		}
		return link, nil
	}, nil
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
		Ledger: ledgerOptions(s.Timers), Rules: rulesOf(s), Tasks: tasksOf(s), Observe: g.observe(s.Name),
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
	limits := wire.Limits{MaxBody: g.o.MaxBody, WriteTimeout: g.o.Timers.WriteTimeout}
	log := g.log.With("server", h.Name)
	routes := route.New(route.Options{Heartbeat: g.o.Timers.Heartbeat, Observe: g.observe(h.Name), Log: log})
	modern := stateless.New(stateless.Options{
		Host: x, Limits: limits, Retained: eventlog.Limits{Events: 4096, Bytes: 4 << 20, Total: budget}, Stream: output,
		Routes: routes, Heartbeat: g.o.Timers.Heartbeat, AnswerGrace: g.o.Timers.AnswerGrace, Caller: g.caller,
		Draining: g.draining.Load, Go: g.streams.run, Log: log,
	})
	mcp := streamable.New(streamable.Options{
		Stateless: modern.Serve,
		Host:      h, Limits: limits, Stream: output, Routes: routes, AnswerGrace: g.o.Timers.AnswerGrace,
		Retry: clientRetry, StartLimit: g.o.Timers.StartTimeout, Identify: g.identify, Draining: g.draining.Load, Go: g.streams.run, Log: log,
	})
	sse := httpsse.New(httpsse.Options{
		Stateless: x,
		Host:      h, Limits: limits, Stream: output, Routes: routes, Retry: clientRetry,
		Endpoint: strings.TrimSuffix(g.o.PublicURL, "/") + prefix + messagePath(g.o.SSEPath),
		Identify: g.identify, Draining: g.draining.Load, Go: g.streams.run, Log: log,
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

// What a server's ledger keeps of answers that nobody has taken yet, or that
// have a key.
const (
	maxAnswers      = 16 << 10
	maxAnswersBytes = 128 << 20
)

func ledgerOptions(t Timers) ledger.Options {
	return ledger.Options{Window: max(0, t.AdoptWindow), TTL: t.ResultTTL, MaxKept: maxAnswers, MaxBytes: maxAnswersBytes}
}

// rulesOf returns what holds for each tool of a server. It is asked for with
// every call.
func rulesOf(s Server) func(tool string) calls.Rules {
	resolve := func(tool string) calls.Rules {
		t := s.Tool(tool)
		return calls.Rules{
			Adopt: map[Adopt]ledger.Adopt{AdoptByKey: ledger.KeyOnly, AdoptNever: ledger.Never}[t.Adopt],
			OnDisconnect: map[OnDisconnect]calls.Disconnect{
				DisconnectCancel: calls.Cancel, DisconnectLinger: calls.Linger, DisconnectKeep: calls.Keep}[t.OnDisconnect],
			Grace: t.OrphanGrace, Idle: t.RequestTimeout, Max: t.RequestMax,
		}
	}
	if len(s.Tools) == 0 {
		same := resolve("")
		return func(string) calls.Rules { return same }
	}
	return resolve
}

// tasksOf returns which calls of a server become tasks, nil if none does.
func tasksOf(s Server) func(tool string) exchange.TaskRule {
	resolve := func(tool string) exchange.TaskRule {
		t := s.Tool(tool)
		switch t.Task {
		case TaskNever:
			return exchange.TaskRule{After: -1}
		case TaskAlways, TaskRequired:
			return exchange.TaskRule{Required: t.Task == TaskRequired}
		}
		return exchange.TaskRule{After: t.TaskAfter}
	}
	some := s.Timers.withDefaults().TaskAfter > 0
	for _, t := range s.Tools {
		some = some || t.Task == TaskAlways || t.Task == TaskRequired || t.TaskAfter > 0
	}
	switch {
	case !some:
		return nil
	case len(s.Tools) == 0: // it is asked for with every call
		same := resolve("")
		return func(string) exchange.TaskRule { return same }
	}
	return resolve
}

// longestTask bounds the time of a task whose call has no end.
const longestTask = 24 * time.Hour

// offeredOf says which tools are offered as tasks to clients of revision
// 2025-11-25: those whose own entries say so. The result is nil if there is none.
func offeredOf(s Server) *session.TaskOptions {
	offers := func(t Tool) bool {
		return t.Task == TaskAlways || t.Task == TaskRequired || t.Task == "" && t.TaskAfter > 0
	}
	if !slices.ContainsFunc(s.Tools, offers) {
		return nil
	}
	return &session.TaskOptions{
		Offered: func(tool string) bool { return offers(s.entry(tool)) },
		Longest: func(tool string) time.Duration {
			t := s.Tool(tool)
			if t.RequestMax < 0 {
				return longestTask
			}
			return t.RequestMax + s.Timers.withDefaults().ResultTTL
		},
	}
}

// identify tells who a client of the handshake era is. Nobody is authenticated
// here. Behind a proxy all users of one client look the same, so only a request
// that comes from this machine itself, without a sign of a proxy, may be taken
// for one of the client of the same name; any other is its session's alone.
func (g *Gateway) identify(r *http.Request, m *jsonrpc.Message) session.Who {
	return session.Who{KeyHolder: wire.Principal(r), Caller: g.callerOf(r, jsonrpc.Get(m.Raw(jsonrpc.Params), "clientInfo"))}
}

// caller is identify for a request of the stateless era.
func (g *Gateway) caller(r *http.Request, m *jsonrpc.Message) string {
	return g.callerOf(r, m.Raw(jsonrpc.MetaClient))
}

func (g *Gateway) callerOf(r *http.Request, info []byte) string {
	if !g.local(r) {
		return ""
	}
	return wire.Principal(r) + "\x00" + string(jsonrpc.Get(info, "name")) + "\x00" + string(jsonrpc.Get(info, "version"))
}

// forwarding are the headers that show a proxy.
var forwarding = []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "Via", "X-Real-Ip"}

// local reports whether a request comes from a client on this machine.
func (g *Gateway) local(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok || !loopback(at.String()) || !loopback(r.RemoteAddr) || g.listener != nil && !loopback(g.listener.Addr().String()) {
		return false
	}
	for _, name := range forwarding {
		if r.Header.Get(name) != "" {
			return false
		}
	}
	return true
}

func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && ip != nil && ip.IsLoopback()
}

// observe returns where the events of a server go: to the log, and to who
// listens.
func (g *Gateway) observe(server string) func(observe.Event) {
	return func(e observe.Event) {
		e.Server = server
		level := slog.LevelInfo
		switch {
		case e.Who == observe.Path || e.Cause == observe.ServerStuck:
			level = slog.LevelWarn
		case e.Subject == observe.Call && e.Cause == observe.Answered, e.Subject == observe.Stream && (e.Cause == observe.Answered || e.Cause == observe.ClientLeft || e.Cause == observe.Superseded):
			level = slog.LevelDebug // each client leaves some time
		}
		if ctx := context.Background(); g.log.Enabled(ctx, level) {
			g.log.LogAttrs(ctx, level, cmp.Or(e.Text, string(e.Subject)+" ended"), e.Attrs()...)
		}
	}
}
