package session

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-mcp/holdfast/eventlog"
	"github.com/holdfast-mcp/holdfast/internal/stdio"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

func TestPingNeedsNoServer(t *testing.T) {
	r := registry(RegistryOptions{})
	s, err := r.New(false)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{`1`, `"a"`, `0`} {
		st := s.Post(1, true)
		s.Take(st, message(t, `{"jsonrpc":"2.0","id":%s,"method":"ping","params":null}`, id))
		if got := lines(st); !slices.Equal(got, []string{`{"jsonrpc":"2.0","id":` + id + `,"result":{}}`}) {
			t.Errorf("ping %s: %v", id, got)
		}
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	r := registry(RegistryOptions{Limits: Limits{Unread: 100, Streams: 1}})
	early, err := r.New(false)
	if err != nil {
		t.Fatal(err)
	}
	busy, busyConv := open(t, r, false)
	ask(t, busy, busyConv, `"x"`)
	unread, unreadConv := open(t, r, false)
	for i := range 3 { // nobody reads their answers
		st, call := ask(t, unread, unreadConv, fmt.Sprint(i))
		st.Name()
		unread.Answer(call, jsonrpc.AppendResult(nil, call.ID, []byte(`"`+strings.Repeat("x", 100)+`"`)))
	}
	gone, goneConv := open(t, r, false)
	goneConv.fail = fmt.Errorf("server %q keeps ending", "x")
	full, fullConv := open(t, r, false)
	fullConv.fail = stdio.ErrBusy
	for _, tc := range []struct {
		name string
		s    *Session
		code int
		text string
		data string
	}{
		{"before initialize", early, jsonrpc.CodeInvalidRequest, "send initialize first", ""},
		{"an id that is in flight", busy, jsonrpc.CodeInvalidRequest, `id "x" is in flight`, ""},
		{"too much unread", unread, jsonrpc.CodeInvalidRequest, "read them first", ""},
		{"a server that keeps ending", gone, jsonrpc.CodeInternal, "keeps ending", `{"outcome":"not_executed"}`},
		{"a server that does not read", full, jsonrpc.CodeInternal, "does not read its input", `{"outcome":"not_executed"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := tc.s.InFlight()
			st := tc.s.Post(1, true)
			tc.s.Take(st, message(t, `{"jsonrpc":"2.0","id":"x","method":"tools/call"}`))
			got := lines(st)
			if len(got) != 1 {
				t.Fatalf("answers %v", got)
			}
			code, text, data := errorOf(t, got[0])
			if code != tc.code || !strings.Contains(text, tc.text) || data != tc.data || !strings.Contains(got[0], `"id":"x"`) {
				t.Errorf("answered %s", got[0])
			}
			if n := tc.s.InFlight(); n != before {
				t.Errorf("%d calls in flight, before %d", n, before)
			}
		})
	}
	// The refusal must not have ended the call that has the id.
	answer(busyConv.last(t))
	if busy.InFlight() != 0 {
		t.Error("the call that had the id first was lost")
	}
}

// TestOneAnswerEach: whatever the server does, a call is answered once.
func TestOneAnswerEach(t *testing.T) {
	s, conv := open(t, registry(RegistryOptions{}), false)
	st, call := ask(t, s, conv, "1")
	answer(call)
	answer(call)
	s.Answer(call, jsonrpc.AppendError(nil, call.ID, 1, "late", nil))
	s.Take(nil, message(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`))
	if got := lines(st); len(got) != 1 {
		t.Errorf("answers %v", got)
	}
	if len(conv.gaveUp) != 0 {
		t.Errorf("a call that was answered was cancelled")
	}
	// The id is free again, and the next call is another one.
	st2, call2 := ask(t, s, conv, "1")
	answer(call)
	if len(lines(st2)) != 0 {
		t.Error("a late answer went to the next call of the same id")
	}
	answer(call2)
	if len(lines(st2)) != 1 {
		t.Error("the second call was not answered")
	}
}

func TestCancel(t *testing.T) {
	for _, tc := range []struct {
		name   string
		single bool
		want   string
	}{
		{"a POST must end with an answer", false, `{"jsonrpc":"2.0","id":"a","error":{"code":-32800,"message":"request cancelled by the client","data":{"outcome":"cancelled"}}}`},
		{"one stream for all needs none", true, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, conv := open(t, registry(RegistryOptions{}), tc.single)
			st, _ := ask(t, s, conv, `"a"`)
			ask(t, s, conv, `"b"`)
			for _, id := range []string{`"nobody"`, `1`, `"a"`, `"a"`} {
				s.Take(nil, message(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id))
			}
			if got := strings.Join(lines(st), "\n"); got != tc.want {
				t.Errorf("answered %s", got)
			}
			if !slices.Equal(conv.gaveUp, []string{`"a"`}) || len(conv.heard) > 0 {
				t.Errorf("cancelled at the server: %v, heard %v", conv.gaveUp, conv.heard)
			}
			if s.InFlight() != 1 {
				t.Errorf("%d calls in flight, want the other one", s.InFlight())
			}
		})
	}
}

func TestTokens(t *testing.T) {
	for raw, want := range map[string]string{`1`: `1`, `"1"`: `"1"`, `-7`: `-7`, `""`: `""`, `null`: ``, `{}`: ``, `true`: ``, `[1]`: ``} {
		m := message(t, `{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"progressToken":%s}}}`, raw)
		if got := string(token(m)); got != want {
			t.Errorf("token %s is taken as %q", raw, got)
		}
	}
}

func TestWhatIsPassedOn(t *testing.T) {
	s, conv := open(t, registry(RegistryOptions{}), false)
	s.Take(nil, message(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	s.Take(nil, message(t, `{"jsonrpc":"2.0","id":"hf-1","result":{}}`))
	s.Take(nil, message(t, `{"jsonrpc":"2.0","id":"hf-2","error":{"code":1,"message":""}}`))
	if want := []string{"notifications/initialized", `reply "hf-1"`, `reply "hf-2"`}; !slices.Equal(conv.heard, want) {
		t.Errorf("heard %v", conv.heard)
	}
}

// TestRouting: a message goes to one stream only, the one where a client will
// look for it.
func TestRouting(t *testing.T) {
	t.Run("POST streams", func(t *testing.T) {
		s, conv := open(t, registry(RegistryOptions{}), false)
		one, first := ask(t, s, conv, "1")
		two, second := ask(t, s, conv, "2")
		read := func(st *Stream) {
			t.Helper()
			if _, err := st.Read(newOutput(), 0, false); err != nil {
				t.Fatal(err)
			}
		}
		s.Message(nil, note(1)) // nobody reads: it waits
		read(one)
		s.Message(nil, note(2)) // the newest POST that is read
		read(two)
		s.Message(nil, note(3))
		s.Message(first, note(4)) // those of a call
		s.Message(second, note(5))
		answer(second)
		s.Message(second, note(6)) // after its answer a stream takes no more
		read(s.General())
		s.Message(nil, note(7))
		s.Message(first, note(8))
		for name, tc := range map[string]struct {
			st   *Stream
			want []int
		}{"general": {s.General(), []int{1, 7}}, "first": {one, []int{2, 4, 6, 8}}, "second": {two, []int{3, 5}}} {
			want := []string{}
			for _, n := range tc.want {
				want = append(want, string(note(n)))
			}
			got := slices.DeleteFunc(lines(tc.st), func(l string) bool { return strings.Contains(l, "result") })
			if !slices.Equal(got, want) {
				t.Errorf("%s stream: %v, want %v", name, got, want)
			}
		}
	})
	t.Run("a client that takes JSON only", func(t *testing.T) {
		s, conv := open(t, registry(RegistryOptions{}), false)
		st := s.Post(1, false)
		s.Take(st, message(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`))
		s.Message(conv.last(t), note(1))
		if len(lines(st)) != 0 || len(lines(s.General())) != 1 {
			t.Errorf("its stream %v, the general one %v", lines(st), lines(s.General()))
		}
	})
	t.Run("one stream for all", func(t *testing.T) {
		s, conv := open(t, registry(RegistryOptions{}), true)
		st, call := ask(t, s, conv, "1")
		s.Message(call, note(1))
		s.Message(nil, note(2))
		answer(call)
		if st != s.General() || len(lines(st)) != 3 {
			t.Errorf("%v", lines(st))
		}
	})
}

func TestBatchEndsWithItsLastAnswer(t *testing.T) {
	s, conv := open(t, registry(RegistryOptions{}), false)
	st := s.Post(3, true)
	for id := range 3 {
		s.Take(st, message(t, `{"jsonrpc":"2.0","id":%d,"method":"tools/call"}`, id))
	}
	for i, call := range slices.Backward(conv.calls) {
		if _, _, more := st.log.Read(nil, eventlog.Seq(2-i), 1<<20); !more {
			t.Fatalf("ended with %d calls running", i+1)
		}
		answer(call)
	}
	if events, _, more := st.log.Read(nil, 0, 1<<20); more || len(events) != 3 {
		t.Errorf("%d answers, more %v", len(events), more)
	}
}

func TestVersion(t *testing.T) {
	for answer, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18"}}`:   "2025-06-18",
		`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}`:              "",
		`{"jsonrpc":"2.0","id":1,"result":[]}`:                                 "",
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"version"}}`: "",
	} {
		s, conv := open(t, registry(RegistryOptions{}), false)
		st := s.Post(1, true)
		s.Take(st, message(t, `{"jsonrpc":"2.0","id":1,"method":"initialize"}`))
		call := conv.last(t)
		// The method is the conversation's to note; here nobody did.
		if s.negotiated([]byte(answer)); string(s.Version()) != want {
			t.Errorf("%s: version %q", answer, s.Version())
		}
		s.Answer(call, []byte(answer))
		if got := lines(st); !slices.Equal(got, []string{answer}) {
			t.Errorf("answered %v", got)
		}
	}
}

func TestEndAnswersEachCall(t *testing.T) {
	s, conv := open(t, registry(RegistryOptions{}), false)
	named, call := ask(t, s, conv, "1")
	named.Name()
	plain, _ := ask(t, s, conv, `"b"`)
	reader, err := named.Read(newOutput(), 0, false)
	if err != nil {
		t.Fatal(err)
	}
	if !s.End(ErrDeleted) || s.End(ErrIdle) {
		t.Error("End must say who did it")
	}
	for st, id := range map[*Stream]string{named: `"id":1,`, plain: `"id":"b",`} {
		got := lines(st)
		if len(got) != 1 {
			t.Fatalf("%s: answers %v", id, got)
		}
		code, text, data := errorOf(t, got[0])
		if code != CodeEnded || data != `{"outcome":"unknown"}` || !strings.Contains(text, "deleted") || !strings.Contains(got[0], id) {
			t.Errorf("answered %s", got[0])
		}
		if _, _, more := st.log.Read(nil, 1, 1); more {
			t.Errorf("%s: the stream goes on", id)
		}
	}
	reader.detach()
	if len(conv.left) != 1 || !errors.Is(s.Err(), ErrDeleted) {
		t.Errorf("left %v, err %v", conv.left, s.Err())
	}
	select {
	case <-s.Done():
	default:
		t.Error("Done is open")
	}
	// What comes late goes nowhere.
	s.Message(call, note(1))
	answer(call)
	st := s.Post(1, true)
	s.Take(st, message(t, `{"jsonrpc":"2.0","id":9,"method":"tools/call"}`))
	if _, _, more := st.log.Read(nil, 0, 1); more {
		t.Error("a POST to an ended session waits")
	}
	if err := s.Attach(conv, func(string) { conv.left = append(conv.left, "again") }); !errors.Is(err, ErrDeleted) || len(conv.left) != 2 {
		t.Errorf("a conversation that came too late: %v, left %v", err, conv.left)
	}
}
