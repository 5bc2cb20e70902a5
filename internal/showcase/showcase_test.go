package showcase

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/era"
)

// record runs a showcase and returns what it told.
func record(ctx context.Context, o Options) (Result, []Event, error) {
	var mu sync.Mutex
	var events []Event
	o.Report = func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	}
	result, err := Run(ctx, o)
	return result, events, err
}

// of counts the events of a kind.
func of(events []Event, holdfast bool, kind Kind) int {
	n := 0
	for _, e := range events {
		if e.Holdfast == holdfast && e.Kind == kind {
			n++
		}
	}
	return n
}

// The call comes through once in every era, and not at all without Holdfast.
func TestRun(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, v := range []era.Version{era.V20241105, era.V20250326, era.V20250618, era.V20251125, era.V20260728} {
		t.Run(string(v), func(t *testing.T) {
			t.Parallel()
			r, events, err := record(t.Context(), Options{Era: v, Length: 2 * time.Second, Cut: 300 * time.Millisecond, Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			if r.Era != v || r.Holdfast.Answers != 1 || r.Holdfast.Executions != 1 || r.Holdfast.Cuts < 3 {
				t.Errorf("with Holdfast %+v", r.Holdfast)
			}
			if r.Without.Answers != 0 || r.Without.Executions < maxBegun || r.Without.Cuts < maxBegun {
				t.Errorf("without %+v", r.Without)
			}
			back := Resumed
			if v.Modern() {
				back = Joined
			}
			if n := of(events, true, back); n < 3 {
				t.Errorf("came back %d times", n)
			}
			if of(events, true, Answered) != 1 || of(events, true, Began) != 1 || of(events, true, GaveUp) != 0 ||
				of(events, false, Answered) != 0 || of(events, false, Began) != maxBegun || of(events, false, GaveUp) != 1 ||
				of(events, false, Resumed)+of(events, false, Joined) != 0 {
				t.Errorf("told %+v", events)
			}
			checkProgress(t, events)
		})
	}
}

// checkProgress holds that no execution's progress goes back.
func checkProgress(t *testing.T, events []Event) {
	t.Helper()
	last := map[bool]Event{}
	for _, e := range events {
		before := last[e.Holdfast]
		if e.Execution < before.Execution || e.Execution == before.Execution && e.Done < before.Done || e.At < before.At {
			t.Errorf("after %+v came %+v", before, e)
		}
		last[e.Holdfast] = e
	}
	if e := last[true]; e.Done != steps || e.Total != steps {
		t.Errorf("the last was %+v", e)
	}
}

// Without cuts the relay is as good: nothing is staged.
func TestRunUncut(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, v := range []era.Version{era.V20241105, era.V20251125, era.V20260728} {
		t.Run(string(v), func(t *testing.T) {
			t.Parallel()
			r, _, err := record(t.Context(), Options{Era: v, Length: 200 * time.Millisecond, Cut: time.Hour})
			want := Outcome{Answers: 1, Executions: 1}
			for _, o := range []Outcome{r.Holdfast, r.Without} {
				if o.Took = 0; err != nil || o != want {
					t.Errorf("%v, %+v", err, o)
				}
			}
		})
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	var once sync.Once
	begin := time.Now()
	r, err := Run(ctx, Options{Era: era.V20251125, Length: time.Hour, Cut: 50 * time.Millisecond, Report: func(e Event) {
		if e.Holdfast && e.Kind == Resumed {
			once.Do(func() { cancel(why) })
		}
	}})
	if !errors.Is(err, why) || r.Holdfast.Answers != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if d := time.Since(begin); d > 10*time.Second {
		t.Errorf("it took %s to end", d)
	}
}

// echo serves connections that give back what they get.
func echo(t *testing.T) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() { _ = listener.Close(); running.Wait() })
	return listener.Addr().String()
}

// cutTimes returns when each of some connections through a link, one after the
// other, was cut.
func cutTimes(t *testing.T, every time.Duration, n int) []time.Duration {
	t.Helper()
	l, err := newLink(echo(t), every, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	var all []time.Duration
	begin := time.Now()
	for i := range n {
		conn, err := net.Dial("tcp", l.addr())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := fmt.Fprintf(conn, "%d", i); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		if l.count() != i {
			t.Errorf("%d cuts before cut %d", l.count(), i+1)
		}
		if i == 0 {
			begin = time.Now()
			l.arm()
			l.arm()
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("something was read that nobody wrote")
		}
		all = append(all, time.Since(begin))
		_ = conn.Close()
	}
	if l.count() != n {
		t.Errorf("%d cuts, want %d", l.count(), n)
	}
	return all
}

func TestLink(t *testing.T) {
	const every = 300 * time.Millisecond
	for i, at := range cutTimes(t, every, 3) {
		// Not before its time; how long after depends on the machine.
		if least := time.Duration(i+1)*every - every/10; at < least {
			t.Errorf("cut %d came after %s, want %s", i+1, at, least)
		}
	}
}

// The same seed makes the same cuts.
func TestLinkSeed(t *testing.T) {
	plan := func(seed uint64) []float64 {
		l, err := newLink("127.0.0.1:1", time.Hour, seed)
		if err != nil {
			t.Fatal(err)
		}
		defer l.close()
		var all []float64
		for range 8 {
			all = append(all, l.random.Float64())
		}
		return all
	}
	if !slices.Equal(plan(1), plan(1)) || slices.Equal(plan(1), plan(2)) {
		t.Error("the seed does not decide")
	}
}
