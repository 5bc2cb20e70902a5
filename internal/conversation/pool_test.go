package conversation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/stdio"
)

// pool is one with a farm behind it.
func pool(t *testing.T, o PoolOptions) (*Pool, *farm) {
	t.Helper()
	f := &farm{t: t}
	o.Dial, o.Name, o.StartTimeout, o.MaxMessage = f.dial, "kid", time.Minute, 1000
	o.ClientInfo, o.Log = []byte(`{}`), slog.New(slog.DiscardHandler)
	return NewPool(o), f
}

func start(t *testing.T, p *Pool) {
	t.Helper()
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func take(t *testing.T, p *Pool) *Conversation {
	t.Helper()
	c, err := p.Take()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait() // a spare one is started in the background
	return c
}

func TestPoolKeepsSpares(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, f := pool(t, PoolOptions{Max: 5, Warm: 2})
		start(t, p)
		if f.started() != 2 {
			t.Errorf("%d servers before the first session, want the 2 spare ones", f.started())
		}
		first := f.all[0]
		one := take(t, p)
		if f.started() != 3 || p.Live() != 3 {
			t.Errorf("%d started, %d live", f.started(), p.Live())
		}
		two := take(t, p)
		if one == two {
			t.Error("two sessions share a server")
		}
		if one.link != Link(first) {
			t.Error("the oldest spare server is not the first to be taken")
		}
		for range 3 {
			take(t, p)
		}
		if _, err := p.Take(); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "--max-children") {
			t.Errorf("a sixth: %v", err)
		}
		if f.started() != 5 || !errors.Is(p.Check(), ErrFull) {
			t.Errorf("%d started, Check %v", f.started(), p.Check())
		}
		one.Close(errors.New("x"))
		synctest.Wait()
		if p.Live() != 5 || p.Check() != nil { // a spare one took the place
			t.Errorf("%d live, Check %v", p.Live(), p.Check())
		}
		take(t, p)
		p.Close(ErrClosed)
		if p.Live() != 0 {
			t.Errorf("%d live after Close", p.Live())
		}
		for i, s := range f.all {
			if s.mu.Lock(); s.stopped == 0 {
				t.Errorf("server %d was not stopped", i)
			}
			s.mu.Unlock()
		}
		if _, err := p.Take(); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		if !errors.Is(p.Check(), ErrClosed) {
			t.Errorf("Check after Close: %v", p.Check())
		}
	})
}

// TestPoolWaitsForASpareThatTakesTheLastPlace: the place of a server that has
// ended goes to a spare one at once, which whoever comes meanwhile is to get, or to
// hear why there is none.
func TestPoolWaitsForASpareThatTakesTheLastPlace(t *testing.T) {
	for name, broken := range map[string]error{"it starts": nil, "it does not": errors.New("broken")} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p, f := pool(t, PoolOptions{Max: 1, Warm: 1})
				start(t, p)
				one := take(t, p)
				gate := make(chan struct{})
				p.opts.Dial = func(h stdio.Handler) (Link, error) {
					if <-gate; broken != nil {
						return nil, broken
					}
					return f.dial(h)
				}
				one.Close(errors.New("x"))
				synctest.Wait()
				got := make(chan error, 1)
				go func() { _, err := p.Take(); got <- err }() // ends with the gate
				synctest.Wait()
				select {
				case err := <-got:
					t.Errorf("not waited for: %v", err)
				default:
				}
				close(gate)
				if err := <-got; !errors.Is(err, broken) {
					t.Errorf("%v, want %v", err, broken)
				}
				if _, err := p.Take(); broken == nil && !errors.Is(err, ErrFull) {
					t.Errorf("nothing is coming: %v", err)
				}
				p.Close(ErrClosed)
			})
		})
	}
}

func TestPoolWithoutSpares(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, f := pool(t, PoolOptions{Max: 1, Warm: 0})
		start(t, p)
		if f.started() != 0 || p.Check() != nil {
			t.Errorf("%d started, Check %v", f.started(), p.Check())
		}
		take(t, p).Close(errors.New("x"))
		synctest.Wait()
		take(t, p)
		if f.started() != 2 {
			t.Errorf("%d started", f.started())
		}
		p.Close(ErrClosed)
	})
}

// TestPoolStart: a command that is wrong shows before the gateway is ready.
func TestPoolStart(t *testing.T) {
	t.Run("cannot be started", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			p, f := pool(t, PoolOptions{Max: 5, Warm: 1})
			f.fail = stdio.ErrStart
			if err := p.Start(t.Context()); !errors.Is(err, stdio.ErrStart) {
				t.Errorf("got %v", err)
			}
			p.Close(ErrClosed)
		})
	})
	t.Run("ends at once", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			p, f := pool(t, PoolOptions{Max: 5, Warm: 1})
			time.AfterFunc(100*time.Millisecond, func() { f.latest().die(&stdio.ExitError{Code: 1, Stderr: "usage"}) })
			exit, ok := errors.AsType[*stdio.ExitError](p.Start(t.Context()))
			if !ok || exit.Stderr != "usage" {
				t.Errorf("got %v", exit)
			}
			p.Close(ErrClosed)
		})
	})
	t.Run("ends a moment later", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			p, f := pool(t, PoolOptions{Max: 5, Warm: 1})
			start(t, p)
			time.Sleep(10 * time.Second)
			f.all[0].die(&stdio.ExitError{Code: 1, Stderr: "usage"})
			synctest.Wait()
			select {
			case err := <-p.Fatal():
				if exit, ok := errors.AsType[*stdio.ExitError](err); !ok || exit.Stderr != "usage" {
					t.Errorf("got %v", err)
				}
			default:
				t.Error("nobody is told")
			}
			p.Close(ErrClosed)
		})
	})
	t.Run("interrupted", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			p, _ := pool(t, PoolOptions{Max: 5, Warm: 1})
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := p.Start(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			p.Close(ErrClosed)
		})
	})
}

// TestPoolGivesUpOnFrailSpares: a server that does not like to wait is started
// when it is needed, not over and over.
func TestPoolGivesUpOnFrailSpares(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, f := pool(t, PoolOptions{Max: 5, Warm: 1})
		start(t, p)
		take(t, p)
		for range 10 {
			time.Sleep(30 * time.Second)
			f.latest().die(&stdio.ExitError{Code: 0})
			synctest.Wait()
		}
		if f.started() > 1+maxFrail {
			t.Errorf("%d servers were started for nobody", f.started())
		}
		select {
		case err := <-p.Fatal():
			t.Errorf("fatal although it served once: %v", err)
		default:
		}
		take(t, p)
		p.Close(ErrClosed)
	})
}

func TestSharedPool(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, f := pool(t, PoolOptions{Options: Options{Shared: true}, Max: 5, Warm: 1})
		begun := make(chan error, 1)
		go func() { begun <- p.Start(t.Context()) }() // ends with the handshake
		time.Sleep(10 * time.Second)
		select {
		case err := <-begun:
			t.Fatalf("started before the server answered initialize: %v", err)
		default:
		}
		f.latest().greet(serverResult)
		if err := <-begun; err != nil {
			t.Fatal(err)
		}
		one := take(t, p)
		if one != take(t, p) || f.started() != 1 || p.Check() != nil {
			t.Errorf("%d servers, Check %v", f.started(), p.Check())
		}
		one.Close(errors.New("x"))
		synctest.Wait()
		if again := take(t, p); again == one || f.started() != 2 {
			t.Errorf("after the end of the first: the same %v, %d servers", again == one, f.started())
		}
		p.Close(ErrClosed)
	})
	bubble(t, func(t *testing.T) {
		p, _ := pool(t, PoolOptions{Options: Options{Shared: true}, Max: 5})
		begin := time.Now()
		if err := p.Start(t.Context()); err == nil || !strings.Contains(fmt.Sprint(err), "initialize") || time.Since(begin) > time.Minute {
			t.Errorf("a silent server, after %v: %v", time.Since(begin), err)
		}
		p.Close(ErrClosed)
	})
}

// TestSharedPoolStartsOne: all who come while there is no server get the same.
func TestSharedPoolStartsOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, f := pool(t, PoolOptions{Options: Options{Shared: true}, Max: 5})
		f.delay = time.Second
		got := make(chan *Conversation, 20)
		for range 20 {
			go func() { // ends with Take
				c, err := p.Take()
				if err != nil {
					t.Error(err)
				}
				got <- c
			}()
		}
		first := <-got
		for range 19 {
			if <-got != first {
				t.Error("clients of a shared server were given different ones")
			}
		}
		if f.started() != 1 {
			t.Errorf("%d servers were started", f.started())
		}
		p.Close(ErrClosed)
	})
}

// TestPoolTellsOfChanges that make a server to be had: an end, and a spare one.
func TestPoolTellsOfChanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, _ := pool(t, PoolOptions{Max: 1, Warm: 1})
		bare, _ := pool(t, PoolOptions{Max: 1})
		told := func(what string, want bool, do func()) {
			t.Helper()
			changed, other := p.Changed(), bare.Changed()
			do()
			synctest.Wait()
			select {
			case <-changed:
				if !want {
					t.Errorf("%s: told of a change", what)
				}
			case <-other:
			default:
				if want {
					t.Errorf("%s: told of nothing", what)
				}
			}
		}
		var c *Conversation
		told("a spare one is there", true, func() { start(t, p) })
		told("it is taken", false, func() { c = take(t, p) })
		told("nothing is left", false, func() {
			if _, err := p.Take(); !errors.Is(err, ErrFull) {
				t.Errorf("taken beyond the maximum: %v", err)
			}
		})
		told("it has ended, and a spare one is there", true, func() { c.Close(ErrClosed) })
		c = take(t, bare)
		told("it has ended", true, func() { c.Close(ErrClosed) })
		p.Close(ErrClosed)
		bare.Close(ErrClosed)
	})
}
