package session

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-mcp/holdfast/eventlog"
)

func TestFind(t *testing.T) {
	s, conv := open(t, registry(RegistryOptions{}), false)
	s.Message(nil, note(1))
	st, call := ask(t, s, conv, "1")
	st.Name()
	s.Message(call, note(1))
	s.Message(call, note(2))
	unnamed, _ := ask(t, s, conv, "2")
	for _, tc := range []struct {
		id   string
		want *Stream // nil: unknown
		pos  eventlog.Seq
	}{
		{"0-0", s.General(), 0},
		{"0-1", s.General(), 1},
		{"0-2", nil, 0},
		{"1-0", st, 0},
		{"1-1", st, 1},
		{"1-2", st, 2},
		{"1-3", nil, 0},
		{"2-0", nil, 0}, // has given out no id yet
		{"7-1", nil, 0},
		{"", nil, 0},
		{"-", nil, 0},
		{"1", nil, 0},
		{"1-", nil, 0},
		{"-1", nil, 0},
		{"1-1-1", nil, 0},
		{"01-1", nil, 0},
		{"1-01", nil, 0},
		{"+1-1", nil, 0},
		{"1-1 ", nil, 0},
		{"1--1", nil, 0},
		{"18446744073709551616-1", nil, 0},
		{"1-18446744073709551615", nil, 0},
		{strings.Repeat("1", 1000) + "-1", nil, 0},
	} {
		got, pos, err := s.Find(tc.id)
		if got != tc.want || pos != tc.pos || (err == nil) != (tc.want != nil) || err != nil && !errors.Is(err, ErrUnknownEvent) {
			t.Errorf("Find(%.40q) = %p, %d, %v", tc.id, got, pos, err)
		}
		if err != nil && len(err.Error()) > 200 {
			t.Errorf("a long id makes a long error: %d bytes", len(err.Error()))
		}
	}
	if unnamed.Named() || !st.Named() {
		t.Error("Named is wrong")
	}
}

// TestPrune: of finished streams some are retained. None with an answer that
// nobody has read is given up, nor one that is being read or goes on.
func TestPrune(t *testing.T) {
	s, conv := open(t, registry(RegistryOptions{Limits: Limits{Streams: 2}}), false)
	finish := func(id string, read bool) *Stream {
		st, call := ask(t, s, conv, id)
		st.Name()
		answer(call)
		if read {
			st.log.Delivered(1)
		}
		return st
	}
	running, _ := ask(t, s, conv, `"running"`)
	running.Name()                              // 1
	unread := finish(`"unread"`, false)         // 2
	attached := finish(`"attached"`, true)      // 3
	_, _ = attached.Read(newOutput(), 1, false) //
	for n := range 10 {                         // 4 to 13
		finish(fmt.Sprint(n), true)
	}
	retained := []string{}
	for n := 1; n <= 13; n++ {
		st, _, err := s.Find(fmt.Sprintf("%d-0", n))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Join(lines(st), ""), "no longer retained") {
			retained = append(retained, fmt.Sprint(n))
		}
	}
	// The newest is named before its answer is there, so it stays as well.
	if !slices.Equal(retained, []string{"1", "2", "3", "13"}) {
		t.Errorf("retained %v", retained)
	}
	if len(lines(unread)) != 1 {
		t.Error("an answer that nobody has read is gone")
	}
	// Who comes back for one that was given up is told, and the stream ends.
	gone, pos, err := s.Find("5-1")
	if err != nil {
		t.Fatal(err)
	}
	events, _, more := gone.log.Read(nil, pos, 1<<20)
	if len(events) != 1 || more || !strings.Contains(string(events[0].Data), `"method":"notifications/message"`) {
		t.Errorf("%d events, more %v", len(events), more)
	}
}

// TestAbandon: a POST whose client left before any id was given out.
func TestAbandon(t *testing.T) {
	s, conv := open(t, registry(RegistryOptions{}), false)
	st, call := ask(t, s, conv, "1")
	s.Message(call, note(1))
	st.Abandon()
	if s.InFlight() != 1 {
		t.Error("the call ended with its connection")
	}
	s.Message(call, note(2)) // belongs to nobody's stream now: it waits for a GET
	answer(call)
	if st.log.Size() != 0 || s.InFlight() != 0 {
		t.Errorf("%d bytes are held for nobody, %d calls", st.log.Size(), s.InFlight())
	}
	if got := lines(s.General()); !slices.Equal(got, []string{string(note(2))}) {
		t.Errorf("general stream: %v", got)
	}
}

// FuzzFind: an id is found only if it was given out, and then it is that one.
func FuzzFind(f *testing.F) {
	for _, id := range []string{"0-0", "1-2", "2-1", "3-0", "-", "1-99", "01-1", "1-1\n", "９-1"} {
		f.Add(id)
	}
	s, conv := open(f, registry(RegistryOptions{Limits: Limits{Streams: 1}}), false)
	given := map[string]bool{"0-0": true}
	for n := range 3 {
		st, call := ask(f, s, conv, fmt.Sprint(n))
		st.Name()
		given[st.EventID(0)] = true
		for range 3 {
			s.Message(call, note(n))
		}
		answer(call)
		for seq := range eventlog.Seq(4) {
			given[st.EventID(seq+1)] = true
		}
		st.log.Delivered(4)
	}
	f.Fuzz(func(t *testing.T, id string) {
		st, pos, err := s.Find(id)
		switch {
		case err != nil && given[id]:
			t.Errorf("%q was given out: %v", id, err)
		case err == nil && !given[id]:
			// Of a stream that was given up it is no longer known how long it was.
			if n, _, _ := strings.Cut(id, "-"); n != "1" && n != "2" {
				t.Errorf("%q was never given out", id)
			}
		case err == nil && st.num > 2 && st.EventID(pos) != id:
			t.Errorf("%q is taken for %q", id, st.EventID(pos))
		}
	})
}
