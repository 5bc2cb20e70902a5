package holdfast_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
)

func TestToolTakesOneEntry(t *testing.T) {
	s := holdfast.Server{
		Timers: holdfast.Timers{RequestTimeout: 30 * time.Minute, OrphanGrace: -1, PingInterval: time.Second, TaskAfter: time.Minute},
		Tools: []holdfast.Tool{
			{Name: "*", Adopt: holdfast.AdoptByKey},
			{Name: "charge_*", Adopt: holdfast.AdoptNever, RequestMax: -1},
			{Name: "*_report", OnDisconnect: holdfast.DisconnectLinger},
			{Name: "charge_*_card", OnDisconnect: holdfast.DisconnectKeep},
			{Name: "build_report", RequestTimeout: time.Hour, OrphanGrace: time.Second, Task: holdfast.TaskNever},
			{Name: "a*", RequestMax: time.Second},
			{Name: "*b", RequestMax: time.Minute},
			{Name: "x*y*z", RequestMax: 2 * time.Second, TaskAfter: -1},
		},
	}
	type tool = holdfast.Tool
	rest := tool{Adopt: holdfast.AdoptAuto, RequestTimeout: 30 * time.Minute, RequestMax: time.Hour, OrphanGrace: -1, TaskAfter: time.Minute}
	with := func(change func(*tool)) tool {
		want := rest
		change(&want)
		return want
	}
	tests := map[string]tool{
		"other":            with(func(w *tool) { w.Adopt = holdfast.AdoptByKey }),
		"":                 with(func(w *tool) { w.Adopt = holdfast.AdoptByKey }),
		"build_report":     with(func(w *tool) { w.RequestTimeout, w.OrphanGrace, w.Task = time.Hour, time.Second, holdfast.TaskNever }), // exact, though a pattern is as long
		"weekly_report":    with(func(w *tool) { w.OnDisconnect = holdfast.DisconnectLinger }),
		"_report":          with(func(w *tool) { w.OnDisconnect = holdfast.DisconnectLinger }),
		"charge_":          with(func(w *tool) { w.Adopt, w.RequestMax = holdfast.AdoptNever, -1 }),
		"charge_card":      with(func(w *tool) { w.Adopt, w.RequestMax = holdfast.AdoptNever, -1 }),
		"charge_gift_card": with(func(w *tool) { w.OnDisconnect = holdfast.DisconnectKeep }), // longer patterns first, and only they
		"charge_report":    with(func(w *tool) { w.Adopt, w.RequestMax = holdfast.AdoptNever, -1 }),
		"ab":               with(func(w *tool) { w.RequestMax = time.Second }), // equally long: the first
		"bb":               with(func(w *tool) { w.RequestMax = time.Minute }),
		"xyz":              with(func(w *tool) { w.RequestMax, w.TaskAfter = 2*time.Second, -1 }),
		"x.y.y.z":          with(func(w *tool) { w.RequestMax, w.TaskAfter = 2*time.Second, -1 }),
		"xzy":              with(func(w *tool) { w.Adopt = holdfast.AdoptByKey }),
		"xyzz ":            with(func(w *tool) { w.Adopt = holdfast.AdoptByKey }),
	}
	for name, want := range tests {
		want.Name = name
		if got := s.Tool(name); got != want {
			t.Errorf("%q: got %+v, want %+v", name, got, want)
		}
	}
}

// The parts of a pattern do not share letters of the name.
func TestToolPatternsDoNotOverlap(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"a*a", "a", false}, {"a*a", "aa", true}, {"ab*ba", "aba", false}, {"*a*a*", "a", false}, {"*a*a*", "aa", true},
		{"**", "", true}, {"a**b", "ab", true}, {"*ab", "aab", true}, {"a", "A", false}, {"a.c", "abc", false}, {"[a]*", "a", false},
	} {
		s := holdfast.Server{Tools: []holdfast.Tool{{Name: tt.pattern, Adopt: holdfast.AdoptNever}}}
		if got := s.Tool(tt.name).Adopt == holdfast.AdoptNever; got != tt.want {
			t.Errorf("%q on %q: %v", tt.pattern, tt.name, got)
		}
	}
}

func TestToolWithoutEntriesHasTheDefaults(t *testing.T) {
	want := holdfast.Tool{Name: "x", Adopt: holdfast.AdoptAuto, RequestTimeout: 15 * time.Minute, RequestMax: time.Hour, OrphanGrace: 2 * time.Minute, TaskAfter: 10 * time.Second}
	if got := (holdfast.Server{}).Tool("x"); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestNewRefusesWrongTimersAndTools(t *testing.T) {
	server := func(change func(*holdfast.Server)) holdfast.Options {
		s := holdfast.Command("cat")
		change(&s)
		return holdfast.Options{Server: s}
	}
	tool := func(entry holdfast.Tool) holdfast.Options {
		return server(func(s *holdfast.Server) { s.Tools = []holdfast.Tool{entry} })
	}
	tests := map[string]struct {
		options holdfast.Options
		want    string
	}{
		"adopt":           {tool(holdfast.Tool{Name: "a", Adopt: "always"}), `tool "a": adopt "always" must be auto, key or never`},
		"on disconnect":   {tool(holdfast.Tool{Name: "a", OnDisconnect: "die"}), `tool "a": on disconnect "die" must be cancel, linger or keep`},
		"task":            {tool(holdfast.Tool{Name: "a", Task: "maybe"}), `tool "a": task "maybe" must be never, always or required`},
		"task and time":   {tool(holdfast.Tool{Name: "a", Task: holdfast.TaskAlways, TaskAfter: time.Second}), `tool "a": task is "always": there is no time after which`},
		"no name":         {tool(holdfast.Tool{Adopt: holdfast.AdoptNever}), `tool "": it needs a name`},
		"gateway misses":  {holdfast.Options{Server: holdfast.Command("cat"), Timers: holdfast.Timers{PingMisses: -1}}, "ping misses"},
		"gateway ttl":     {holdfast.Options{Server: holdfast.Command("cat"), Timers: holdfast.Timers{ResultTTL: -1}}, "result TTL"},
		"server ping":     {server(func(s *holdfast.Server) { s.Timers.PingTimeout = -1 }), "ping timeout"},
		"everything none": {server(func(s *holdfast.Server) { s.Timers = noTimers() }), ""},
		"every word": {server(func(s *holdfast.Server) {
			s.Tools = []holdfast.Tool{
				{Name: "a", Adopt: holdfast.AdoptAuto, OnDisconnect: holdfast.DisconnectCancel, Task: holdfast.TaskAlways},
				{Name: "b", Adopt: holdfast.AdoptByKey, OnDisconnect: holdfast.DisconnectLinger, Task: holdfast.TaskRequired},
				{Name: "c", Adopt: holdfast.AdoptNever, OnDisconnect: holdfast.DisconnectKeep},
				{Name: "d*"},
			}
		}), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := holdfast.New(tt.options)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// noTimers has none of the clocks that a server can be without.
func noTimers() holdfast.Timers {
	return holdfast.Timers{PingInterval: -1, RequestTimeout: -1, RequestMax: -1, OrphanGrace: -1}
}
