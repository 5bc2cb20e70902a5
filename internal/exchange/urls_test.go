package exchange

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/testkit"
)

// wantsURLs is an error of revision 2025-11-25; elicitations are JSON.
func wantsURLs(c *testkit.ToolCall, elicitations ...string) {
	c.Say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32042,"message":"go","data":{"elicitations":[%s]}}}`, c.ID, strings.Join(elicitations, ","))
}

func elicitation(n int) string {
	return fmt.Sprintf(`{"mode":"url","elicitationId":"e%d","url":"https://x/%d","message":"open <%d>"}`, n, n, n)
}

// gate are tools that want URLs opened: visit once for each server, maze every
// time.
func gate() *testkit.Troupe {
	return actors(map[string]func(*testkit.ToolCall){
		"visit": func(c *testkit.ToolCall) {
			if len(c.Told(`"visit"`)) == 1 {
				wantsURLs(c, elicitation(1), elicitation(2))
				return
			}
			c.Text("visited as " + strconv.Itoa(c.Number) + " with " + c.Args)
		},
		"maze": func(c *testkit.ToolCall) { wantsURLs(c, elicitation(len(c.Told(`"maze"`)))) },
		"form": func(c *testkit.ToolCall) { wantsURLs(c, `{"mode":"form","message":"who?"}`) },
		"many": func(c *testkit.ToolCall) {
			wantsURLs(c, strings.Split(strings.Repeat(elicitation(1)+"|", 17), "|")[:17]...)
		},
		"empty": func(c *testkit.ToolCall) { wantsURLs(c) },
	})
}

// TestURLError becomes a question, and the retry a second call of the server
// that gave it.
func TestURLError(t *testing.T) {
	on(t, troupe{Troupe: gate(), max: 1}, func(t *testing.T, s *stage) {
		ada := asking("ada")
		q := s.questions(s.done(s.call(ada, "1", "visit", `{"n":1.0}`, "")))
		want := `{"method":"elicitation/create","params":{"mode":"url","url":"https://x/1","message":"open <1>"}}`
		if len(q.keys) != 2 || q.requests[q.keys[0]] != want || strings.Contains(q.requests[q.keys[1]], "elicitationId") {
			t.Fatalf("asked %v, want %s and another", q.requests, want)
		}
		one := s.done(s.call(ada, "2", "visit", `{"n":1.0}`, q.retry(fmt.Sprintf(`{%q:{"action":"accept"}}`, q.keys[0]))))
		again := s.questions(one)
		if len(again.keys) != 1 || again.keys[0] != q.keys[1] {
			t.Fatalf("asked %v again", again.requests)
		}
		got := s.done(s.call(ada, `"3"`, "visit", `{"n":1.0}`, again.all(`{"action":"accept"}`)))
		if text(t, got) != `visited as 0 with {"n":1.0}` || !strings.Contains(got, `"id":"3"`) {
			t.Errorf("answered %s", got)
		}
		if n := len(s.troupe.Told(`"visit"`)); n != 2 || len(s.troupe.Told("inputResponses")) != 0 {
			t.Errorf("the server was called %d times", n)
		}
		wantError(t, "the state, once more", s.done(s.call(ada, "4", "visit", `{"n":1.0}`, again.all(`{"action":"accept"}`))), "-32602")
		if text(t, s.done(s.call(ada, "5", "sleep", `{}`, ""))) != "slept" {
			t.Error("the conversation is not free")
		}
	})
}

// TestURLErrorToTheEnd: the client hears of the error itself where it will not,
// or cannot, open URLs; and a server that never has enough of them is not
// called for ever.
func TestURLErrorToTheEnd(t *testing.T) {
	on(t, troupe{Troupe: gate(), max: 1}, func(t *testing.T, s *stage) {
		ada := asking("ada")
		passed := func(what, answer string) {
			t.Helper()
			wantError(t, what, answer, "-32603", "opened a URL", `"elicitations":[`)
		}
		for i, action := range []string{"decline", "cancel"} {
			q := s.questions(s.done(s.call(ada, "1", "maze", `{}`, "")))
			passed(action, s.done(s.call(ada, "2", "maze", `{}`, q.all(`{"action":"`+action+`"}`))))
			if n := len(s.troupe.Told(`"maze"`)); n != i+1 {
				t.Errorf("%s: the server was called %d times", action, n)
			}
		}
		answer := s.done(s.call(ada, "3", "maze", `{}`, ""))
		for rounds := 0; ; rounds++ {
			if code(answer) != "" {
				if passed("a maze", answer); rounds != maxURLRounds {
					t.Errorf("after %d rounds", rounds)
				}
				break
			}
			answer = s.done(s.call(ada, "4", "maze", `{}`, s.questions(answer).all(`{"action":"accept"}`)))
		}
		for _, tool := range []string{"form", "many", "empty"} {
			passed(tool, s.done(s.call(ada, "5", tool, `{}`, "")))
		}
		for _, capabilities := range []string{`{}`, `{"elicitation":{}}`, `{"elicitation":{"form":{}}}`, `{"sampling":{}}`} {
			passed(capabilities, s.done(s.call(who{name: "b", capabilities: capabilities}, "6", "maze", `{}`, "")))
		}
	})
}

// TestURLErrorThatNobodyFollows: the conversation is free once the question has
// had its time.
func TestURLErrorThatNobodyFollows(t *testing.T) {
	on(t, troupe{Troupe: gate(), max: 1}, func(t *testing.T, s *stage) {
		ada := asking("ada")
		q := s.questions(s.done(s.call(ada, "1", "maze", `{}`, "")))
		waits := s.call(ada, "2", "sleep", `{}`, "")
		time.Sleep(9 * time.Minute)
		if waits.answer() != "" {
			t.Error("the conversation was given away")
		}
		time.Sleep(time.Minute + settleTime)
		if text(t, s.done(waits)) != "slept" {
			t.Error("the conversation is not free")
		}
		wantError(t, "too late", s.done(s.call(ada, "3", "maze", `{}`, q.all(`{"action":"accept"}`))), "-32602")
		if n := len(s.troupe.Told(`"maze"`)); n != 1 {
			t.Errorf("the server was called %d times", n)
		}
	})
}
