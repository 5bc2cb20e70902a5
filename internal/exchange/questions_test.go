package exchange

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
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
