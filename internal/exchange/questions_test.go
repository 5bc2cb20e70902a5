package exchange

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/testkit"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// form is a question as the server puts it.
func form(message string) string {
	return fmt.Sprintf(`{"mode":"form","message":%q,"requestedSchema":{"type":"object","n":1.0}}`, message)
}

// asked is what an input_required result asks: the keys, in order, and the
// requests behind them.
type questions struct {
	keys     []string
	requests map[string]string
	state    string // JSON
}

func (s *stage) questions(answer string) questions {
	s.t.Helper()
	if result(answer, "resultType") != `"input_required"` {
		s.t.Fatalf("answered %s", answer)
	}
	q := questions{requests: map[string]string{}, state: result(answer, "requestState")}
	for _, m := range jsonrpc.Members([]byte(result(answer, "inputRequests"))) {
		q.keys = append(q.keys, m.Key)
		q.requests[m.Key] = string(m.Value)
	}
	if q.state == "" || len(q.keys) == 0 {
		s.t.Fatalf("nothing is asked: %s", answer)
	}
	return q
}

// retry is what a call's second request adds. answers is JSON.
func (q questions) retry(answers string) string {
	return `,"inputResponses":` + answers + `,"requestState":` + q.state
}

// all answers every question alike.
func (q questions) all(response string) string {
	var out []jsonrpc.Member
	for _, k := range q.keys {
		out = append(out, jsonrpc.Member{Key: k, Value: []byte(response)})
	}
	return q.retry(string(jsonrpc.AppendObject(nil, nil, nil, out...)))
}

// quiz are the tools that ask.
func quiz() map[string]func(*testkit.ToolCall) {
	return map[string]func(*testkit.ToolCall){
		"once": func(c *testkit.ToolCall) { c.Text("got " + c.Ask("elicitation/create", form("who?"))) },
		"twice": func(c *testkit.ToolCall) {
			first := c.Ask("elicitation/create", form("first?"))
			c.Text(first + " then " + c.Ask("sampling/createMessage", `{"messages":[],"maxTokens":1,"tools":[{"name":"t"}]}`))
		},
		"both": func(c *testkit.ToolCall) {
			one, two, three := c.AskLater("elicitation/create", form("a")), c.AskLater("sampling/createMessage", `{"messages":[]}`), c.AskLater("roots/list", "")
			c.Text(<-one + <-two + <-three)
		},
		"odd": func(c *testkit.ToolCall) { c.Text("got " + c.Ask("x/odd", `{}`)) },
		"url": func(c *testkit.ToolCall) {
			c.Text("got " + c.Ask("elicitation/create", `{"mode":"url","url":"https://x","elicitationId":"e-1","message":"go"}`))
		},
	}
}

// executed is how often a tool ran.
func (s *stage) executed(tool string) int {
	return len(s.troupe.Told("tools/call", `"name":"`+tool+`"`))
}

// TestQuestion: one round, from the server's request to its answer, under its
// own id; the call is executed once.
func TestQuestion(t *testing.T) {
	on(t, troupe{Troupe: actors(quiz())}, func(t *testing.T, s *stage) {
		w := asking("ada")
		got := s.done(s.call(w, `"first"`, "once", `{}`, ""))
		q := s.questions(got)
		want := `{"method":"elicitation/create","params":` + form("who?") + `}`
		if len(q.keys) != 1 || q.requests[q.keys[0]] != want {
			t.Errorf("asked %q, want %s", q.requests, want)
		}
		has(t, "the result", got, `"id":"first"`, `"io.modelcontextprotocol/serverInfo":{"name":"troupe","version":"1.0"}`)
		for _, word := range []string{"ttlMs", "cacheScope"} {
			if strings.Contains(got, word) {
				t.Errorf("a question must not be cached: %s", got)
			}
		}
		if n := s.host.InFlight(); n != 0 {
			t.Errorf("%d requests are in flight while the client is asked", n)
		}
		response := `{"action":"accept","content":{"n":1.0, "<":"\u0041"}}`
		answer := s.done(s.call(w, `"second"`, "once", `{}`, q.all(response)))
		if got := text(t, answer); got != "got "+response || raw(answer, jsonrpc.ID) != `"second"` {
			t.Errorf("answered %s", answer)
		}
		if n := s.executed("once"); n != 1 {
			t.Errorf("the tool ran %d times", n)
		}
	})
}

// TestQuestionInResourcesAndPrompts, the other requests that may ask.
func TestQuestionInResourcesAndPrompts(t *testing.T) {
	tr := actors(nil)
	handle := func(a *testkit.Actor, m *jsonrpc.Message) {
		a.Memory["id"] = string(m.Raw(jsonrpc.ID))
		a.Say(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
	}
	tr.On = map[string]func(*testkit.Actor, *jsonrpc.Message){"resources/read": handle, "prompts/get": handle}
	on(t, troupe{Troupe: tr}, func(t *testing.T, s *stage) {
		w := asking("ada")
		for method, params := range map[string]string{"resources/read": `"uri":"x://"`, "prompts/get": `"name":"p"`} {
			got := s.ask(w, "1", method, params)
			q := s.questions(got)
			if strings.Contains(got, "ttlMs") {
				t.Errorf("a question must not be cached: %s", got)
			}
			r := s.send(w, w.request("2", method, params+q.all(`{"roots":[]}`)))
			s.within(time.Second, "the answer at the server", func() bool { return len(s.troupe.Told(`"id":"q"`, `{"roots":[]}`)) > 0 })
			for _, a := range s.troupe.Actors() {
				if id := a.Memory["id"]; id != "" {
					a.Reply(id, `{"messages":[]}`)
					a.Memory["id"] = ""
				}
			}
			if got := s.done(r); result(got, "resultType") != `"complete"` {
				t.Errorf("%s: %s", method, got)
			}
		}
	})
}

// TestQuestionsAtOnce are put in one result.
func TestQuestionsAtOnce(t *testing.T) {
	on(t, troupe{Troupe: actors(quiz())}, func(t *testing.T, s *stage) {
		w := asking("ada")
		q := s.questions(s.done(s.call(w, "1", "both", `{}`, "")))
		var methods []string
		for _, k := range q.keys {
			methods = append(methods, string(jsonrpc.Get([]byte(q.requests[k]), "method")))
		}
		if fmt.Sprint(methods) != `["elicitation/create" "sampling/createMessage" "roots/list"]` {
			t.Fatalf("asked %s", methods)
		}
		if got := q.requests[q.keys[2]]; got != `{"method":"roots/list","params":{}}` {
			t.Errorf("a question without params: %s", got)
		}
		answers := fmt.Sprintf(`{"stranger":{"x":1},%q:{"c":3},%q:{"a":1},%q:{"b":2}}`, q.keys[2], q.keys[0], q.keys[1])
		if got := text(t, s.done(s.call(w, "2", "both", `{}`, q.retry(answers)))); got != `{"a":1}{"b":2}{"c":3}` {
			t.Errorf("answered %s", got)
		}
		if n := s.executed("both"); n != 1 {
			t.Errorf("the tool ran %d times", n)
		}
	})
}

// TestQuestionsInRounds: each round has a state of its own.
func TestQuestionsInRounds(t *testing.T) {
	on(t, troupe{Troupe: actors(quiz())}, func(t *testing.T, s *stage) {
		w := asking("ada")
		first := s.questions(s.done(s.call(w, "1", "twice", `{}`, "")))
		second := s.questions(s.done(s.call(w, "2", "twice", `{}`, first.all(`{"action":"decline"}`))))
		if second.state == first.state || slices.Contains(first.keys, second.keys[0]) {
			t.Errorf("the rounds cannot be told apart: %v and %v", first, second)
		}
		has(t, "the second question", second.requests[second.keys[0]], `"sampling/createMessage"`, `"tools":[{"name":"t"}]`)
		wantError(t, "the state of the first round", s.done(s.call(w, "3", "twice", `{}`, first.all(`{"action":"accept"}`))), "-32602")
		if got := text(t, s.done(s.call(w, "4", "twice", `{}`, second.all(`{"role":"x"}`)))); got != `{"action":"decline"} then {"role":"x"}` {
			t.Errorf("answered %s", got)
		}
		if n := s.executed("twice"); n != 1 {
			t.Errorf("the tool ran %d times", n)
		}
	})
}

// TestMissingAnswers are asked for again, and so are those that are no results.
func TestMissingAnswers(t *testing.T) {
	on(t, troupe{Troupe: actors(quiz())}, func(t *testing.T, s *stage) {
		w := asking("ada")
		q := s.questions(s.done(s.call(w, "1", "both", `{}`, "")))
		again := func(what, rest string, want ...string) {
			t.Helper()
			next := s.questions(s.done(s.call(w, "2", "both", `{}`, rest)))
			if fmt.Sprint(next.keys) != fmt.Sprint(want) {
				t.Errorf("%s: asked %q, want %q", what, next.keys, want)
			}
			if next.state == q.state {
				t.Errorf("%s: the state is that of the round before", what)
			}
			q = next
		}
		keys := q.keys
		again("no responses", `,"requestState":`+q.state, keys...)
		again("null", q.retry(`null`), keys...)
		again("an array", q.retry(`[]`), keys...)
		again("a stranger's", q.retry(`{"x":{}}`), keys...)
		again("the middle one", q.retry(fmt.Sprintf(`{%q:{"b":2}}`, keys[1])), keys[0], keys[2])
		again("no results", q.retry(fmt.Sprintf(`{%q:5,%q:null}`, keys[0], keys[2])), keys[0], keys[2])
		again("one that was answered", q.retry(fmt.Sprintf(`{%q:{"b":9}}`, keys[1])), keys[0], keys[2])
		if got := text(t, s.done(s.call(w, "3", "both", `{}`, q.all(`{"z":0}`)))); got != `{"z":0}{"b":2}{"z":0}` {
			t.Errorf("answered %s", got)
		}
		if n := s.executed("both"); n != 1 {
			t.Errorf("the tool ran %d times", n)
		}
	})
}

// TestForeignState is refused, whatever is wrong with it, and does not harm who
// it belongs to.
func TestForeignState(t *testing.T) {
	on(t, troupe{Troupe: actors(quiz())}, func(t *testing.T, s *stage) {
		w := asking("ada")
		args := `{"a":1,"b":[true,{"c":"d"}]}`
		q := s.questions(s.done(s.call(w, "1", "once", args, "")))
		var state string
		if err := json.Unmarshal([]byte(q.state), &state); err != nil {
			t.Fatal(err)
		}
		refused := func(what string, w who, tool, args, state string) {
			t.Helper()
			rest := `,"inputResponses":{` + fmt.Sprintf("%q", q.keys[0]) + `:{"action":"accept"}},"requestState":` + state
			wantError(t, what, s.done(s.call(w, "2", tool, args, rest)), "-32602", `"outcome":"not_executed"`)
		}
		quote := func(s string) string { b, _ := json.Marshal(s); return string(b) }
		eve := asking("ada")
		eve.principal = "eve"
		refused("another principal", eve, "once", args, q.state)
		refused("another tool", w, "twice", args, q.state)
		refused("other arguments", w, "once", `{"a":2,"b":[true,{"c":"d"}]}`, q.state)
		refused("fewer arguments", w, "once", `{"a":1}`, q.state)
		for i := range len(state) {
			changed := []byte(state)
			if changed[i]++; changed[i] > 'z' {
				changed[i] = 'A'
			}
			refused(fmt.Sprintf("changed at %d", i), w, "once", args, quote(string(changed)))
		}
		for _, bad := range []string{"", "x", state[:len(state)-1], state + "A", state + "=", state + "\n", state[:5] + "\r\n" + state[5:], " " + state, state + state, strings.ToUpper(state)} {
			refused(bad, w, "once", args, quote(bad))
		}
		for _, bad := range []string{`null`, `7`, `{}`, `[]`, `true`, `""`} {
			refused(bad, w, "once", args, bad)
		}
		other := newStage(t, troupe{Troupe: actors(quiz())})
		other.host.o.Seal = sealOf(t, "another key of16")
		refused("sealed with another key", w, "once", args, other.questions(other.done(other.call(w, "1", "once", args, ""))).state)
		other.close()
		third := newStage(t, troupe{Troupe: actors(quiz())}) // the same key, after a restart
		refused("of an earlier life", w, "once", args, third.questions(third.done(third.call(w, "1", "once", args, ""))).state)
		third.close()
		if n := s.executed("once") + s.executed("twice"); n != 1 {
			t.Errorf("the tools ran %d times", n)
		}
		// The order of members and white space do not count.
		rest := q.all(`{"action":"accept"}`)
		retry := w.request("3", "tools/call", `"arguments": { "b":[ true,{"c":"d"}] ,"a":1},"name":"once"`+rest)
		if got := text(t, s.done(s.send(w, retry))); got != `got {"action":"accept"}` {
			t.Errorf("then answered %s", got)
		}
		refused("used before", w, "once", args, q.state)
	})
}

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
