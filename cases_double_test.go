package holdfast_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Cases of kind d, and those of kind g that end calls: what may have reached a
// server is never sent again, and everybody gets one answer, of his own.

// C19. The server reads a call, does its work and is gone without an answer, or
// in the midst of one. The client alone decides whether to try again.
func TestC19NothingIsSentAgain(t *testing.T) {
	for name, last := range map[string]string{
		"nothing": "", "half an answer": `{"jsonrpc":"2.0","id":1,"result":{"structuredContent":"do`, "a report": "progress",
	} {
		t.Run(name, func(t *testing.T) {
			farmOf := func() *farm {
				return &farm{tools: map[string]func(*fakeCall){"pay": func(c *fakeCall) {
					c.pause(time.Second)
					switch {
					case last == "progress":
						c.progress(`"progress":1`)
					case last != "":
						_, _ = io.WriteString(c.k.w, last)
					}
					_ = c.k.w.(io.Closer).Close()
				}}}
			}
			everyWay(t, holdfast.Timers{}, farmOf, func(t *testing.T, b *bench, w way) {
				c := w.open(b, "{}")
				w.call(c, "1", "pay", `{"amount":7}`, `1`)
				w.call(c, "2", "sleep", `{"ms":60000}`, "")
				for _, id := range []string{"1", "2"} {
					wantAnswer(t, c.answer(id), `"error":{"code":-32603`, `"outcome":"unknown"`)
				}
				<-time.After(5 * time.Minute)
				wantExecuted(t, b.farm, "pay", 1)
				wantExecuted(t, b.farm, "sleep", 1)
				// Its wish to try once more is none to find an old failure.
				wantAnswer(t, w.ask(c, "3", "pay", `{"amount":7}`, ""), `"outcome":"unknown"`)
				wantExecuted(t, b.farm, "pay", 2)
				<-time.After(time.Minute)
				wantAnswer(t, w.ask(c, "4", "echo", `{"n":4}`, ""), `{"n":4}`)
			})
		})
	}
}

// C19: what never reached a server says so.
func TestC19NotExecuted(t *testing.T) {
	for name, open := range bindings {
		t.Run(name, func(t *testing.T) {
			virtually(t, setup{farm: mortal()}, func(t *testing.T, b *bench) {
				c := open(b, v06)
				refused := ""
				for i := 0; i < 16 && !strings.Contains(refused, "not_executed"); i++ {
					c.ask(toolCall(fmt.Sprintf(`"die %d"`, i), "die", `{}`, ""))
					refused = c.ask(toolCall(fmt.Sprint(i), "echo", `{}`, ""))
				}
				before := b.farm.executed()["job"]
				wantAnswer(t, c.ask(job(`"now"`, args)), `"error":{"code":-32603`, `"outcome":"not_executed"`)
				<-time.After(time.Minute)
				wantExecuted(t, b.farm, "job", before)
				wantAnswer(t, c.ask(job(`"later"`, args)), done)
			})
		})
	}
}

// C40, the server's part: a session ends while three calls and a GET are under
// way. Each call has one answer, the GET ends, the id is unknown from then on,
// and to begin anew is possible.
func TestC40SessionEndsUnderItsCalls(t *testing.T) {
	virtually(t, setup{farm: &farm{}}, func(t *testing.T, b *bench) {
		c := b.streamable(v11)
		id := c.header.Get("Mcp-Session-Id")
		get := c.listen("/mcp", "")
		var posts []*stream
		for i := range 3 {
			posts = append(posts, c.send(toolCall(fmt.Sprint(i), "sleep", `{"ms":60000}`, "")))
		}
		b.within(bound, "the calls", func() bool { return b.farm.executed()["sleep"] == 3 })
		thief := b.client()
		if s := thief.do(http.MethodDelete, "/mcp", "", "Mcp-Session-Id", id).done(); s.status != http.StatusNoContent {
			t.Errorf("DELETE was answered with %d", s.status)
		}
		for i, s := range posts {
			wantAnswer(t, c.answer(fmt.Sprint(i)), `"error":{"code":-32000`, `"outcome":"unknown"`)
			s.done()
		}
		get.done()
		wantRefused(t, "a call", c.send(toolCall("9", "echo", `{}`, "")), http.StatusNotFound, "-32001")
		wantRefused(t, "a GET", c.do(http.MethodGet, "/mcp", ""), http.StatusNotFound, "-32001")
		again := b.streamable(v11)
		if again.header.Get("Mcp-Session-Id") == id {
			t.Error("the new session has the id of the old one")
		}
		wantAnswer(t, again.ask(toolCall("1", "echo", `{"n":1}`, "")), `{"n":1}`)
		wantExecuted(t, b.farm, "sleep", 3)
	})
}

// C41: a client that comes back before its old connection is known to be dead is
// not turned away; each message goes to one connection.
func TestC41SecondStreamIsNoConflict(t *testing.T) {
	virtually(t, setup{farm: jobs()}, func(t *testing.T, b *bench) {
		c := b.streamable(v11)
		gets := []*stream{c.listen("/mcp", ""), c.listen("/mcp", ""), c.listen("/mcp", "")}
		for i, s := range gets {
			if s.status != http.StatusOK {
				t.Errorf("GET %d was answered with %d", i, s.status)
			}
		}
		b.farm.all()[0].line(listChanged)
		c.await("list_changed")
		<-time.After(time.Second)
		if n := len(c.find("list_changed")); n != 1 {
			t.Errorf("one message came %d times", n)
		}
		post := c.send(job("1", args))
		c.await(`"progress":1`)
		back := c.listen("/mcp", post.position()) // while the POST's stream is open
		if back.status != http.StatusOK {
			t.Errorf("resuming was answered with %d", back.status)
		}
		wantAnswer(t, c.answer("1"), done)
		post.done()
		back.done()
		wantProgress(t, c, `"t1"`, "1", "2")
		wantExecuted(t, b.farm, "job", 1)
	})
}

// C43, without authentication: a session's id cannot be guessed, and is all that
// there is to it; who has another's credentials finds nothing by his calls or
// keys (TestAdoptOfOthersIsRefused, TestKeysOfOthers).
func TestC43SessionIDs(t *testing.T) {
	virtually(t, setup{farm: &farm{}, options: holdfast.Options{Server: holdfast.Server{Isolation: holdfast.Shared}}}, func(t *testing.T, b *bench) {
		seen, alike := map[string]bool{}, 0
		for i := range 40 {
			var id string
			if i%2 == 0 {
				id = b.streamable(v11).header.Get("Mcp-Session-Id")
			} else {
				_, id, _ = strings.Cut(b.legacy(v2024).endpoint, "sessionId=")
			}
			if len(id) < 26 || seen[id] || strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" { // 5 bits each
				t.Errorf("session id %q", id)
			}
			for other := range seen {
				if other[:4] == id[:4] {
					alike++
				}
			}
			seen[id] = true
		}
		if alike > 1 { // one pair in 780 is, in one run of 1,350; two are in one of millions
			t.Errorf("%d pairs of ids begin alike: %v", alike, seen)
		}
	})
}

// C45, with what outlives a session: two clients of one server use the same ids
// and tokens, are both lost, and both come back; the answers are not mixed up,
// and what comes late for a deleted session is nobody's.
func TestC45LostCallsAreNotMixedUp(t *testing.T) {
	f := &farm{tools: map[string]func(*fakeCall){"whose": func(c *fakeCall) {
		c.pause(2 * time.Second)
		c.progress(`"progress":1,"message":` + string(jsonrpc.Get([]byte(c.args), "who")))
		c.pause(time.Second)
		c.reply(`{"structuredContent":` + c.args + `}`)
	}}}
	for _, binding := range []string{"streamable", "sse"} {
		t.Run(binding, func(t *testing.T) {
			o := holdfast.Options{Server: holdfast.Server{Isolation: holdfast.Shared}}
			virtually(t, setup{farm: f, options: o}, func(t *testing.T, b *bench) {
				info := func(who string) string { return fmt.Sprintf(`{"name":%q,"version":"1"}`, who) }
				call := func(who string) string {
					return toolCall("1", "whose", fmt.Sprintf(`{"who":%q}`, who), `{"progressToken":1}`)
				}
				for _, who := range []string{"A", "B", "C"} {
					c := b.visit(binding, info(who))
					s := c.send(call(who))
					b.within(bound, "the call", func() bool { return len(f.told(`"tools/call"`, `{"who":"`+who+`"}`)) == 1 })
					c.lose(s, "1")
					if who == "C" && binding == "streamable" {
						c.do(http.MethodDelete, "/mcp", "").done()
					}
				}
				back := map[string]*client{"B": b.visit(binding, info("B")), "A": b.visit(binding, info("A")), "D": b.visit(binding, info("D"))}
				for who, c := range back {
					c.send(call(who))
				}
				for who, c := range back {
					mark := adopted
					if who == "D" {
						mark = "!adopted"
					}
					wantAnswer(t, c.answer("1"), `{"who":"`+who+`"}`, mark)
					for _, r := range c.find("notifications/progress") {
						wantAnswer(t, r.raw, `"message":"`+who+`"`, `"progressToken":1,`)
					}
				}
				<-time.After(10 * time.Second)
				wantExecuted(t, f, "whose", 4)
			})
		})
	}
}
