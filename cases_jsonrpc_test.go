package holdfast_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Cases of kind h: what JSON-RPC says is carried to the letter.

// hold answers with its arguments, after so long that calls overlap.
var hold = map[string]func(*fakeCall){"hold": func(c *fakeCall) {
	if c.pause(300 * time.Millisecond) {
		c.reply(`{"content":[],"structuredContent":` + c.args + `}`)
	}
}}

// C44. What our own client makes of an id that comes back as another type
// waits for remote servers.
func TestC44IDsComeBackAsSpelled(t *testing.T) {
	ids := []string{
		`0`, `""`, `"0"`, `"init-1"`, `-1`, `9007199254740992`, `9007199254740993`, `18446744073709551615`,
		`123456789012345678901234567890`, `1e3`, `1000`, `1.0`, `1`, `"1"`, `"\u0041"`, `"é<&>"`, `"a\"b\\"`,
	}
	for name, open := range bindings {
		t.Run(name, func(t *testing.T) {
			virtually(t, setup{farm: &farm{tools: hold}}, func(t *testing.T, b *bench) {
				c := open(b, v06)
				for i, id := range ids {
					c.send(toolCall(id, "hold", fmt.Sprintf(`{"n":%d}`, i), ""))
				}
				for i, id := range ids {
					want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[],"structuredContent":{"n":%d}}}`, id, i)
					if got := c.answer(id); got != want {
						t.Errorf("got  %s\nwant %s", got, want)
					}
				}
			})
		})
	}
}

func TestC44IllegalAndRepeatedIDs(t *testing.T) {
	for name, open := range bindings {
		t.Run(name, func(t *testing.T) {
			f := &farm{tools: hold}
			virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
				c := open(b, v06)
				for _, id := range []string{`1.5`, `null`, `true`, `[1]`, `{}`, `1e-3`} {
					before := len(c.find("-32600"))
					s := c.send(toolCall(id, "echo", `{"illegal":1}`, ""))
					c.b.within(bound, "a refusal of id "+id, func() bool { return len(c.find("-32600")) == before+1 })
					if got := c.find("-32600")[before].raw; strings.Contains(got, `"id"`) {
						t.Errorf("id %s: the refusal has an id: %s", id, got)
					}
					if s.done(); name != "stdio" && s.status != http.StatusBadRequest {
						t.Errorf("id %s: answered with %d", id, s.status)
					}
				}
				if got := f.told("illegal"); len(got) > 0 {
					t.Errorf("the server was told %q", got)
				}
				c.send(toolCall(`7`, "hold", `{"first":1}`, "")) // the one that holds the id
				b.within(bound, "the call to arrive", func() bool { return len(f.told("first")) == 1 })
				c.send(toolCall(`7`, "hold", `{"second":1}`, ""))
				c.await(`"id":7`, "-32600", "in flight")
				c.await(`"id":7`, `{"first":1}`)
				if got := f.told("second"); len(got) > 0 {
					t.Errorf("the server was told %q", got)
				}
				c.ask(toolCall(`8`, "hold", `{}`, ""))
			})
		})
	}
}

// shared makes one server serve all sessions.
func shared() holdfast.Options {
	return holdfast.Options{Server: holdfast.Server{Isolation: holdfast.Shared}}
}

func TestC45EqualIDsOnASharedServer(t *testing.T) {
	// The first to be asked is the last to answer.
	f := &farm{tools: map[string]func(*fakeCall){"mirror": func(c *fakeCall) {
		d := time.Second
		if strings.Contains(c.args, "slow") {
			d = 3 * time.Second
		}
		if c.pause(d) {
			c.reply(`{"structuredContent":` + c.args + `}`)
		}
	}}}
	virtually(t, setup{options: shared(), farm: f}, func(t *testing.T, b *bench) {
		clients := map[string]*client{"slow A": b.streamable(v11), "B": b.streamable(v06), "slow C": b.legacy(v2024), "D": b.piped(v03)}
		for round := range 3 {
			for who, c := range clients {
				c.send(toolCall(fmt.Sprint(round), "mirror", `{"who":"`+who+`"}`, `{"progressToken":1}`))
			}
			for who, c := range clients {
				want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"structuredContent":{"who":%q}}}`, round, who)
				if got := c.answer(fmt.Sprint(round)); got != want {
					t.Errorf("%s got %s", who, got)
				}
			}
		}
		for who, c := range clients { // nothing of anybody else's
			for _, r := range c.find(`"who"`) {
				if !strings.Contains(r.raw, `"`+who+`"`) {
					t.Errorf("%s received %s", who, r.raw)
				}
			}
		}
		ids := map[string]bool{}
		for _, line := range f.told("tools/call") {
			m, _ := jsonrpc.Parse([]byte(line))
			if ids[string(m.Raw(jsonrpc.ID))] {
				t.Errorf("the server was asked twice under id %s", m.Raw(jsonrpc.ID))
			}
			ids[string(m.Raw(jsonrpc.ID))] = true
		}
		if n := len(f.all()); n != 1 {
			t.Errorf("%d servers", n)
		}
	})
}

// The answer to a call of a closed session goes nowhere, and cancelled ids are
// those of their own session.
func TestC45LateAnswersAndCancelsStayWithTheirSession(t *testing.T) {
	f := &farm{}
	virtually(t, setup{options: shared(), farm: f}, func(t *testing.T, b *bench) {
		a, other := b.streamable(v11), b.streamable(v11)
		a.send(toolCall("1", "sleep", `{"ms":5000,"of":"a"}`, "")).open()
		other.send(toolCall("1", "sleep", `{"ms":5000,"of":"other"}`, "")).open()
		var up string
		for _, line := range f.told(`"of":"a"`) {
			m, _ := jsonrpc.Parse([]byte(line))
			up = string(m.Raw(jsonrpc.ID))
		}
		a.do(http.MethodDelete, "/mcp", "").done()
		if got := a.answer("1"); !strings.Contains(got, `"outcome":"unknown"`) {
			t.Errorf("the call of the deleted session was answered with %s", got)
		}
		b.within(bound, "its cancellation", func() bool { return len(f.told("notifications/cancelled")) == 1 })
		if got := f.told("notifications/cancelled")[0]; !strings.Contains(got, `"requestId":`+up+`,`) {
			t.Errorf("cancelled was %s, want id %s", got, up)
		}
		if got := other.answer("1"); !strings.Contains(got, "slept") {
			t.Errorf("the other session's call was answered with %s", got)
		}
	})
}

// asking is a tool that puts a question under an id of the server's own, which
// is the same in every server, and answers with what came back.
func asking(method string) *farm {
	f := &farm{}
	f.tools = map[string]func(*fakeCall){"ask": func(c *fakeCall) {
		c.k.line(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"message":` + c.args + `}}`)
		for range 1000 {
			for _, line := range c.k.told(`"id":1,"result"`) {
				c.reply(`{"structuredContent":` + line + `}`)
				return
			}
			for _, line := range c.k.told(`"id":1,"error"`) {
				c.reply(`{"structuredContent":` + line + `}`)
				return
			}
			c.pause(10 * time.Millisecond)
		}
	}}
	return f
}

// Two servers ask under the same id; the clients' answers must not cross.
func TestC45QuestionsReachTheirClient(t *testing.T) {
	virtually(t, setup{farm: asking("elicitation/create")}, func(t *testing.T, b *bench) {
		one, two, old := b.client(), b.client(), b.client()
		old.listen("/sse", "")
		minted := map[string]bool{}
		clients := map[string]*client{"one": one, "two": two, "old": old}
		for who, c := range clients {
			c.handshake(v06, `{"elicitation":{}}`)
			c.send(toolCall("1", "ask", `"`+who+`"`, ""))
		}
		for who, c := range clients {
			q := c.await("elicitation/create")
			m, _ := jsonrpc.Parse([]byte(q.raw))
			id := string(m.Raw(jsonrpc.ID))
			if !strings.Contains(q.raw, `"message":"`+who+`"`) || minted[id] {
				t.Errorf("%s was asked %s", who, q.raw)
			}
			minted[id] = true
			for _, thief := range clients { // an answer counts only from who was asked
				if thief != c {
					thief.send(`{"jsonrpc":"2.0","id":` + id + `,"result":{"by":"thief"}}`).done()
				}
			}
			c.send(`{"jsonrpc":"2.0","id":` + id + `,"result":{"by":"` + who + `"}}`).done()
			c.send(`{"jsonrpc":"2.0","id":` + id + `,"result":{"by":"late"}}`)
			if got := c.answer("1"); !strings.Contains(got, `{"jsonrpc":"2.0","id":1,"result":{"by":"`+who+`"}}`) {
				t.Errorf("%s's server heard %s", who, got)
			}
		}
		if late := b.farm.told(`"late"`); len(late) > 0 {
			t.Errorf("a second answer went on: %q", late)
		}
	})
}

// On a shared server a question belongs to the only call in flight, if its
// client can answer; else it is refused with the reason.
func TestC45QuestionsOfASharedServer(t *testing.T) {
	for name, tt := range map[string]struct{ capabilities, busy, want string }{
		"one call":           {`{"elicitation":{}}`, "", `"result":{"by":"asked"}`},
		"undeclared":         {`{}`, "", "did not declare"},
		"two calls":          {`{"elicitation":{}}`, toolCall("9", "sleep", `{"ms":5000}`, ""), "--isolation session"},
		"one call, one idle": {`{"elicitation":{}}`, body("9", "tools/list", ""), `"result":{"by":"asked"}`},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, setup{options: shared(), farm: asking("elicitation/create")}, func(t *testing.T, b *bench) {
				c, other := b.client(), b.streamable(v11)
				c.handshake(v06, tt.capabilities)
				if tt.busy != "" {
					other.send(tt.busy).open()
				}
				c.send(toolCall("1", "ask", `"?"`, ""))
				if strings.Contains(tt.want, "result") {
					id := raw(c.await("elicitation/create").raw, jsonrpc.ID)
					other.send(`{"jsonrpc":"2.0","id":` + id + `,"result":{"by":"thief"}}`).done()
					c.send(`{"jsonrpc":"2.0","id":` + id + `,"result":{"by":"asked"}}`)
				}
				if got := c.answer("1"); !strings.Contains(got, tt.want) {
					t.Errorf("the server heard %s", got)
				}
				if got := other.find("elicitation/create"); len(got) > 0 {
					t.Errorf("the other client was asked %q", got[0].raw)
				}
			})
		})
	}
}
