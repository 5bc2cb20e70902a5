package exchange

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/testkit"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// asking is a client that answers every kind of question.
func asking(name string) who {
	return who{principal: "p", name: name, capabilities: `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}`}
}

// where asks which server a call comes to: its number, and how often that was
// asked there.
func (s *stage) where(w who) string {
	s.t.Helper()
	return text(s.t, s.done(s.call(w, "1", "where", `{}`, "")))
}

// TestLanesAreFoundAgain: the same client comes to the same conversation, so
// that a server which keeps state keeps it; any other client does not.
func TestLanesAreFoundAgain(t *testing.T) {
	on(t, troupe{Troupe: actors(nil)}, func(t *testing.T, s *stage) {
		ada := who{principal: "p", name: "ada"}
		others := map[string]who{
			"another principal":    {principal: "q", name: "ada"},
			"another name":         {principal: "p", name: "bob"},
			"another capability":   {principal: "p", name: "ada", capabilities: `{"roots":{}}`},
			"the parts' other cut": {principal: "p" + "", name: "", capabilities: `{}`},
		}
		home := s.where(ada)
		seen := map[string]string{strings.Split(home, ":")[0]: "ada"}
		for what, w := range others {
			got := strings.Split(s.where(w), ":")
			if seen[got[0]] != "" || got[1] != "1" {
				t.Errorf("%s came to %v, where %q had been", what, got, seen[got[0]])
			}
			seen[got[0]] = what
		}
		for i := 2; i < 5; i++ {
			s.ask(ada, "9", "tools/list", "")
			if got := s.where(ada); got != strings.Replace(home, ":1", fmt.Sprintf(":%d", i), 1) {
				t.Errorf("then %s came to %s", home, got)
			}
		}
		if n := len(s.troupe.Told(`"initialize"`)); n != len(seen) {
			t.Errorf("%d handshakes for %d clients", n, len(seen))
		}
	})
}

// TestLanesAreExclusive while a call may be asked something: another such call
// gets a conversation of its own, and all that cannot be asked shares.
func TestLanesAreExclusive(t *testing.T) {
	on(t, troupe{Troupe: actors(nil)}, func(t *testing.T, s *stage) {
		w := asking("ada")
		var calls []*reply
		for i := range 3 {
			calls = append(calls, s.call(w, fmt.Sprint(i), "sleep", `{"ms":5000}`, ""))
			s.within(time.Second, "the call", func() bool { return len(s.troupe.Told(`"sleep"`)) == i+1 })
		}
		busy := map[int]bool{}
		for _, a := range s.troupe.Actors() {
			if n := len(a.Told(`"sleep"`)); n > 1 {
				t.Errorf("server %d runs %d calls that may ask", a.Number, n)
			} else if n == 1 {
				busy[a.Number] = true
			}
		}
		began := time.Now()
		s.ask(w, "9", "tools/list", "")
		if d := time.Since(began); d > 100*time.Millisecond || len(s.troupe.Told("tools/list")) != 1 {
			t.Errorf("tools/list waited %v", d)
		}
		for _, r := range calls {
			s.done(r)
		}
		if n := len(s.troupe.Told(`"initialize"`)); n != 3 {
			t.Errorf("%d handshakes", n)
		}
		// A client that cannot be asked has no such need.
		quiet := who{principal: "p", name: "quiet"}
		for i := range 3 {
			calls = append(calls, s.call(quiet, fmt.Sprint(i), "sleep", `{"ms":5000}`, ""))
		}
		s.within(time.Second, "three calls", func() bool { return len(s.troupe.Told(`"sleep"`)) == 6 })
		if n := len(s.troupe.Told(`"initialize"`)); n != 4 {
			t.Errorf("%d handshakes", n)
		}
		for _, r := range calls[3:] {
			s.done(r)
		}
	})
}

// TestLanesWait: where no further server may run, calls wait for their turn, as
// many as may.
func TestLanesWait(t *testing.T) {
	on(t, troupe{Troupe: actors(nil), max: 2, waiting: 3}, func(t *testing.T, s *stage) {
		w := asking("ada")
		var calls []*reply
		for i := range 6 {
			calls = append(calls, s.call(w, fmt.Sprint(i), "sleep", `{"ms":10000}`, ""))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		wantError(t, "one too many", calls[5].answer(), "-32603", "--max-children", `"outcome":"not_executed"`)
		if n := len(s.troupe.Told(`"sleep"`)); n != 2 {
			t.Errorf("%d calls run", n)
		}
		for _, r := range calls[:5] {
			if got := text(t, s.done(r)); got != "slept" {
				t.Errorf("answered %s", got)
			}
		}
		if n := len(s.troupe.Actors()); n > 2 {
			t.Errorf("%d servers were started", n)
		}
	})
}

// TestLanesOfOthersAreGivenUp: an idle conversation of another client makes
// room, a used one does not.
func TestLanesOfOthersAreGivenUp(t *testing.T) {
	on(t, troupe{Troupe: actors(nil), max: 2}, func(t *testing.T, s *stage) {
		names := []who{{principal: "a"}, {principal: "b"}, {principal: "c"}}
		held := s.call(names[0], "1", "sleep", `{"ms":60000}`, "")
		s.where(names[1])
		began := time.Now()
		s.where(names[2])
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("the third client waited %v for the place of the second", d)
		}
		if got := text(t, s.done(held)); got != "slept" {
			t.Errorf("the call that was running was answered %s", got)
		}
		if s.pool.Live() > 2 {
			t.Errorf("%d servers run", s.pool.Live())
		}
	})
}

// TestLanesAreReaped once nobody has used them for the idle time, but for the
// one that a subscription needs.
func TestLanesAreReaped(t *testing.T) {
	on(t, troupe{Troupe: actors(nil), idle: time.Hour}, func(t *testing.T, s *stage) {
		w, sub := asking("ada"), who{principal: "sub"}
		s.where(w)
		listen := s.send(sub, sub.request(`"s"`, "subscriptions/listen", `"notifications":{"toolsListChanged":true}`))
		long := s.call(who{principal: "long"}, "1", "sleep", `{"ms":18000000}`, "") // 5 h
		s.within(time.Second, "three conversations", func() bool { return len(s.troupe.Told(`"initialize"`)) == 3 })
		sweep := func(after time.Duration) int {
			time.Sleep(after)
			s.host.Sweep(time.Now())
			synctest.Wait()
			return s.pool.Live()
		}
		before := s.pool.Live()
		if n := sweep(59 * time.Minute); n != before {
			t.Errorf("after 59 minutes there are %d of %d", n, before)
		}
		if n := sweep(2 * time.Minute); n != before-1 {
			t.Errorf("after an hour there are %d of %d", n, before)
		}
		s.where(w)
		s.done(long)
		listen.stop()
		if n := sweep(3 * time.Hour); n != before-3 {
			t.Errorf("in the end there are %d of %d", n, before)
		}
		s.host.mu.Lock()
		defer s.host.mu.Unlock()
		if n := len(s.host.groups); n != 0 {
			t.Errorf("%d clients are remembered", n)
		}
	})
}

// TestLanesOfAWaitingClientStay: a sweep does not forget the client whose first
// call is still waiting for a place, or its conversation would never be reaped.
func TestLanesOfAWaitingClientStay(t *testing.T) {
	on(t, troupe{Troupe: actors(nil), max: 1}, func(t *testing.T, s *stage) {
		first := s.call(who{principal: "a"}, "1", "sleep", `{"ms":60000}`, "")
		s.within(time.Second, "the first", func() bool { return len(s.troupe.Told(`"sleep"`)) == 1 })
		second := s.call(who{principal: "b"}, "1", "where", `{}`, "")
		time.Sleep(10 * time.Second)
		s.host.Sweep(time.Now())
		s.done(first)
		s.done(second)
		time.Sleep(2 * time.Hour)
		s.host.Sweep(time.Now())
		synctest.Wait()
		if n := s.pool.Live(); n != 0 {
			t.Errorf("%d servers run", n)
		}
	})
}

// TestLanesThatDoNotOpen: the caller hears why, and the next one tries again.
func TestLanesThatDoNotOpen(t *testing.T) {
	refuse := true
	tr := actors(nil)
	tr.On = map[string]func(*testkit.Actor, *jsonrpc.Message){"initialize": func(a *testkit.Actor, m *jsonrpc.Message) {
		if refuse {
			a.Refuse(string(m.Raw(jsonrpc.ID)), -32099, "not today")
			return
		}
		a.Reply(string(m.Raw(jsonrpc.ID)), `{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`)
	}}
	on(t, troupe{Troupe: tr, max: 2}, func(t *testing.T, s *stage) {
		for range 5 {
			wantError(t, "refused", s.done(s.call(ann, "1", "where", `{}`, "")), "-32603", "not today", `"outcome":"not_executed"`)
		}
		refuse = false
		s.where(ann)
	})
}

// TestLanesWhenAllIsClosed: who waits is told, and nothing is left behind.
func TestLanesWhenAllIsClosed(t *testing.T) {
	on(t, troupe{Troupe: actors(nil), max: 1}, func(t *testing.T, s *stage) {
		w := asking("ada")
		running := s.call(w, "1", "sleep", `{"ms":600000}`, "")
		s.within(time.Second, "the first", func() bool { return len(s.troupe.Told(`"sleep"`)) == 1 })
		waiting := s.call(w, "2", "echo", `{}`, "")
		time.Sleep(time.Second)
		s.host.Close(errOver)
		time.Sleep(2 * time.Second)
		wantError(t, "running", running.answer(), "-32603", `"outcome":"unknown"`)
		wantError(t, "waiting", waiting.answer(), "-32603", `"outcome":"not_executed"`)
		wantError(t, "too late", s.done(s.call(w, "3", "echo", `{}`, "")), "-32603", `"outcome":"not_executed"`)
	})
}

// TestLanesOfASharedServer: all clients come to the one conversation.
func TestLanesOfASharedServer(t *testing.T) {
	on(t, troupe{Troupe: actors(nil), shared: true, max: 1}, func(t *testing.T, s *stage) {
		if err := s.pool.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, w := range []who{ann, asking("ada"), asking("bob")} {
			if got := s.where(w); got != fmt.Sprintf("0:%d", i+1) {
				t.Errorf("%s came to %s", w.name, got)
			}
		}
	})
}
