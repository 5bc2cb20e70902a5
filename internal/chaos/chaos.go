// Package chaos makes many calls through a link that fails, and judges what became of each.
//
// It brings the servers, which count executions by a nonce in the arguments, the
// link, and the clients of all eras. What it is told to test is an http.Handler.
// Only tests may import it.
package chaos

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/wire"
)

// Server is where one configured server is reached: paths of the handler. Calm
// ones get the healthy twins, the others all that is faulty.
type Server struct {
	Path string // Streamable HTTP
	SSE  string // HTTP+SSE
	Calm bool
}

// Account tells what the servers have executed, by nonce.
type Account interface {
	All() (map[string]Executions, error)
}

// Options of a run. Zero numbers mean the default.
type Options struct {
	Handler http.Handler // the gateway
	Servers []Server     // one calm at least, and one that is not
	Account Account
	Calls   int     // default: 300
	Clients int     // at once; default: 64
	Seed    uint64  // of all that is drawn
	Scale   float64 // calls of 1 ms to 20 s take this much less; default: 10
	// Patience is how long a client waits for a byte once two pings to it were
	// lost. It must be longer than the gateway waits for their answers. Default:
	// 0.5 s.
	Patience time.Duration
}

// Run makes the calls and judges them. The error says what could not be set up,
// or that ctx ended first; what went wrong with calls is in the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	o.Calls, o.Clients = cmp.Or(o.Calls, 300), cmp.Or(o.Clients, 64)
	o.Scale, o.Patience = cmp.Or(o.Scale, 10), cmp.Or(o.Patience, 500*time.Millisecond)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	t := &tap{Listener: listener, calls: map[string]*passage{}}
	server := &http.Server{Handler: o.Handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, ConnContext: wire.WithFate} // as a gateway's own
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(wire.Fateful(t)) }() // ends with the server
	defer func() { _ = server.Close(); <-served }()
	l, err := newLink(listener.Addr().String(), o.Patience)
	if err != nil {
		return nil, err
	}
	defer l.close()

	r := &run{o: o, link: l}
	begin := time.Now()
	var clients sync.WaitGroup
	for n := range o.Clients {
		clients.Go(func() { r.client(ctx, n) }) // ends with its calls, or ctx
	}
	clients.Wait()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("chaos: %w", context.Cause(ctx))
	}
	executed, err := quiet(ctx, o.Account)
	if err != nil {
		return nil, err
	}
	return r.judge(executed, t, time.Since(begin)), nil
}

// run is one run.
type run struct {
	o    Options
	link *link

	mu      sync.Mutex // guards the field below
	records []*record
}

// client makes its share of the calls, one after the other.
func (r *run) client(ctx context.Context, n int) {
	p := r.o.planner(n)
	sessions := map[string]talk{} // kept from call to call
	for i := n; i < r.o.Calls && ctx.Err() == nil; i += r.o.Clients {
		c := p.next(fmt.Sprintf("n%d.%d", r.o.Seed, i))
		as := party{link: r.link, server: c.server, version: c.era, name: fmt.Sprintf("chaos-%d", n)}
		rest := func() time.Duration { return p.between(c.pauses/2, c.pauses) }
		if c.kind == Twins {
			r.keep(twins(ctx, c, as, rest)...)
			continue
		}
		where := fmt.Sprint(c.era, c.server.Path)
		t := sessions[where]
		if t == nil {
			t = newTalk(as)
			sessions[where] = t
		}
		rec := newCaller(c, t, rest).run(ctx)
		r.keep(rec)
		if _, events := t.(*eventsTalk); events || len(rec.wrong) > 0 || p.chance(25) {
			t.done(ctx)
		}
	}
	for _, t := range sessions {
		t.done(ctx)
	}
}

// twins makes two equal calls at once, on sessions of their own or on one.
func twins(ctx context.Context, c *call, as party, rest func() time.Duration) []*record {
	one, other := newTalk(as), newTalk(as)
	if s, ok := one.(*sessionTalk); ok && c.stay && s.begin(ctx) == nil {
		other.(*sessionTalk).side = s.side
	}
	both := make([]*record, 2)
	var wait sync.WaitGroup
	for i, t := range []talk{one, other} {
		who := newCaller(c, t, rest)
		who.rec.twin = i
		wait.Go(func() { both[i] = who.run(ctx) }) // ends with its call, or ctx
	}
	wait.Wait()
	one.done(ctx)
	other.leave()
	return both
}

func (r *run) keep(records ...*record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, records...)
}

// quietTime is how long executions that nobody wants any more may go on.
const quietTime = 30 * time.Second

// quiet waits until nothing is executed any more.
func quiet(ctx context.Context, a Account) (map[string]Executions, error) {
	for limit := time.Now().Add(quietTime); ; {
		all, err := a.All()
		if err != nil {
			return nil, err
		}
		running := slices.ContainsFunc(values(all), func(e Executions) bool { return e.Running() > 0 })
		if !running || time.Now().After(limit) {
			return all, nil
		}
		pause(ctx, 50*time.Millisecond)
	}
}

func values(all map[string]Executions) (out []Executions) {
	for _, e := range all {
		out = append(out, e)
	}
	return out
}
