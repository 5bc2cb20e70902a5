//go:build linux

package soak_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/internal/chaos"
	"github.com/holdfast-mcp/holdfast/internal/cli"
	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/soak"
)

// What make soak changes.
var (
	length = flag.Duration("soak.length", 2*time.Minute, "of TestSoak, before it is scaled; 30 minutes have 2,000 calls and ten redeployments")
	scale  = flag.Float64("soak.scale", 10, "everything in TestSoak takes this much less")
	seed   = flag.Uint64("soak.seed", 1, "seed of TestSoak")
)

// TestMain lets the test's own binary be holdfast, and the server.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "connect":
		os.Exit(cli.Main(os.Args))
	case len(os.Args) == 5 && os.Args[1] == "soak-server":
		if err := serve(os.Args[2], os.Args[3], os.Args[4]); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestSoak: five connects, each between another two revisions, over networks
// that fail, before a server that is killed or told to end, and started again.
// No call is executed twice, each ends, with its answer or with an error that
// says what became of it, and the processes hold in the end what they held in
// the middle.
func TestSoak(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	streamable, events := soak.Place{Name: "sessions", Path: "/handshake/mcp"}, soak.Place{Name: "HTTP+SSE", Path: "/handshake/sse"}
	stateless := soak.Place{Name: "stateless", Path: "/stateless/mcp"}
	rep, err := soak.Run(t.Context(), soak.Options{
		Holdfast: []string{self},
		Server:   []string{self, "soak-server", fmt.Sprint(*scale)},
		Pairs: []soak.Pair{
			{Version: era.V20251125, Place: streamable}, {Version: era.V20250618, Place: events}, {Version: era.V20260728, Place: stateless},
			{Version: era.V20260728, Place: streamable}, {Version: era.V20251125, Place: stateless},
		},
		Dir: t.TempDir(), Length: *length, Scale: *scale, Seed: *seed,
	})
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
	all := rep.Total
	if all.Redeploys < 2 || all.Cuts == 0 || all.Through == 0 || all.Unknown == 0 || all.Answered*2 < all.Calls {
		t.Error("the run shows nothing")
	}
}

// serve is the server: a gateway that has what the runs need at addresses where
// only one era is spoken, until SIGTERM. How long it lives is bounded, lest it is
// left behind.
func serve(scale, address, journal string) error {
	var factor float64
	if _, err := fmt.Sscan(scale, &factor); err != nil {
		return err
	}
	note, err := chaos.File(journal).Note()
	if err != nil {
		return err
	}
	child := func(name string, stateless bool) holdfast.Server {
		s := holdfast.InProcess(func(ctx context.Context, r io.ReadCloser, w io.WriteCloser) error {
			return chaos.Serve(ctx, r, w, stateless, note)
		})
		s.Name = name
		s.Tools = []holdfast.Tool{{Name: chaos.ToolWork, Adopt: holdfast.AdoptNever}} // a call that is sent twice is to be executed twice
		return s
	}
	scaled := func(d time.Duration) time.Duration { return time.Duration(float64(d) / factor) }
	g, err := holdfast.New(holdfast.Options{
		Servers: []holdfast.Server{child("handshake", false), child("stateless", true)},
		Timers: holdfast.Timers{Heartbeat: scaled(15 * time.Second), PingInterval: scaled(30 * time.Second), PingTimeout: scaled(20 * time.Second),
			ReconnectGrace: scaled(2 * time.Minute), OrphanGrace: scaled(2 * time.Minute), Drain: scaled(10 * time.Second)},
	})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	if err := g.Start(ctx); err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { door(g, w, r) }), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- web.Serve(l) }() // ends with web
	fmt.Printf("listening on http://%s\n", l.Addr())
	<-ctx.Done()
	err = g.Stop(context.Background())
	_ = web.Close()
	<-served
	return err
}

// door refuses what a server of one era would, as such servers do.
func door(g http.Handler, w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil {
			return
		}
		marked := bytes.Contains(body, []byte(era.MetaVersion))
		switch stateless := strings.HasPrefix(r.URL.Path, "/stateless/"); {
		case stateless && !marked:
			refuse(w, -32602, "params._meta names no version")
			return
		case !stateless && marked:
			refuse(w, -32000, "Bad Request: Server not initialized")
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	g.ServeHTTP(w, r)
}

func refuse(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":%q}}`, code, text)
}
