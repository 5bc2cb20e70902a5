package chaos

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const (
	message = `{"jsonrpc":"2.0","id":"a","result":{"content":[{"type":"text","text":"answer n1.2 xxx"}],"_meta":{"dev.holdfast/adopted":true}}}`
	asJSON  = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + message
	head    = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	asEvent = head + "4\r\n:\n\n\r\nff\r\nid: 1-2\nevent: message\ndata: " + message + "\n\n\r\n"
)

// TestScanner: an answer is found, and its end, however it is cut.
func TestScanner(t *testing.T) {
	for name, wire := range map[string]string{"JSON": asJSON, "event": asEvent, "event after event": asEvent + asEvent[len(head):]} {
		begin, end, last := 0, 0, 0
		for cut := range len(wire) + 1 {
			var s scanner
			begins, ends, at := 0, 0, 0
			for _, part := range []string{wire[:cut], wire[cut:]} {
				for b := []byte(part); len(b) > 0; {
					f, n := s.feed(b)
					if f.begins > 0 {
						begins++
					}
					if f.ends > 0 {
						ends++
						if f.ends != n || f.nonce != "n1.2" {
							t.Fatalf("%s cut at %d: %+v, %d", name, cut, f, n)
						}
					}
					b, at = b[n:], at+n
					if f.ends > 0 {
						last = at
					}
				}
			}
			if cut == 0 {
				begin, end = begins, ends
			}
			if begins != begin || ends != end || ends == 0 {
				t.Fatalf("%s cut at %d: begins %d times and ends %d times", name, cut, begins, ends)
			}
			if want := len(strings.TrimSuffix(wire, "\r\n")); last != want {
				t.Fatalf("%s cut at %d: ends at %d, want %d", name, cut, last, want)
			}
		}
	}
}

// TestPlanFollowsTheSeed: the same calls for the same seed, others for another.
func TestPlanFollowsTheSeed(t *testing.T) {
	draw := func(seed uint64) (all []call) {
		o := Options{Seed: seed, Scale: 10, Patience: time.Second, Servers: []Server{{Path: "/a"}, {Path: "/b"}, {Path: "/calm", Calm: true}}}
		p := o.planner(3)
		for n := range 200 {
			all = append(all, *p.next(fmt.Sprint(n)))
		}
		return all
	}
	one := draw(1)
	if !reflect.DeepEqual(one, draw(1)) {
		t.Error("two plans of one seed differ")
	}
	if reflect.DeepEqual(one, draw(2)) {
		t.Error("two seeds, one plan")
	}
	seen := map[Kind]bool{}
	for _, c := range one {
		seen[c.kind] = true
		if c.server.Calm != (c.kind == Twins) || c.length > 4*time.Second {
			t.Errorf("%+v", c)
		}
	}
	if len(seen) != int(kinds) {
		t.Errorf("of %d kinds of calls, %v were drawn", kinds, seen)
	}
}

// TestVerdict: what is excused, and what is not.
func TestVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(seconds ...int) (all []time.Time) {
			for _, s := range seconds {
				all = append(all, time.Now().Add(time.Duration(s)*time.Second))
			}
			return all
		}
		twice := passage{arrived: at(0, 4), ended: at(2, 9), written: at(8)}
		window := passage{arrived: at(0, 4), ended: at(2, 9), written: at(1, 8)}
		for _, tt := range []struct {
			what     string
			kind     Kind
			recalls  int
			executed int
			passage  passage
			half     bool
			good     bool
		}{
			{"once", Fresh, 1, 1, twice, false, true},
			{"twice", Fresh, 1, 2, twice, false, false},
			{"twice, after its answer was written", Fresh, 1, 2, window, false, true},
			{"thrice", Fresh, 1, 3, window, false, false},
			{"with a key there is no window", Keyed, 1, 2, window, false, false},
			{"nor for who never called again", Resuming, 0, 2, window, false, false},
			{"written too late to be a window", Fresh, 1, 2, passage{arrived: at(0, 4), ended: at(2, 9), written: at(5, 8)}, false, false},
			{"back too early", Fresh, 1, 2, passage{arrived: at(0, 4), ended: at(6, 9), written: at(8)}, false, true},
			{"back from a half-open connection", Fresh, 1, 2, passage{arrived: at(0, 4), ended: at(6, 9), written: at(8)}, true, false},
			{"closing cancels", Closing, 1, 2, twice, false, true},
			{"but once", Closing, 1, 3, twice, false, false},
			{"twins", Twins, 0, 2, passage{}, false, true},
			{"merged twins", Twins, 0, 1, passage{}, false, false},
			{"three of two", Twins, 0, 3, passage{}, false, false},
			{"never executed", Fresh, 0, 0, twice, false, false},
		} {
			rec := &record{call: &call{kind: tt.kind}, answers: map[string]int{"id": 1}, recalls: tt.recalls}
			if tt.half {
				rec.faults = []Fault{{When: AfterTime, How: Swallow}}
			}
			verdict([]*record{rec}, Executions{Began: tt.executed, Ended: tt.executed}, tt.passage)
			if good := len(rec.wrong) == 0; good != tt.good {
				t.Errorf("%s: %q", tt.what, rec.wrong)
			}
		}
	})
}

// TestOutcome: one answer, once, and for who wants one.
func TestOutcome(t *testing.T) {
	for _, tt := range []struct {
		what    string
		kind    Kind
		answers map[string]int
		want    Row
		good    bool
	}{
		{"one", Fresh, map[string]int{"1": 1}, Row{Answered: 1}, true},
		{"none", Fresh, nil, Row{Lost: 1}, false},
		{"two", Fresh, map[string]int{"1": 2}, Row{Answered: 1}, false},
		{"given up", Cancelling, nil, Row{Cancelled: 1}, true},
		{"given up too late", Cancelling, map[string]int{"1": 1}, Row{Answered: 1}, true},
	} {
		rec := &record{call: &call{kind: tt.kind}, answers: tt.answers}
		var row Row
		rec.outcome(&row)
		if row != tt.want || (len(rec.wrong) == 0) != tt.good {
			t.Errorf("%s: %+v, %q", tt.what, row, rec.wrong)
		}
	}
}
