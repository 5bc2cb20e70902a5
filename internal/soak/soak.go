// Package soak keeps holdfast connect busy over a network that fails, before a server that is deployed anew, and judges its calls and what the processes hold.
//
// Only tests may import it.
package soak

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/chaos"
	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
)

// Place is where the server can be reached, and what it speaks there.
type Place struct {
	Name string
	Path string
}

// Options of a run. Zero numbers mean the default. What is called long is so
// before it is scaled.
type Options struct {
	Holdfast []string // the command line of the program
	// Server is the command line of the server. It gets two arguments: the
	// address to listen on and the file of the chaos.File to note executions in.
	// It says "listening on http://HOST:PORT" on stdout once it listens, and
	// ends with SIGTERM.
	Server []string
	Pairs  []Pair        // there is one connect for each
	Dir    string        // for the journal and what processes write to stderr
	Length time.Duration // how long it takes. Default: 30 min
	Scale  float64       // everything takes this much less. Default: 10
	Seed   uint64        // of all that is drawn
}

// Pair is one connect: the revision that its client speaks, and the server's
// place.
type Pair struct {
	Version era.Version
	Place   Place
}

func (p Pair) String() string { return fmt.Sprintf("%s before %s", p.Version, p.Place.Name) }

// What 30 minutes have.
const (
	fullLength    = 30 * time.Minute
	fullCalls     = 2000
	fullRedeploys = 10
)

// What connect is told to keep to, before it is scaled.
const (
	reconnectWait = 30 * time.Second
	pingInterval  = 30 * time.Second
	pingTimeout   = 20 * time.Second
	drain         = 10 * time.Second
)

// The shortest and the longest call, before they are scaled.
const (
	shortest = time.Millisecond
	longest  = 30 * time.Second
)

func (o Options) withDefaults() Options {
	o.Length, o.Scale = cmp.Or(o.Length, fullLength), cmp.Or(o.Scale, 10)
	return o
}

// share is how much of n, which is for 30 minutes, this run has.
func (o Options) share(n int) int {
	return int(math.Round(float64(n) * float64(o.Length) / float64(fullLength)))
}

// scaled is how long d takes here.
func (o Options) scaled(d time.Duration) time.Duration { return time.Duration(float64(d) / o.Scale) }

func (o Options) random(stream uint64) *dice {
	return &dice{rand.New(rand.NewPCG(o.Seed, stream))}
}

// dice draws.
type dice struct{ *rand.Rand }

func (d *dice) chance(percent int) bool { return d.IntN(100) < percent }

func (d *dice) between(a, b time.Duration) time.Duration {
	return a + time.Duration(d.Float64()*float64(b-a))
}

// around draws a time whose mean is d, as those between independent events are.
func (d *dice) around(mean time.Duration) time.Duration {
	return time.Duration(d.ExpFloat64() * float64(mean))
}

// run is one run.
type run struct {
	o       Options
	journal chaos.File
	site    *site
	lines   []*line
	wrong   []string // with the server
	host    string   // a loopback address that nobody else uses: its ports stay ours while nobody listens
	begin   time.Time
}

// line is one connect with its client and the network that it has.
type line struct {
	pair   Pair
	proxy  *testkit.CutProxy
	client *client
	faults diary
	held   []holding // what the process held, in the course of time
	first  holding   // before anything was called
	last   holding   // after everything was, at rest
	calls  []*call
	wrong  []string // beside the calls
}

// Run makes the calls and judges them, and what the processes held. The error
// says what could not be set up, or that ctx ended first; what went wrong with
// calls and processes is in the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	r := &run{o: o.withDefaults(), host: fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(255), 2+rand.IntN(250))}
	r.journal = chaos.File(filepath.Join(o.Dir, "journal"))
	site, err := deploy(ctx, r.o.Server, string(r.journal), filepath.Join(o.Dir, "server.log"))
	if err != nil {
		return nil, err
	}
	r.site = site
	defer site.close()
	defer r.close()
	for i, p := range r.o.Pairs {
		if err := r.connect(ctx, i, p); err != nil {
			return nil, fmt.Errorf("soak: %s: %w", p, err)
		}
	}
	r.begin = time.Now()
	r.plan()
	r.live(ctx)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("soak: %w", context.Cause(ctx))
	}
	r.leave(ctx)
	executed, err := r.journal.All()
	if err != nil {
		return nil, err
	}
	return r.judge(executed), nil
}

// connect starts a connect and shakes hands with it.
func (r *run) connect(ctx context.Context, i int, p Pair) error {
	proxy, err := testkit.NewCutProxy(r.site.address(), testkit.CutOptions{Host: r.host, Reset: i%2 == 0})
	if err != nil {
		return err
	}
	l := &line{pair: p, proxy: proxy}
	r.lines = append(r.lines, l)
	r.site.proxies = append(r.site.proxies, proxy)
	args := []string{"connect", "--log-level", "debug"}
	for name, d := range map[string]time.Duration{
		"reconnect-wait": reconnectWait, "ping-interval": pingInterval, "ping-timeout": pingTimeout, "drain": drain,
	} {
		args = append(args, "--"+name, r.o.scaled(d).String())
	}
	args = append(args, proxy.URL(p.Place.Path))
	log := filepath.Join(r.o.Dir, fmt.Sprintf("connect-%d.log", i))
	l.client, err = start(append(r.o.Holdfast[:len(r.o.Holdfast):len(r.o.Holdfast)], args...), log, p.Version)
	if err != nil {
		return err
	}
	if err := l.client.handshake(ctx); err != nil {
		return err
	}
	l.first, err = l.client.proc.holds()
	return err
}

func (r *run) close() {
	for _, l := range r.lines {
		if l.client != nil {
			l.client.kill()
		}
		_ = l.proxy.Close()
	}
}

// answerGrace is about how long a server waits before it begins a stream. A call
// that is cut off before that has nothing to come back to: who sends it again
// executes it twice.
const answerGrace = 120 * time.Millisecond

// plan draws the calls: at any moment of the run, each order of magnitude of
// length as often as any other, and as many for each line.
func (r *run) plan() {
	d := r.o.random(1)
	n := r.o.share(fullCalls)
	for i := range n {
		l := r.lines[i%len(r.lines)]
		length := float64(shortest) * math.Pow(float64(longest)/float64(shortest), d.Float64())
		c := &call{
			nonce: fmt.Sprintf("s%d.%d", r.o.Seed, i), at: time.Duration(d.Float64() * float64(r.o.scaled(r.o.Length))),
			length: r.o.scaled(time.Duration(length)), pad: d.IntN(3000),
		}
		if d.chance(60) {
			c.steps = 1 + d.IntN(20)
		}
		if d.chance(15) {
			c.cut = d.between(time.Millisecond, min(c.length, answerGrace))
		}
		l.calls = append(l.calls, c)
	}
}

// live is the run itself: the calls, and all that happens to them.
func (r *run) live(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var world, traffic sync.WaitGroup
	over, end := context.WithCancel(ctx)
	world.Go(func() { r.redeploy(over) }) // these end with over
	for i, l := range r.lines {
		world.Go(func() { r.weather(over, l, uint64(100+i)) })
		world.Go(func() { r.watch(over, l) })
	}
	for _, l := range r.lines {
		for _, c := range l.calls {
			traffic.Go(func() { // ends with the call, which has a limit
				if !pause(ctx, time.Until(r.begin.Add(c.at))) {
					return
				}
				if c.cut > 0 {
					stop := time.AfterFunc(c.cut, l.cut)
					defer stop.Stop()
				}
				l.client.do(ctx, c, r.o.limit(c))
			})
		}
	}
	traffic.Wait()
	end()
	world.Wait()
}

// limit is how long a call may take at most: as long as it waits to be taken, as
// it runs, and as its stream may be away, and what a busy machine needs.
func (o Options) limit(c *call) time.Duration {
	return c.length + o.scaled(3*reconnectWait) + 15*time.Second
}

// watch notes what the process of a line holds.
func (r *run) watch(ctx context.Context, l *line) {
	for pause(ctx, max(50*time.Millisecond, r.o.scaled(r.o.Length)/150)) {
		h, err := l.client.proc.holds()
		if err != nil {
			l.client.fail("%v", err)
			return
		}
		l.held = append(l.held, h)
	}
}

// restTime is how long a process may take to let go of what it needs no more.
const restTime = 10 * time.Second

// leave looks at what the connects hold at rest, and ends them as their clients
// would, by the end of stdin.
func (r *run) leave(ctx context.Context) {
	for _, l := range r.lines {
		l.proxy.CutAll() // so that no connection waits for another call
	}
	for _, l := range r.lines {
		var err error
		for limit := time.Now().Add(restTime); ; pause(ctx, 50*time.Millisecond) {
			l.last, err = l.client.proc.holds()
			if err != nil || l.last.files <= l.first.files || time.Now().After(limit) {
				break
			}
		}
		if err != nil {
			l.client.fail("%v", err)
		}
		l.wrong = l.client.leave(r.o.scaled(drain) + 10*time.Second)
	}
}

// pause waits, and reports false if ctx ended before the time was over.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(max(0, d))
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
