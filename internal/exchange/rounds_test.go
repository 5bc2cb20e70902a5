package exchange

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/testkit"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// TestQuestionTimeout: a question that nobody answers has a clock of its own.
// Then the call is cancelled at the server, and its conversation is free.
func TestQuestionTimeout(t *testing.T) {
	on(t, troupe{Troupe: actors(quiz()), max: 1}, func(t *testing.T, s *stage) {
		w := asking("ada")
		q := s.questions(s.done(s.call(w, "1", "once", `{}`, "")))
		up := raw(s.troupe.Told(`"once"`)[0], jsonrpc.ID)
		next := s.call(w, "2", "where", `{}`, "")
		time.Sleep(10*time.Minute - 2*time.Second)
		if got := s.troupe.Told("notifications/cancelled"); len(got) != 0 || next.answer() != "" {
			t.Errorf("early: the server was told %q, the next call answered %q", got, next.answer())
		}
		time.Sleep(3 * time.Second)
		got := s.troupe.Told("notifications/cancelled")
		if len(got) != 1 || raw(got[0], jsonrpc.RequestID) != up {
			t.Errorf("the server was told %q, want %s", got, up)
		}
		if got := text(t, s.done(next)); got != "0:1" {
			t.Errorf("the next call came to %s", got)
		}
		wantError(t, "a late answer", s.done(s.call(w, "3", "once", `{}`, q.all(`{"action":"accept"}`))), "-32602")
		if n := s.executed("once"); n != 1 {
			t.Errorf("the tool ran %d times", n)
		}
	})
}

// TestQuestionTimeoutBeginsAnew with each round.
func TestQuestionTimeoutBeginsAnew(t *testing.T) {
	on(t, troupe{Troupe: actors(quiz())}, func(t *testing.T, s *stage) {
		w := asking("ada")
		q := s.questions(s.done(s.call(w, "1", "twice", `{}`, "")))
		time.Sleep(9 * time.Minute)
		q = s.questions(s.done(s.call(w, "2", "twice", `{}`, q.all(`{"a":1}`))))
		time.Sleep(9 * time.Minute)
		if got := text(t, s.done(s.call(w, "3", "twice", `{}`, q.all(`{"b":2}`)))); got != `{"a":1} then {"b":2}` {
			t.Errorf("answered %s", got)
		}
	})
}

// TestUndeclaredQuestions never reach the client: the server is told so.
func TestUndeclaredQuestions(t *testing.T) {
	on(t, troupe{Troupe: actors(quiz())}, func(t *testing.T, s *stage) {
		tests := []struct {
			tool, capabilities, words string
		}{
			{"odd", `{"elicitation":{},"sampling":{},"roots":{}}`, `"x/odd"`},
			{"once", `{}`, "no call is running that could be asked"},
			{"once", `{"sampling":{}}`, "did not declare"},
			{"url", `{"elicitation":{}}`, "did not declare"},
			{"url", `{"elicitation":{"form":{}}}`, "did not declare"},
		}
		for i, tt := range tests {
			w := who{principal: fmt.Sprint(i), capabilities: tt.capabilities}
			answer := s.done(s.call(w, "1", tt.tool, `{}`, ""))
			got := text(t, answer)
			if !strings.HasPrefix(got, `got {"code":-32603,`) || !strings.Contains(strings.ReplaceAll(got, `\`, ""), tt.words) || result(answer, "resultType") != `"complete"` {
				t.Errorf("%s with %s: answered %s", tt.tool, tt.capabilities, answer)
			}
		}
		url := s.questions(s.done(s.call(asking("u"), "1", "url", `{}`, "")))
		if got := url.requests[url.keys[0]]; strings.Contains(got, "elicitationId") || !strings.Contains(got, `"url":"https://x"`) {
			t.Errorf("asked %s", got)
		}
	})
}

// TestQuestionIsNeverOfAnotherCall: a call that cannot be asked shares the
// conversation, and is left in peace.
func TestQuestionIsNeverOfAnotherCall(t *testing.T) {
	tr := actors(quiz())
	tr.On = map[string]func(*testkit.Actor, *jsonrpc.Message){"tools/list": func(a *testkit.Actor, m *jsonrpc.Message) {
		a.Memory["list"] = string(m.Raw(jsonrpc.ID))
		a.Say(`{"jsonrpc":"2.0","id":"late","method":"elicitation/create","params":%s}`, form("whose?"))
	}}
	on(t, troupe{Troupe: tr}, func(t *testing.T, s *stage) {
		w := asking("ada")
		s.where(w)
		list := s.send(w, w.request("2", "tools/list", ""))
		s.within(time.Second, "a refusal", func() bool { return len(s.troupe.Told(`"id":"late","error"`)) == 1 })
		time.Sleep(time.Second)
		if got := list.answer(); got != "" {
			t.Errorf("tools/list was answered %s", got)
		}
		for _, a := range s.troupe.Actors() {
			if id := a.Memory["list"]; id != "" {
				a.Reply(id, `{"tools":[]}`)
			}
		}
		if got := s.done(list); result(got, "tools") != `[]` {
			t.Errorf("tools/list was answered %s", got)
		}
	})
}

// TestQuestionOfACancelledCall: what the server asks before it has read the
// cancellation is not put to the client as a question of its next call.
func TestQuestionOfACancelledCall(t *testing.T) {
	tr := actors(quiz())
	tr.On = map[string]func(*testkit.Actor, *jsonrpc.Message){"notifications/cancelled": func(a *testkit.Actor, _ *jsonrpc.Message) {
		time.Sleep(50 * time.Millisecond) // it is busy
		a.Say(`{"jsonrpc":"2.0","id":"stale","method":"elicitation/create","params":%s}`, form("of the cancelled one?"))
	}}
	on(t, troupe{Troupe: tr, max: 1}, func(t *testing.T, s *stage) {
		w := asking("ada")
		first := s.call(w, "1", "sleep", `{"ms":600000}`, "")
		s.within(time.Second, "the call", func() bool { return len(s.troupe.Told(`"sleep"`)) == 1 })
		first.stop()
		q := s.questions(s.done(s.call(w, "2", "once", `{}`, "")))
		if len(q.keys) != 1 || !strings.Contains(q.requests[q.keys[0]], "who?") {
			t.Errorf("asked %q", q.requests)
		}
		if got := s.troupe.Told(`"id":"stale"`); len(got) != 1 || !strings.Contains(got[0], `"error"`) {
			t.Errorf("the server was answered %q", got)
		}
		if got := text(t, s.done(s.call(w, "3", "once", `{}`, q.all(`{"action":"accept"}`)))); got != `got {"action":"accept"}` {
			t.Errorf("answered %s", got)
		}
	})
}

// TestQuestionIsGivenUp by the server, which goes on without it: the retry gets
// the answer that came meanwhile.
func TestQuestionIsGivenUp(t *testing.T) {
	tr := actors(map[string]func(*testkit.ToolCall){
		"hasty": func(c *testkit.ToolCall) {
			c.AskLater("elicitation/create", form("quick?"))
			c.Pause(time.Second)
			c.Withdraw()
			c.Text("without you")
		},
		"fickle": func(c *testkit.ToolCall) {
			c.AskLater("elicitation/create", form("quick?"))
			c.Withdraw()
			c.Pause(time.Second)
			c.Text("never mind")
		},
		"second": func(c *testkit.ToolCall) {
			c.AskLater("elicitation/create", form("first?"))
			c.Pause(time.Second)
			c.Withdraw()
			c.Text("got " + c.Ask("elicitation/create", form("second?")))
		},
	})
	on(t, troupe{Troupe: tr, max: 1}, func(t *testing.T, s *stage) {
		w := asking("ada")
		q := s.questions(s.done(s.call(w, "1", "hasty", `{}`, "")))
		time.Sleep(5 * time.Second)
		if got := s.where(w); got != "0:1" { // the conversation is free by now
			t.Errorf("the next call came to %s", got)
		}
		answer := s.done(s.call(w, "2", "hasty", `{}`, q.all(`{"action":"accept"}`)))
		if text(t, answer) != "without you" || raw(answer, jsonrpc.ID) != "2" {
			t.Errorf("answered %s", answer)
		}
		if got := text(t, s.done(s.call(w, "3", "fickle", `{}`, ""))); got != "never mind" {
			t.Errorf("a question that was given up at once: %s", got)
		}
		q = s.questions(s.done(s.call(w, "4", "second", `{}`, "")))
		time.Sleep(5 * time.Second)
		q = s.questions(s.done(s.call(w, "5", "second", `{}`, q.all(`{"action":"accept"}`))))
		if len(q.keys) != 1 || !strings.Contains(q.requests[q.keys[0]], "second?") {
			t.Errorf("after the first was given up: %q", q.requests)
		}
		if got := text(t, s.done(s.call(w, "6", "second", `{}`, q.all(`{"n":2}`)))); got != `got {"n":2}` {
			t.Errorf("answered %s", got)
		}
	})
}

// TestDeathWhileAsked: the retry hears of it.
func TestDeathWhileAsked(t *testing.T) {
	on(t, troupe{Troupe: actors(quiz())}, func(t *testing.T, s *stage) {
		w := asking("ada")
		q := s.questions(s.done(s.call(w, "1", "once", `{}`, "")))
		for _, a := range s.troupe.Actors() {
			a.Die(errOver)
		}
		synctest.Wait()
		wantError(t, "the retry", s.done(s.call(w, "2", "once", `{}`, q.all(`{}`))), "-32603", `"outcome":"unknown"`, `"id":2`)
	})
}

// TestCancelAfterARetry: what cancelled the first request does not touch the
// second, and the second is cancelled like any other.
func TestCancelAfterARetry(t *testing.T) {
	on(t, troupe{Troupe: actors(map[string]func(*testkit.ToolCall){"ask-and-work": func(c *testkit.ToolCall) {
		c.Ask("elicitation/create", form("go?"))
		if c.Pause(time.Minute) {
			c.Text("worked")
		}
	}})}, func(t *testing.T, s *stage) {
		w := asking("ada")
		for i, second := range []bool{false, true} {
			first := s.call(w, "1", "ask-and-work", `{}`, "")
			q := s.questions(s.done(first))
			retry := s.call(w, "2", "ask-and-work", `{}`, q.all(`{"action":"accept"}`))
			time.Sleep(time.Second)
			first.cancel("its stream is closed")
			if second {
				retry.stop()
				s.within(100*time.Millisecond, "the cancellation", func() bool { return len(s.troupe.Told("notifications/cancelled")) == 1 })
			} else if got := text(t, s.done(retry)); got != "worked" {
				t.Errorf("%d: answered %s", i, got)
			}
		}
	})
}

// TestThousandQuestions: 1,000 clients' calls, each asked, over 64 conversations
// at most, answered in no order: none goes astray.
func TestThousandQuestions(t *testing.T) {
	const calls, places = 1000, 64
	tr := actors(map[string]func(*testkit.ToolCall){"guess": func(c *testkit.ToolCall) {
		c.Text(c.Args + " " + c.Ask("elicitation/create", form(strings.Trim(c.Args, `"`))))
	}})
	on(t, troupe{Troupe: tr, max: places, waiting: calls}, func(t *testing.T, s *stage) {
		var wg sync.WaitGroup
		open, most := 0, 0
		var mu sync.Mutex
		for i := range calls {
			w := asking(fmt.Sprint(i % 100))
			args := fmt.Sprintf(`"call %d"`, i)
			first := s.call(w, "1", "guess", args, "")
			wg.Go(func() {
				wait := func(r *reply) string {
					for r.answer() == "" {
						time.Sleep(100 * time.Millisecond)
					}
					return r.answer()
				}
				q := s.questions(wait(first))
				mu.Lock()
				open++
				most = max(most, open)
				mu.Unlock()
				time.Sleep(time.Duration(i*7919%50) * 100 * time.Millisecond)
				mu.Lock()
				open--
				mu.Unlock()
				has(t, "asked", q.requests[q.keys[0]], fmt.Sprintf(`"message":"call %d"`, i))
				response := fmt.Sprintf(`{"action":"accept","content":{"n":%d}}`, i)
				if got := text(t, wait(s.call(w, "2", "guess", args, q.all(response)))); got != args+" "+response {
					t.Errorf("call %d was answered %s", i, got)
				}
			})
		}
		wg.Wait()
		if n := s.executed("guess"); n != calls {
			t.Errorf("%d executions of %d calls", n, calls)
		}
		if n := s.pool.Live(); n > places {
			t.Errorf("%d servers run", n)
		}
		if most > places || most < places/2 {
			t.Errorf("%d questions were open at once, over %d conversations", most, places)
		}
	})
}

// TestRetryThatComesTooLate: it has found the execution, which is given up
// before the retry can go on with it. It must not wait for ever.
func TestRetryThatComesTooLate(t *testing.T) {
	m, err := jsonrpc.Parse([]byte(ann.request("1", "tools/call", `"name":"x"`)))
	if err != nil {
		t.Fatal(err)
	}
	got := &reply{t: t}
	r := &run{ended: true}
	r.attach(&errand{}, &asked{host: &Host{}, id: []byte("1"), message: m, emit: got.emit})
	wantError(t, "the retry", got.answer(), "-32602", `"outcome":"not_executed"`)
}

// TestProgressWhileAsked waits for the retry, whose stream is the next there is.
func TestProgressWhileAsked(t *testing.T) {
	on(t, troupe{Troupe: actors(map[string]func(*testkit.ToolCall){"busy": func(c *testkit.ToolCall) {
		answer := c.AskLater("elicitation/create", form("who?"))
		c.Progress(`"progress":1`)
		if c.Pause(time.Second) { // the client is being asked
			c.Progress(`"progress":2`)
		}
		c.Text("got " + <-answer)
	}})}, func(t *testing.T, s *stage) {
		w := asking("ada")
		w.meta = `,"progressToken":"a"`
		first := s.call(w, "1", "busy", `{}`, "")
		q := s.questions(s.done(first))
		time.Sleep(2 * time.Second)
		w.meta = `,"progressToken":"b"`
		next := s.call(w, "2", "busy", `{}`, q.all(`{"action":"accept"}`))
		has(t, "the answer", s.done(next), "got", "accept")
		note := func(token string, n int) string {
			return fmt.Sprintf(`[{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%q,"progress":%d}}]`, token, n)
		}
		if got := fmt.Sprint(first.told()); got != note("a", 1) {
			t.Errorf("first told %s", got)
		}
		if got := fmt.Sprint(next.told()); got != note("b", 2) {
			t.Errorf("then told %s", got)
		}
	})
}
