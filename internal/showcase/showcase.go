// Package showcase runs one long call over a link that is cut again and again, through Holdfast and without it.
//
// All of it is real, in this process and on loopback: an MCP server, the
// gateway, sockets that are closed or reset, and one client for both runs. What
// is told of them is counted where it happens: executions at the server, cuts at
// the link, answers at the client.
package showcase

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/internal/era"
)

// Options of a run. Era, Length and Cut are needed.
type Options struct {
	Era    era.Version   // what the client speaks
	Length time.Duration // of the call
	Cut    time.Duration // between cuts, give or take a tenth
	Seed   uint64        // of the cuts: both runs have the same ones
	// Report is told what happens, by several goroutines at once. Default: no
	// report.
	Report func(Event)
}

// Kind says what an Event tells.
type Kind uint8

// The kinds of events, all as the client sees them.
const (
	Began    Kind = iota // an execution that is not known yet reported progress
	Progress             // Done of Total
	Cut                  // the connection broke
	Resumed              // the stream is read on from where it broke
	Joined               // called again, and the execution that is known goes on
	Refused              // Text is what the server said to a request
	Answered             // the end; Text is the answer's first line
	GaveUp               // the other end
)

// Event is one thing that happened to one of the two clients.
type Event struct {
	Era         era.Version
	Holdfast    bool          // which of the two
	At          time.Duration // since the run began
	Kind        Kind
	Execution   int // the newest that the client knows of
	Done, Total int // its progress
	Text        string
}

// Outcome is what became of the call.
type Outcome struct {
	Answers    int // that reached the client
	Executions int // that the server began
	Cuts       int // that broke at least one connection
	Took       time.Duration
}

// Result is the same call twice.
type Result struct {
	Era               era.Version
	Holdfast, Without Outcome
}

// Binding names the transport that clients of a revision use here.
func Binding(v era.Version) string {
	switch {
	case v == era.V20241105:
		return "HTTP+SSE"
	case v.Modern():
		return "Streamable HTTP, stateless"
	}
	return "Streamable HTTP"
}

// Run makes both calls, at the same time, and returns when both have come to an
// end and all that was started for them is stopped: soon after Length, or
// within a second or two after ctx is done. The error is that of ctx, or says
// what could not be set up.
func Run(ctx context.Context, o Options) (Result, error) {
	if o.Report == nil {
		o.Report = func(Event) {}
	}
	through, without := &lane{o: o, holdfast: true}, &lane{o: o}
	defer without.stop()
	defer through.stop()
	for _, l := range []*lane{through, without} {
		if err := l.start(ctx); err != nil {
			return Result{}, err
		}
	}
	result := Result{Era: o.Era}
	begin := time.Now()
	var both sync.WaitGroup
	both.Go(func() { result.Holdfast = through.call(ctx, begin) }) // both end with their call, or with ctx
	both.Go(func() { result.Without = without.call(ctx, begin) })
	both.Wait()
	return result, context.Cause(ctx)
}

// lane is one of the two runs: server, what serves it, link.
type lane struct {
	o        Options
	holdfast bool

	server  *tool
	between *link
	ends    []func() // to be called by stop, the last one first
}

func (l *lane) start(ctx context.Context) error {
	l.server = &tool{step: l.o.Length / steps}
	serve := serveRelay
	if l.holdfast {
		serve = serveHoldfast
	}
	addr, stop, err := serve(ctx, l.server)
	if err != nil {
		return err
	}
	l.ends = append(l.ends, stop)
	if l.between, err = newLink(addr, l.o.Cut, l.o.Seed); err != nil {
		return err
	}
	l.ends = append(l.ends, l.between.close)
	return nil
}

// stop stops what start has started.
func (l *lane) stop() {
	for _, end := range slices.Backward(l.ends) {
		end()
	}
}

// patience is when a call counts as lost: far more than either run needs.
func (l *lane) patience() time.Duration { return 3*l.o.Length + 10*time.Second }

// call is the client's run.
func (l *lane) call(ctx context.Context, begin time.Time) Outcome {
	ctx, cancel := context.WithTimeout(ctx, l.patience())
	defer cancel()
	c := newClient(l.o.Era, l.between.addr(), l.o.Cut/10, func(e Event) {
		e.Era, e.Holdfast, e.At = l.o.Era, l.holdfast, time.Since(begin)
		l.o.Report(e)
	})
	c.called = l.between.arm
	answers := c.run(ctx)
	return Outcome{
		Answers: answers, Executions: int(l.server.executions.Load()), Cuts: l.between.count(), Took: time.Since(begin),
	}
}

// serveHoldfast serves the tool through the gateway.
func serveHoldfast(ctx context.Context, t *tool) (addr string, stop func(), err error) {
	g, err := holdfast.New(holdfast.Options{
		Server: holdfast.InProcess(func(ctx context.Context, r io.ReadCloser, w io.WriteCloser) error { return t.serve(ctx, r, w) }),
		Listen: "127.0.0.1:0",
		Timers: holdfast.Timers{Drain: time.Millisecond}, // nobody waits for what is left
	})
	if err != nil {
		return "", nil, fmt.Errorf("showcase: gateway: %w", err)
	}
	stop = func() { _ = g.Stop(context.Background()) }
	if err := g.Start(ctx); err != nil {
		stop()
		return "", nil, fmt.Errorf("showcase: gateway: %w", err)
	}
	return g.Addr().String(), stop, nil
}

// serveRelay serves the tool without the gateway.
func serveRelay(_ context.Context, t *tool) (addr string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("showcase: relay: %w", err)
	}
	alive, end := context.WithCancel(context.Background())
	r := newRelay(t)
	server := &http.Server{
		Handler: r, ReadHeaderTimeout: writeTimeout,
		BaseContext: func(net.Listener) context.Context { return alive },
	}
	served := make(chan struct{})
	go func() { // ends with the server, which stop closes
		defer close(served)
		_ = server.Serve(listener)
	}()
	return listener.Addr().String(), func() {
		end() // of all handlers
		_ = server.Shutdown(context.Background())
		<-served
		r.wait()
	}, nil
}
