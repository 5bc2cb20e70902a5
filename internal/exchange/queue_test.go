package exchange

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/conversation"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// roll is the calls of a tool that works for a second, in the order in which
// they came to run.
type roll struct {
	mu    sync.Mutex // guards the fields below
	names []string
	at    []time.Time
}

func (r *roll) tools() map[string]func(*testkit.ToolCall) {
	return map[string]func(*testkit.ToolCall){"enrol": func(c *testkit.ToolCall) {
		r.mu.Lock()
		r.names, r.at = append(r.names, string(jsonrpc.Get([]byte(c.Args), "name"))), append(r.at, time.Now())
		r.mu.Unlock()
		if c.Pause(time.Second) {
			c.Text("done")
		}
	}}
}

func (r *roll) read() ([]string, []time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.names), slices.Clone(r.at)
}

func (s *stage) enrol(w who, name string) *reply {
	s.t.Helper()
	r := s.call(w, `"`+name+`"`, "enrol", fmt.Sprintf(`{"name":%q}`, name), "")
	synctest.Wait() // it is in the queue before the next
	return r
}

// TestQueueIsInOrder: whoever waits longest is next, whichever client it is of
// and whether or not it wants a conversation to itself; and nothing is lost
// between two calls.
func TestQueueIsInOrder(t *testing.T) {
	var seen roll
	on(t, troupe{Troupe: actors(seen.tools()), max: 1}, func(t *testing.T, s *stage) {
		began := time.Now()
		var calls []*reply
		var want []string
		for i := range 12 {
			w := who{principal: "p", name: fmt.Sprint("client ", i*5%4)}
			if i%3 > 0 {
				w.capabilities = `{"roots":{}}` // it can be asked
			}
			want = append(want, fmt.Sprint(i))
			calls = append(calls, s.enrol(w, want[i]))
		}
		for _, r := range calls {
			s.done(r)
		}
		got, at := seen.read()
		for i := range want {
			want[i] = `"` + want[i] + `"`
		}
		if !slices.Equal(got, want) {
			t.Errorf("ran in the order %v", got)
		}
		for i, when := range at {
			if d := when.Sub(began) - time.Duration(i)*time.Second; d > 10*time.Millisecond {
				t.Errorf("call %d ran %v after its time", i, d)
			}
		}
	})
}

// TestQueueHearsOfEveryPlace: another client's conversation that is given back,
// a subscription that no longer needs one, and a process of somebody else.
func TestQueueHearsOfEveryPlace(t *testing.T) {
	var seen roll
	on(t, troupe{Troupe: actors(seen.tools()), max: 1}, func(t *testing.T, s *stage) {
		bob := who{principal: "bob"}
		at := func(what string, free func()) {
			t.Helper()
			r := s.enrol(bob, what)
			if names, _ := seen.read(); slices.Contains(names, `"`+what+`"`) {
				t.Fatalf("%s: the call runs already", what)
			}
			time.Sleep(10*time.Second + 300*time.Millisecond)
			free()
			synctest.Wait()
			if names, _ := seen.read(); !slices.Contains(names, `"`+what+`"`) {
				t.Errorf("%s: the call does not run at once", what)
			}
			s.done(r)
			time.Sleep(time.Minute)
			s.host.Evict()
		}
		s.where(ann) // it is known what the server speaks
		time.Sleep(time.Second)
		s.host.Evict()
		conv, err := s.pool.Take()
		if err != nil {
			t.Fatal(err)
		}
		at("of a session", func() { conv.Close(errOver) })

		held := s.call(ann, "1", "sleep", `{"ms":3600000}`, "")
		synctest.Wait()
		at("cancelled", func() { held.stop() })

		listen := s.send(ann, ann.request("2", "subscriptions/listen", `"notifications":{"toolsListChanged":true}`))
		synctest.Wait()
		at("a subscription's", func() { listen.stop() })

		s.call(ann, "3", "sleep", `{"ms":3600000}`, "")
		synctest.Wait()
		at("of a process that died", func() { s.troupe.Latest().Die(errOver) })
	})
}

// TestQueueLetsPass who takes nothing from anybody: a call that may share a
// conversation on which another one runs.
func TestQueueLetsPass(t *testing.T) {
	var seen roll
	on(t, troupe{Troupe: actors(seen.tools()), max: 1}, func(t *testing.T, s *stage) {
		long := s.call(ann, "1", "sleep", `{"ms":60000}`, "")
		synctest.Wait()
		waits := s.enrol(who{principal: "bob"}, "bob's")
		began := time.Now()
		s.ask(ann, "2", "tools/list", "")
		if d := time.Since(began); d > 100*time.Millisecond {
			t.Errorf("tools/list waited %v", d)
		}
		s.done(long)
		s.done(waits)
	})
}

// TestQueueForgetsWhoGivesUp at once: it neither counts nor gets a turn.
func TestQueueForgetsWhoGivesUp(t *testing.T) {
	var seen roll
	on(t, troupe{Troupe: actors(seen.tools()), max: 1, waiting: 2}, func(t *testing.T, s *stage) {
		first := s.enrol(who{principal: "a"}, "first")
		second := s.enrol(who{principal: "b"}, "second")
		s.enrol(who{principal: "c"}, "third")
		wantError(t, "too many", s.enrol(who{principal: "d"}, "fourth").answer(), "-32603", "--max-children")
		second.stop()
		last := s.enrol(who{principal: "e"}, "last")
		s.done(first)
		s.done(last)
		if got, _ := seen.read(); !slices.Equal(got, []string{`"first"`, `"third"`, `"last"`}) {
			t.Errorf("ran %v", got)
		}
	})
}

// TestQueueUnderLoad: many clients over few places, in real disorder; each call
// is answered, and no more servers run than may.
func TestQueueUnderLoad(t *testing.T) {
	const places, calls = 3, 300
	on(t, troupe{Troupe: actors(nil), max: places}, func(t *testing.T, s *stage) {
		var wg sync.WaitGroup
		for i := range calls {
			wg.Go(func() {
				w := who{principal: fmt.Sprint("p", i%17)}
				if i%2 == 0 {
					w.capabilities = `{"elicitation":{}}`
				}
				r := s.call(w, fmt.Sprint(i), "sleep", fmt.Sprintf(`{"ms":%d}`, i%50), "")
				if i%7 == 0 {
					time.Sleep(time.Duration(i) * time.Millisecond)
					if r.answer() == "" {
						r.stop()
						return
					}
				}
				for limit := time.Now().Add(time.Hour); r.answer() == "" && time.Now().Before(limit); {
					time.Sleep(time.Second)
				}
				if got := r.answer(); text(t, got) != "slept" {
					t.Errorf("call %d: %s", i, got)
				}
			})
		}
		wg.Wait()
		if n := s.pool.Live(); n > places {
			t.Errorf("%d servers run", n)
		}
	})
}

// line puts a call into the queue whose turns the test takes itself.
func (s *stage) line(name string) *waiter {
	s.t.Helper()
	m, err := jsonrpc.Parse([]byte(who{name: name}.request("1", "tools/list", "")))
	if err != nil {
		s.t.Fatal(err)
	}
	a, fail := parse(Request{Message: m})
	if fail != nil {
		s.t.Fatal(fail)
	}
	g, err := s.host.group(a)
	if err != nil {
		s.t.Fatal(err)
	}
	s.host.leave(g)
	w := &waiter{g: g, turn: make(chan turn, 1)}
	if err := s.host.queue.join(w); err != nil {
		s.t.Fatal(err)
	}
	return w
}

// told takes the turn of such a call, and holds what it is.
func (s *stage) told(what string, w *waiter, opens, victim bool) (got turn) {
	s.t.Helper()
	synctest.Wait()
	select {
	case got = <-w.turn:
		if !opens || (got.victim != nil) != victim || got.lane != nil || got.err != nil {
			s.t.Errorf("%s: told %+v", what, got)
		}
	default:
		if opens {
			s.t.Errorf("%s: told nothing", what)
		}
	}
	return got
}

// TestQueueWhenAPlaceIsTaken by a session between the look and the start: who
// waited longest goes on waiting first, is given the place of an idle client
// once, and is not outrun by who comes later.
func TestQueueWhenAPlaceIsTaken(t *testing.T) {
	on(t, troupe{Troupe: actors(nil), max: 2}, func(t *testing.T, s *stage) {
		s.where(ann) // she has an idle conversation
		time.Sleep(time.Second)
		q := &s.host.queue
		first, second := s.line("first"), s.line("second")
		s.told("first", first, true, false)
		s.told("second, while the last place may go to the first", second, false, false)
		thief, err := s.pool.Take()
		if err != nil {
			t.Fatal(err)
		}
		if !q.opened(first, false, conversation.ErrFull) {
			t.Error("the first does not wait")
		}
		victim := s.told("first, with the place of another client", first, true, true).victim
		s.told("second", second, false, false)
		victim.conv.Leave(victim, "its place is needed")
		other, err := s.pool.Take()
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		q.opened(first, true, conversation.ErrFull)
		s.told("first, with all places taken", first, false, false)
		other.Close(errOver)
		s.told("first, at last", first, true, false)
		thief.Close(errOver)
		s.told("second, while the first opens", second, false, false)
		conv, err := s.pool.Take()
		if q.opened(first, false, err) {
			t.Error("the first waits though it has its server")
		}
		if _, err := first.g.open(conv, nil, err); err != nil {
			t.Error(err)
		}
		s.told("second, then", second, true, false)
		conv, err = s.pool.Take()
		q.opened(second, false, err)
		if _, err := second.g.open(conv, nil, err); err != nil {
			t.Error(err)
		}
	})
}
