package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/showcase"
)

const demoHelp = `Shows what Holdfast is for: one call that takes longer than its connection lives.

A client calls the tool build_report, which works for 20 seconds and reports its
progress, over a link that is cut every 3 seconds. It does so twice at the same
time: through Holdfast, and through a relay that ties a call to the connection it
came on, as the simplest bridges do. The client is the same, and knows of neither:
where it was given event ids it resumes, else it calls again, and when it has seen
the report begun three times and not finished it gives up.

Server, gateway, relay, link and client are real and run in this process, on
loopback ports of their own; nothing else is touched. At the end stands what was
counted: answers at the client, executions at the server, cuts at the link.

How a client comes back is a matter of its era:

  2024-11-05               HTTP+SSE: opens the stream again, with Last-Event-ID
  2025-03-26 … 2025-11-25  Streamable HTTP: GET with Last-Event-ID
  2026-07-28               stateless: calls again, with the same Idempotency-Key

The exit status is 0 if the call through Holdfast was executed once and answered.`

const demoExample = `  holdfast demo
  holdfast demo --era 2024-11-05
  holdfast demo --era all --length 10s --cut 1s
  holdfast demo --seed 7 --plain > demo.txt`

// eras are what the demo's client can speak, oldest first.
var eras = [...]era.Version{era.V20241105, era.V20250326, era.V20250618, era.V20251125, era.V20260728}

// The least that makes a demonstration; less would only measure the machine.
const (
	leastLength = 200 * time.Millisecond
	leastCut    = 20 * time.Millisecond
)

// demoFlags are the flags of demo.
type demoFlags struct {
	era         string
	cut, length time.Duration
	seed        uint64
	plain       bool
}

func (f *demoFlags) register(s *pflag.FlagSet) {
	s.SortFlags = false
	names := make([]string, 0, len(eras)+1)
	for _, v := range eras {
		names = append(names, string(v))
	}
	names = append(names, "all")
	s.StringVar(&f.era, "era", string(era.NewestHandshake), "the `revision` of MCP that the client speaks: "+strings.Join(names, ", ")+" (at once)")
	s.DurationVar(&f.cut, "cut", 3*time.Second, "between cuts, give or take a tenth")
	s.DurationVar(&f.length, "length", 20*time.Second, "of the call")
	s.Uint64Var(&f.seed, "seed", 1, "`number` that decides when exactly is cut, and whether with FIN or RST")
	s.BoolVar(&f.plain, "plain", false, "lines only, as where the output is no terminal or NO_COLOR is set")
}

func newDemo(std streams) *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:     "demo [flags]",
		Short:   "Show a call that outlives its connections, beside one that does not",
		Long:    demoHelp,
		Example: demoExample,
		Version: version(),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("demo takes no arguments, found %q", args[0])
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error { return f.run(std) },
	}
	set := pflag.NewFlagSet("Flags", pflag.ContinueOnError)
	f.register(set)
	cmd.Flags().AddFlagSet(set)
	cmd.SetUsageFunc(func(cmd *cobra.Command) error { return groupedUsage(cmd, []group{{"Flags", set}}) })
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	return cmd
}

// chosen returns the revisions that are asked for.
func (f *demoFlags) chosen() ([]era.Version, error) {
	if f.era == "all" {
		return eras[:], nil
	}
	for _, v := range eras {
		if f.era == string(v) {
			return []era.Version{v}, nil
		}
	}
	return nil, usage("--era: %q is not a revision of MCP, nor all", f.era)
}

func (f *demoFlags) run(std streams) error {
	chosen, err := f.chosen()
	switch {
	case err != nil:
		return err
	case f.length < leastLength:
		return usage("--length: %s is too short, give it at least %s", f.length, leastLength)
	case f.cut < leastCut:
		return usage("--cut: %s is too short, give it at least %s", f.cut, leastCut)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := newScreen(std.out, chosen, f.terminal(std))
	s.intro(f)
	results, err := f.show(ctx, chosen, s)
	if ctx.Err() != nil {
		s.interrupted()
		return exitStatus(interrupted)
	}
	if err != nil {
		return err
	}
	s.summary(results)
	for _, r := range results {
		if r.Holdfast.Answers != 1 || r.Holdfast.Executions != 1 {
			return fmt.Errorf("the call of %s did not come through once: please report this, with the lines above", r.Era)
		}
	}
	return nil
}

// interrupted is the exit status after Ctrl-C, as shells have it.
const interrupted = 130

// terminal returns what tells the width of the terminal, nil where plain lines
// are wanted.
func (f *demoFlags) terminal(std streams) func() int {
	file, ok := std.out.(*os.File)
	if !ok || f.plain || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(file.Fd())) {
		return nil
	}
	return func() int {
		width, _, err := term.GetSize(int(file.Fd()))
		if err != nil || width < 1 {
			return 80
		}
		return width
	}
}

// show runs the eras at once and draws what they report, on this goroutine
// alone. It returns when all has ended.
func (f *demoFlags) show(ctx context.Context, chosen []era.Version, s *screen) ([]showcase.Result, error) {
	events := make(chan showcase.Event, 64)
	results := make([]showcase.Result, len(chosen))
	errs := make([]error, len(chosen))
	var runs sync.WaitGroup
	for i, v := range chosen {
		runs.Go(func() { // ends with its calls, or with ctx
			results[i], errs[i] = showcase.Run(ctx, showcase.Options{
				Era: v, Length: f.length, Cut: f.cut, Seed: f.seed, Report: func(e showcase.Event) { events <- e },
			})
		})
	}
	go func() { // ends with the runs
		runs.Wait()
		close(events)
	}()
	for e := range events {
		s.event(e)
	}
	return results, errors.Join(errs...)
}
