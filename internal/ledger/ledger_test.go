package ledger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/ledger"
)

// claim is one of a principal, with its policy Auto and a grace of a minute.
func claim(principal, key string, print byte) ledger.Claim {
	return ledger.Claim{
		Principal: principal, Key: key, KeyPrincipal: principal,
		Print:  func() ledger.Print { return ledger.Print{print} },
		Policy: ledger.Policy{Grace: time.Minute},
	}
}

var start = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// script runs a ledger through lines like those of rules, and returns what those
// said that say something.
//
//	enter [who=a] [key=k] [print=1] [adopt=auto] [keep] [grace=1m]
//	lose ID, regain ID, suspect ID, trust ID, deliver ID, end ID STATE [ANSWER]
//	wait DURATION, due, state ID, count, next
func script(t *testing.T, o ledger.Options, lines string) []string {
	t.Helper()
	s := &player{t: t, l: ledger.New(o), now: start}
	for line := range strings.SplitSeq(lines, ";") {
		words := strings.Fields(line)
		var id ledger.ID
		if len(words) > 1 {
			fmt.Sscan(words[1], &id)
		}
		if !s.act(words, id) && !s.ask(words, id) {
			t.Fatalf("no command: %s", line)
		}
	}
	return s.said
}

type player struct {
	t    *testing.T
	l    *ledger.Ledger
	now  time.Time
	said []string
}

func (s *player) say(format string, args ...any) {
	s.said = append(s.said, strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// act does what says nothing.
func (s *player) act(words []string, id ledger.ID) bool {
	switch words[0] {
	case "lose":
		s.l.Lose(s.now, id)
	case "regain":
		s.l.Regain(s.now, id)
	case "suspect":
		s.l.Suspect(id, true)
	case "trust":
		s.l.Suspect(id, false)
	case "deliver":
		s.l.Deliver(s.now, id)
	case "wait":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			s.t.Fatal(err)
		}
		s.now = s.now.Add(d)
	default:
		return false
	}
	return true
}

// ask does what says something.
func (s *player) ask(words []string, id ledger.ID) bool {
	states := []string{"running", "orphaned", "answered", "failed", "cancelled", "timedout", "lost"}
	outcomes := []string{"fresh", "joined", "followed", "replayed", "conflict"}
	switch words[0] {
	case "enter":
		id, out, answer := s.l.Enter(s.now, parseClaim(s.t, words[1:]))
		s.say("%s %d %s", outcomes[out], id, answer)
	case "end":
		state := slices.Index(states, words[2])
		s.say("%v", s.l.End(s.now, id, ledger.State(state), []byte(strings.Join(words[3:], " "))))
	case "due":
		acts := []string{}
		for _, a := range s.l.Due(s.now) {
			acts = append(acts, fmt.Sprint([]string{"cancel", "forget"}[a.Kind], " ", a.ID))
		}
		s.say("[%s]", strings.Join(acts, ", "))
	case "state":
		if state, ok := s.l.State(id); ok {
			s.say("%s", states[state])
		} else {
			s.say("unknown")
		}
	case "count":
		s.say("%d/%d", s.l.Orphans(), s.l.Len())
	case "next":
		if next := s.l.Next(); next.IsZero() {
			s.say("never")
		} else {
			s.say("%v", next.Sub(s.now))
		}
	default:
		return false
	}
	return true
}

func parseClaim(t *testing.T, words []string) ledger.Claim {
	t.Helper()
	c := claim("a", "", 1)
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		switch name {
		case "who":
			c.Principal, c.KeyPrincipal = value, value
		case "key":
			c.Key = value
		case "print":
			c.Print = func() ledger.Print { return ledger.Print{value[0]} }
		case "adopt":
			c.Policy.Adopt = ledger.Adopt(slices.Index([]string{"auto", "key", "never"}, value))
		case "keep":
			c.Policy.Keep = true
		case "grace":
			d, err := time.ParseDuration(value)
			if err != nil {
				t.Fatal(err)
			}
			c.Policy.Grace = d
		default:
			t.Fatalf("no word: %s", w)
		}
	}
	return c
}

var rules = []struct{ name, script, want string }{
	{"twins are two calls", "enter; enter", "fresh 1|fresh 2"},
	{"an orphan is joined, and is one no more", "enter; lose 1; count; enter; count; state 1; enter", "fresh 1|1/1|joined 1|0/1|running|fresh 2"},
	{"the oldest orphan first, whichever was lost first", "enter; enter; lose 2; lose 1; enter; enter; enter", "fresh 1|fresh 2|joined 1|joined 2|fresh 3"},
	{"other arguments are another call", "enter; lose 1; enter print=2", "fresh 1|fresh 2"},
	{"another principal is another call", "enter; lose 1; enter who=b", "fresh 1|fresh 2"},
	{"no principal joins nothing", "enter who=; lose 1; enter who=", "fresh 1|fresh 2"},
	{"KeyOnly neither joins nor is joined", "enter adopt=key; lose 1; enter; lose 2; enter adopt=key; enter", "fresh 1|fresh 2|fresh 3|joined 2"},
	{"KeyOnly joins by key", "enter adopt=key key=k; lose 1; enter adopt=key key=k", "fresh 1|joined 1"},
	{"Never ignores a key", "enter adopt=never key=k; lose 1; enter adopt=never key=k; enter key=k", "fresh 1|fresh 2|fresh 3"},
	{"its own client's return makes it no orphan", "enter; lose 1; regain 1; enter; state 1", "fresh 1|fresh 2|running"},

	{"an answer not delivered is handed over once", "enter; lose 1; end 1 answered x; enter; enter", "fresh 1|true|replayed 1 x|fresh 2"},
	{"also one that failed", "enter; lose 1; end 1 failed x; enter", "fresh 1|true|replayed 1 x"},
	{"also when it had ended before its reader went", "enter; end 1 answered x; enter; lose 1; enter", "fresh 1|true|fresh 2|replayed 1 x"},
	{"only within the window of the loss", "enter; lose 1; wait 30s; end 1 answered x; wait 89s; enter; lose 1; wait 2m; enter", "fresh 1|true|replayed 1 x|fresh 2"},
	{"an orphan that ends after the window is too old", "enter keep; lose 1; wait 3m; end 1 answered x; enter", "fresh 1|true|fresh 2"},
	{"one that runs is never too old", "enter keep; lose 1; wait 30m; enter", "fresh 1|joined 1"},
	{"a delivery that fails again opens a new window", "enter; lose 1; end 1 answered x; wait 1m; enter; wait 5m; lose 1; wait 1m; enter; wait 1h; due; deliver 1; count",
		"fresh 1|true|replayed 1 x|replayed 1 x|[]|0/0"},
	{"a delivered answer is forgotten", "enter; end 1 answered x; deliver 1; state 1; lose 1; enter", "fresh 1|true|unknown|fresh 2"},
	{"delivered after all, by resumption", "enter; lose 1; end 1 answered x; deliver 1; enter; due", "fresh 1|true|fresh 2|[]"},
	{"a call that runs is not delivered", "enter; deliver 1; state 1", "fresh 1|running"},
	{"a read answer is kept until delivery", "enter; end 1 answered x; next; wait 24h; due; state 1", "fresh 1|true|never|[]|answered"},
	{"a lost one for the TTL after the loss", "enter; end 1 answered x; wait 1m; lose 1; next; wait 10m; due; count", "fresh 1|true|10m0s|[forget 1]|0/0"},
	{"or after the end", "enter; lose 1; wait 30s; end 1 answered x; next", "fresh 1|true|10m0s"},
	{"regained after its end it waits for delivery", "enter; end 1 answered x; lose 1; regain 1; next; enter", "fresh 1|true|never|fresh 2"},
	{"what has no answer is forgotten at once", "enter; enter; enter; lose 1; end 1 cancelled; end 2 timedout; end 3 lost; count; due; enter",
		"fresh 1|fresh 2|fresh 3|true|true|true|0/0|[]|fresh 4"},

	{"a suspect is joined while it runs", "enter; suspect 1; state 1; count; next; enter; enter", "fresh 1|running|0/1|never|joined 1|fresh 2"},
	{"but not when it is trusted again", "enter; suspect 1; trust 1; enter; suspect 2; regain 2; enter", "fresh 1|fresh 2|fresh 3"},
	{"a suspect's answer, within the window of the end", "enter; suspect 1; wait 1h; end 1 answered x; wait 119s; enter; suspect 1; wait 1s; enter", "fresh 1|true|replayed 1 x|fresh 2"},
	{"a suspect that is lost is an orphan", "enter; suspect 1; lose 1; suspect 1; state 1; next; trust 1; enter", "fresh 1|orphaned|1m0s|joined 1"},
	{"a suspect with a key is joined", "enter key=k; suspect 1; enter key=k; enter key=k", "fresh 1|joined 1|followed 1"},

	{"the grace ends in one cancellation", "enter; lose 1; next; wait 59s; due; wait 1s; due; due; next; state 1; end 1 cancelled; count", "fresh 1|1m0s|[]|[cancel 1]|[]|never|orphaned|true|0/0"},
	{"Keep keeps", "enter keep; lose 1; next; wait 24h; due", "fresh 1|never|[]"},
	{"no grace is at once", "enter grace=0s; enter grace=-1s; lose 1; lose 2; next; due", "fresh 1|fresh 2|0s|[cancel 1, cancel 2]"},
	{"joined, the grace is off; lost again, it starts again", "enter; lose 1; wait 50s; enter; next; lose 1; lose 1; next", "fresh 1|joined 1|never|1m0s"},
	{"under the policy of whoever joined", "enter; lose 1; enter grace=5s; lose 1; next", "fresh 1|joined 1|5s"},
	{"a second loss does not prolong it", "enter; lose 1; wait 30s; lose 1; next", "fresh 1|30s"},
	{"one to be cancelled is joined no more", "enter; lose 1; wait 1m; due; enter", "fresh 1|[cancel 1]|fresh 2"},
	{"if it is answered nevertheless, that counts", "enter; lose 1; wait 1m; due; end 1 answered x; enter", "fresh 1|[cancel 1]|true|replayed 1 x"},
	{"if it is regained, it can be orphaned again", "enter; lose 1; wait 1m; due; regain 1; lose 1; enter; lose 1; wait 1m; due", "fresh 1|[cancel 1]|joined 1|[cancel 1]"},

	{"one end, once", "enter; end 1 running; end 1 orphaned; end 1 answered x; end 1 failed y; lose 1; enter", "fresh 1|false|false|true|false|replayed 1 x"},
	{"strangers", "lose 7; regain 7; suspect 7; deliver 7; end 7 answered; state 7; due; next; count", "false|unknown|[]|never|0/0"},

	{"a key follows", "enter key=k; enter key=k; enter key=k who=b", "fresh 1|followed 1|fresh 2"},
	{"a key joins an orphan", "enter key=k; lose 1; state 1; enter key=k; state 1; next", "fresh 1|orphaned|joined 1|running|never"},
	{"a key replays until the TTL after the end, delivered or not", "enter key=k; end 1 answered x; deliver 1; wait 9m; lose 1; enter key=k; enter key=k; next; wait 1m; enter key=k; due",
		"fresh 1|true|replayed 1 x|replayed 1 x|1m0s|fresh 2|[forget 1]"},
	{"a key is for one call", "enter key=k; enter key=k print=2; end 1 answered x; enter key=k print=2", "fresh 1|conflict 0|true|conflict 0"},
	{"a key does not adopt without one, nor the other way", "enter; lose 1; enter key=k; lose 2; enter; enter", "fresh 1|fresh 2|joined 1|fresh 3"},
	{"a key tells the truth", "enter key=k; end 1 lost x; enter key=k; state 1; enter key=j; end 2 timedout y; enter key=j", "fresh 1|true|replayed 1 x|lost|fresh 2|true|replayed 2 y"},
	{"cancelling frees the key", "enter key=k; end 1 cancelled; count; enter key=k print=2", "fresh 1|true|0/0|fresh 2"},
	{"the grace is for keys too", "enter key=k; lose 1; wait 1m; due; enter key=k", "fresh 1|[cancel 1]|joined 1"},
}

func TestRules(t *testing.T) {
	limits := ledger.Options{Window: 2 * time.Minute, TTL: 10 * time.Minute}
	for _, test := range rules {
		t.Run(test.name, func(t *testing.T) {
			if got := strings.Join(script(t, limits, test.script), "|"); got != test.want {
				t.Errorf("%s\n got %s\nwant %s", test.script, got, test.want)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	hour := ledger.Options{Window: time.Hour, TTL: time.Hour}
	number, size := hour, hour
	number.MaxKept, size.MaxBytes = 2, 10
	for _, test := range []struct {
		name         string
		o            ledger.Options
		script, want string
	}{
		{"the oldest end is forgotten first", number, "enter key=1; enter; enter; end 2 answered x; end 1 answered y; wait 1s; end 3 answered z; wait 1s; next; due; due; count; enter key=1",
			"fresh 1|fresh 2|fresh 3|true|true|true|-1s|[forget 2]|[]|0/2|replayed 1 y"},
		{"with its key", number, "enter key=1; end 1 answered x; enter; enter; end 2 answered; end 3 answered; enter key=1", "fresh 1|true|fresh 2|fresh 3|true|true|fresh 4"},
		{"those that run are not counted", number, "enter; enter; enter; enter; lose 1; due; count", "fresh 1|fresh 2|fresh 3|fresh 4|[]|1/4"},
		{"nor those that were delivered", number, "enter; end 1 answered; deliver 1; enter; end 2 answered; deliver 2; enter; end 3 answered; due; count", "fresh 1|true|fresh 2|true|fresh 3|true|[]|0/1"},
		{"by their size", size, "enter; enter; enter; end 1 answered 12345; end 2 answered 12345; due; end 3 answered 1; due", "fresh 1|fresh 2|fresh 3|true|true|[]|true|[forget 1]"},
		{"as many as it takes", size, "enter; enter; enter; end 1 answered 12345; end 2 answered 12345; end 3 answered 123456; due", "fresh 1|fresh 2|fresh 3|true|true|true|[forget 1, forget 2]"},
		{"one that is too large goes alone", size, "enter; enter; end 1 answered 12345; end 2 answered 12345678901; due; count", "fresh 1|fresh 2|true|true|[forget 2]|0/1"},
		{"no TTL keeps nothing for want of delivery", ledger.Options{Window: time.Hour}, "enter; lose 1; end 1 answered x; enter; due; enter key=k; end 3 answered; enter key=k", "fresh 1|true|fresh 2|[forget 1]|fresh 3|true|fresh 4"},
		{"no window hands over nothing", ledger.Options{TTL: time.Hour}, "enter; lose 1; enter; lose 1; end 1 answered x; enter", "fresh 1|joined 1|true|fresh 2"},
		{"what is too far away is never", ledger.Options{TTL: 1<<63 - 1, Window: 1<<63 - 1}, "enter grace=2562047h; wait 1h; lose 1; next; wait 1h; end 1 answered x; next; enter", "fresh 1|never|true|never|replayed 1 x"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := strings.Join(script(t, test.o, test.script), "|"); got != test.want {
				t.Errorf("%s\n got %s\nwant %s", test.script, got, test.want)
			}
		})
	}
}

// TestPrintWhenNeeded: no fingerprint before something could come of it, and
// none twice.
func TestPrintWhenNeeded(t *testing.T) {
	l := ledger.New(options)
	computed := map[string]int{}
	enter := func(name, principal, key string) ledger.ID {
		c := claim(principal, key, 1)
		c.Print = func() ledger.Print { computed[name]++; return ledger.Print{name[0]} }
		id, _, _ := l.Enter(start, c)
		return id
	}
	want := func(when string, names ...string) {
		t.Helper()
		for _, name := range names {
			if computed[name] != 1 {
				t.Errorf("%s: Print of %s was called %d times", when, name, computed[name])
			}
		}
		if len(computed) != len(names) {
			t.Errorf("%s: Print was called of %v, want of %v", when, computed, names)
		}
	}
	a := enter("a", "ada", "")
	enter("b", "bob", "")
	nobody := enter("n", "", "")
	l.Lose(start, nobody)
	want("nothing lost")
	l.Lose(start, a)
	want("at a loss", "a")
	enter("c", "bob", "")
	want("another principal's", "a")
	enter("d", "ada", "")
	want("something to join", "a", "d")
	enter("k", "bob", "k")
	want("a key", "a", "d", "k")
	l.Regain(start, a)
	l.Lose(start, a)
	e := enter("e", "ada", "")
	l.Suspect(e, true)
	want("once only", "a", "d", "k", "e")
	l.Regain(start, a)
	l.Regain(start, e)
	enter("f", "ada", "")
	want("nothing to join any more", "a", "d", "k", "e")
}

// TestWithoutPrint: a claim without a Print is executed, and survives the rest.
func TestWithoutPrint(t *testing.T) {
	l := ledger.New(options)
	c := claim("ada", "", 1)
	c.Print = nil
	id, _, _ := l.Enter(start, c)
	l.Lose(start, id)
	if _, out, _ := l.Enter(start, c); out != ledger.Fresh {
		t.Error(out)
	}
	c.Key = "k"
	id, _, _ = l.Enter(start, c)
	if again, out, _ := l.Enter(start, c); out != ledger.Followed || again != id {
		t.Error(again, out)
	}
}

// TestNothingIsLeft: what is forgotten leaves no trace that could grow.
func TestNothingIsLeft(t *testing.T) {
	l := ledger.New(ledger.Options{Window: time.Minute, TTL: time.Minute, MaxKept: 3})
	now := start
	for i := range 1000 {
		c := claim(fmt.Sprint("p", i), []string{"", fmt.Sprint("k", i)}[i%2], byte(i))
		id, _, _ := l.Enter(now, c)
		l.Lose(now, id)
		if i%3 > 0 {
			l.End(now, id, ledger.Answered, nil)
		}
		now = now.Add(time.Second)
		for _, a := range l.Due(now) {
			if a.Kind == ledger.Cancel {
				l.End(now, a.ID, ledger.Cancelled, nil)
			}
		}
	}
	for _, a := range l.Due(now.Add(time.Hour)) {
		l.End(now, a.ID, ledger.Cancelled, nil)
	}
	if !l.Empty() {
		t.Error("something is left")
	}
}
