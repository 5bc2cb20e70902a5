package holdfast_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/internal/chaos"
)

// What make chaos changes.
var (
	chaosCalls = flag.Int("chaos.calls", 300, "calls of TestChaos")
	chaosSeed  = flag.Uint64("chaos.seed", 1, "seed of TestChaos")
)

// chaosTimers are those of a gateway whose time is ten times as fast, and that
// asks silent clients soon.
var chaosTimers = holdfast.Timers{
	Heartbeat: 200 * time.Millisecond, AnswerGrace: 20 * time.Millisecond,
	SessionTimeout: 2 * time.Minute, ReconnectGrace: time.Minute,
	PingInterval: 150 * time.Millisecond, PingTimeout: 150 * time.Millisecond, PingMisses: 2,
	OrphanGrace: time.Minute, AdoptWindow: time.Minute, ResultTTL: 5 * time.Minute, Drain: time.Millisecond,
}

// chaosRun makes a run through a gateway that has the servers, of which the last
// one gets the healthy twins.
func chaosRun(t *testing.T, o chaos.Options, servers ...holdfast.Server) *chaos.Report {
	t.Helper()
	for i := range servers {
		s := &servers[i]
		s.MaxChildren = 1 << 20
		s.Tools = []holdfast.Tool{{Name: chaos.ToolLinger, OnDisconnect: holdfast.DisconnectLinger}}
		if i == len(servers)-1 { // a slow machine must not make healthy clients look dead
			s.Timers = holdfast.Timers{PingInterval: time.Second, PingTimeout: 20 * time.Second}
		}
	}
	g, err := holdfast.New(holdfast.Options{Servers: servers, Timers: chaosTimers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Stop(stopped()) })
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.Handler = g
	for i, e := range g.Endpoints() {
		o.Servers = append(o.Servers, chaos.Server{Path: e.Streamable, SSE: e.SSE, Calm: i == len(servers)-1})
	}
	rep, err := chaos.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range rep.Failures {
		if i == 10 {
			t.Errorf("and %d more", len(rep.Failures)-i)
			break
		}
		t.Errorf("%s", f)
	}
	t.Logf("%s", rep)
	return rep
}

// chaosInProcess is a run with servers in this process: of the handshake era, of
// both eras, shared by all, and for twins.
func chaosInProcess(t *testing.T, o chaos.Options) *chaos.Report {
	t.Helper()
	journal := &chaos.Journal{}
	o.Account = journal
	serve := func(name string, stateless bool) holdfast.Server {
		s := holdfast.InProcess(func(ctx context.Context, r io.ReadCloser, w io.WriteCloser) error {
			return chaos.Serve(ctx, r, w, stateless, journal.Note)
		})
		s.Name = name
		return s
	}
	shared := serve("shared", false)
	shared.Isolation = holdfast.Shared
	return chaosRun(t, o, serve("handshake", false), serve("both", true), shared, serve("calm", true))
}

// TestChaos: calls over all bindings, through a link that fails, by clients that
// resume, come back fresh, give a key or cancel, 64 at once. Each has one outcome
// at its client, and is executed as often as it should be.
func TestChaos(t *testing.T) {
	t.Parallel() // it mostly waits
	rep := chaosInProcess(t, chaos.Options{Calls: *chaosCalls, Seed: *chaosSeed})
	if rep.Total.Calls != *chaosCalls || rep.Total.Resumes == 0 || rep.Total.Recalls == 0 || rep.Total.Adopted == 0 {
		t.Errorf("the run shows nothing: %+v", rep.Total)
	}
	if rep.Total.Early*100 > rep.Total.Calls {
		t.Errorf("%d of %d calls were executed again because the gateway did not see in time that their clients had gone", rep.Total.Early, rep.Total.Calls)
	}
}

// TestChaosSeeds replays what has failed once.
func TestChaosSeeds(t *testing.T) {
	f, err := os.Open("testdata/chaos/seeds")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		var o chaos.Options
		if _, err := fmt.Sscan(line, &o.Seed, &o.Calls); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		t.Run(fmt.Sprintf("%d of %d", o.Seed, o.Calls), func(t *testing.T) {
			t.Parallel() // it mostly waits
			chaosInProcess(t, o)
		})
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestChaosChildren is a run with real processes.
func TestChaosChildren(t *testing.T) {
	t.Parallel() // it mostly waits
	journal := chaos.File(filepath.Join(t.TempDir(), "journal"))
	child := func(name string) holdfast.Server {
		path, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		s := holdfast.Command(path, "chaos", string(journal))
		s.Name, s.Isolation = name, holdfast.Shared
		return s
	}
	own := child("own")
	own.Isolation = holdfast.PerSession
	chaosRun(t, chaos.Options{Account: journal, Calls: 60, Clients: 12, Seed: *chaosSeed}, own, child("shared"), child("calm"))
}

// chaosChild is the body of a server of TestChaosChildren.
func chaosChild(journal string) int {
	note, err := chaos.File(journal).Note()
	if err == nil {
		err = chaos.Serve(context.Background(), os.Stdin, os.Stdout, true, note)
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
