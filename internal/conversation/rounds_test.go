package conversation

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// required is an input_required result; requests and state are raw JSON, ""
// for none.
func required(requests, state string) string {
	out := `{"resultType":"input_required"`
	if requests != "" {
		out += `,"inputRequests":` + requests
	}
	if state != "" {
		out += `,"requestState":` + state
	}
	return out + `}`
}

const elicit = `{"method":"elicitation/create","params":{"mode":"form","message":"<who?>","requestedSchema":{"n":1.0}}}`

// oddState is a state that no decoder may touch: C70.
const oddState = `"a b==\u2028\u0041<é>"`

// asking begins a call of the client and asks it the questions; it returns the
// call, and what the server was sent.
func (s *stage) asking(c *client, srv *server, result string) (*Call, parsed) {
	s.t.Helper()
	call := c.call(`{"jsonrpc":"2.0","id":"\u0041","method":"tools/call","params":{"name":"x","arguments":{"n":1.0},"_meta":{"progressToken":"tok"}}}`)
	up := srv.next()
	srv.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, up.ID, result)
	return call, up
}

// reply answers a question of the client's.
func (c *client) reply(id []byte, answer string) {
	c.conv.Reply(c, c.message(`{"jsonrpc":"2.0","id":%s,%s}`, id, answer))
	synctest.Wait()
}

var minted = regexp.MustCompile(`^"hf-[A-Z2-7]{10}-\d+"$`)

// TestRound: an input_required result becomes a request to the client, its
// answer the retry: a new id, the same params, and the state byte for byte.
func TestRound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c, srv := s.crossed("ada", everything)
		call, first := s.asking(c, srv, required(`{"\u0061 key":`+elicit+`}`, oddState))
		c.mu.Lock()
		of := c.of
		c.mu.Unlock()
		told := c.told()
		if len(told) != 1 || of[0] != call {
			t.Fatalf("the client was asked %q, of its call: %v", told, of)
		}
		q := parse(t, told[0])
		if want := `{"mode":"form","message":"<who?>","requestedSchema":{"n":1.0}}`; q.Method != "elicitation/create" || string(q.Params) != want || !minted.Match(q.ID) {
			t.Errorf("asked %s", q.line)
		}
		c.reply(q.ID, `"result":{"action":"accept","content":{"n":1.0, "<":"\u0041"}}`)
		retry := srv.next()
		if string(retry.ID) == string(first.ID) || retry.Method != "tools/call" {
			t.Errorf("the retry is %s after %s", retry.line, first.line)
		}
		params := func(p parsed, key string) string { return string(jsonrpc.Get(p.Params, key)) }
		for key, want := range map[string]string{
			"name": `"x"`, "arguments": `{"n":1.0}`, "requestState": oddState,
			"inputResponses": `{"a key":{"action":"accept","content":{"n":1.0, "<":"\u0041"}}}`,
		} {
			if got := params(retry, key); got != want {
				t.Errorf("%s of the retry is %s, want %s", key, got, want)
			}
		}
		meta := strings.Replace(params(first, "_meta"), `"progressToken":`+string(first.ID), `"progressToken":`+string(retry.ID), 1)
		if got := params(retry, "_meta"); got != meta {
			t.Errorf("_meta of the retry is\n%s, want\n%s", got, meta)
		}
		srv.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, retry.ID)
		if got := c.told(); len(got) != 1 || !strings.Contains(got[0], `"progressToken":"tok"`) {
			t.Errorf("progress of the retry: %q", got)
		}
		c.reply(q.ID, `"result":{"action":"decline"}`) // again
		srv.say(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","content":[]}}`, retry.ID)
		if got := c.answer(call); got != `{"jsonrpc":"2.0","id":"\u0041","result":{"content":[]}}` {
			t.Errorf("answered %s", got)
		}
		equal(t, "then the server was sent", srv.heard(), nil)
		if s.conv.InFlight() != 0 {
			t.Errorf("%d in flight", s.conv.InFlight())
		}
		s.end()
	})
}

// TestRoundOfSeveralQuestions and several rounds.
func TestRoundOfSeveralQuestions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c, srv := s.crossed("ada", everything)
		call, _ := s.asking(c, srv, required(`{"a":`+elicit+`,"b":{"method":"sampling/createMessage","params":{"messages":[],"tools":[]}},"c":{"method":"roots/list"}}`, ""))
		asked := c.told()
		equal(t, "asked", methods(t, asked), []string{
			"elicitation/create{mode:form,message:<who?>,requestedSchema:{n:1.0}}", "sampling/createMessage{messages:[],tools:[]}", "roots/list",
		})
		ids := map[string]bool{}
		for i := range asked {
			q := parse(t, asked[len(asked)-1-i]) // answered in another order
			ids[string(q.ID)] = true
			equal(t, "before all is answered the server was sent", srv.heard(), nil)
			c.reply(q.ID, fmt.Sprintf(`"result":{"of":%q}`, q.Method))
		}
		if len(ids) != 3 {
			t.Errorf("the questions have ids %v", ids)
		}
		retry := srv.next()
		responses := jsonrpc.Get(retry.Params, "inputResponses")
		for key, want := range map[string]string{"a": "elicitation/create", "b": "sampling/createMessage", "c": "roots/list"} {
			if got := string(jsonrpc.Get(responses, key)); got != fmt.Sprintf(`{"of":%q}`, want) {
				t.Errorf("the response %s is %s", key, got)
			}
		}
		if jsonrpc.Get(retry.Params, "requestState") != nil {
			t.Errorf("a state that there is not: %s", retry.line)
		}
		// A second round, of a state alone: nobody is to be asked.
		srv.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, retry.ID, required("", `"later"`))
		second := srv.next()
		if string(jsonrpc.Get(second.Params, "requestState")) != `"later"` || jsonrpc.Get(second.Params, "inputResponses") != nil {
			t.Errorf("the second retry is %s", second.line)
		}
		srv.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, second.ID, required(`{"d":`+elicit+`}`, `"last"`))
		c.reply(parse(t, c.told()[0]).ID, `"result":{"action":"cancel"}`)
		third := srv.next()
		if got := string(jsonrpc.Get(third.Params, "inputResponses")); got != `{"d":{"action":"cancel"}}` {
			t.Errorf("the third retry brings %s", got)
		}
		srv.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, third.ID)
		if got := parse(t, c.answer(call)); string(got.Result) != `{}` {
			t.Errorf("answered %s", got.line)
		}
		s.end()
	})
}

// TestRoundsAreBounded: a server that asks for ever is given up.
func TestRoundsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c, srv := s.crossed("ada", everything)
		call, _ := s.asking(c, srv, required("", `"x"`))
		n := 0
		for c.answer(call) == "" && n < 1000 {
			n++
			srv.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, srv.next().ID, required("", `"x"`))
		}
		if got := c.answer(call); n != maxRounds || !strings.Contains(got, `"outcome":"unknown"`) {
			t.Errorf("after %d rounds: %s", n, got)
		}
		s.end()
	})
}

// TestRoundThatCannotBe: what the client did not declare is not put to it, not
// even in part; what it cannot answer ends its call.
func TestRoundThatCannotBe(t *testing.T) {
	const sample = `{"method":"sampling/createMessage","params":{}}`
	tests := []struct{ name, capabilities, requests, words string }{
		{"nothing declared", `{}`, `{"a":` + elicit + `}`, "elicitation/create"},
		{"another declared", `{"sampling":{}}`, `{"a":` + elicit + `}`, "elicitation/create"},
		{"one of two", `{"elicitation":{}}`, `{"a":` + elicit + `,"b":` + sample + `}`, "sampling/createMessage"},
		{"unknown", everything, `{"a":{"method":"x/y"}}`, "x/y"},
		{"no method", everything, `{"a":{}}`, ""},
		{"no request", everything, `{"a":7}`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := begin(t, false)
				c, srv := s.crossed("ada", tt.capabilities)
				call, _ := s.asking(c, srv, required(tt.requests, `"s"`))
				equal(t, "asked", c.told(), nil)
				got := parse(t, c.answer(call))
				if got.Error == nil || got.Error.Code != -32603 || !strings.Contains(got.Error.Message, tt.words) || string(got.Error.Data) != `{"outcome":"unknown"}` {
					t.Errorf("answered %s", got.line)
				}
				equal(t, "the server was sent", srv.heard(), nil)
				if n := len(s.conv.asked); n != 0 {
					t.Errorf("%d questions are open", n)
				}
				s.end()
			})
		})
	}
}

// TestRoundRefusedByTheClient ends the call: there is no way to tell the server.
func TestRoundRefusedByTheClient(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c, srv := s.crossed("ada", everything)
		call, _ := s.asking(c, srv, required(`{"a":`+elicit+`,"b":`+elicit+`}`, `"s"`))
		asked := c.told()
		c.reply(parse(t, asked[0]).ID, `"error":{"code":-1,"message":"no \"user\""}`)
		got := parse(t, c.answer(call))
		if got.Error == nil || got.Error.Code != -32603 || !strings.Contains(got.Error.Message, `no \"user\"`) {
			t.Errorf("answered %s", got.line)
		}
		c.reply(parse(t, asked[1]).ID, `"result":{}`) // too late
		equal(t, "the server was sent", srv.heard(), nil)
		s.end()
	})
}

// TestRoundCancelled: while its client is asked, a call is nothing but that.
func TestRoundCancelled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c, srv := s.crossed("ada", everything)
		call, _ := s.asking(c, srv, required(`{"a":`+elicit+`}`, `"s"`))
		q := parse(t, c.told()[0])
		note := c.message(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"\u0041"}}`)
		if !s.conv.Cancel(call, note) || s.conv.Cancel(call, note) {
			t.Error("the call is not cancelled once")
		}
		c.reply(q.ID, `"result":{}`)
		equal(t, "the server was sent", srv.heard(), nil)
		if got := c.answer(call); got != "" {
			t.Errorf("answered %s", got)
		}
		// During the retry it is one of the server's again.
		call, _ = s.asking(c, srv, required(`{"a":`+elicit+`}`, `"s"`))
		c.reply(parse(t, c.told()[0]).ID, `"result":{}`)
		retry := srv.next()
		if !s.conv.Cancel(call, note) {
			t.Error("the retry cannot be cancelled")
		}
		if got := srv.next(); got.Method != "notifications/cancelled" || string(jsonrpc.Get(got.Params, "requestId")) != string(retry.ID) {
			t.Errorf("the server was told %s, want its id %s", got.line, retry.ID)
		}
		srv.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, retry.ID)
		if got := c.answer(call); got != "" {
			t.Errorf("answered %s", got)
		}
		s.end()
	})
}

// TestRoundWhenTheServerDies, or the client leaves: nothing is left open.
func TestRoundWhenTheServerDies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c, srv := s.crossed("ada", everything)
		call, _ := s.asking(c, srv, required(`{"a":`+elicit+`}`, `"s"`))
		q := parse(t, c.told()[0])
		srv.die(killed)
		if got := c.told(); len(got) != 1 || !strings.Contains(got[0], "notifications/cancelled") || !strings.Contains(got[0], string(q.ID)) {
			t.Errorf("of its question the client was told %q", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := parse(t, c.answer(call)); got.Error == nil || !strings.Contains(got.line, `"outcome"`) {
			t.Errorf("answered %s", got.line)
		}
		if n := len(s.conv.asked) + len(s.conv.bridge.rounds) + s.conv.InFlight(); n != 0 {
			t.Errorf("%d things are open", n)
		}
		s.end()
	})
	bubble(t, func(t *testing.T) {
		s := begin(t, true)
		srv := s.latest()
		srv.refuse(-32601)
		srv.discover(modernServer)
		synctest.Wait()
		c := s.introduce("bob", everything)
		srv.heard()
		s.asking(c, srv, required(`{"a":`+elicit+`}`, `"s"`))
		q := parse(t, c.told()[0])
		s.conv.Leave(c, "gone")
		c.reply(q.ID, `"result":{}`)
		for _, line := range srv.heard() {
			if strings.Contains(line, "tools/call") {
				t.Errorf("the server was sent %s", line)
			}
		}
		s.conv.mu.Lock()
		n := len(s.conv.asked) + len(s.conv.bridge.rounds)
		s.conv.mu.Unlock()
		if n != 0 {
			t.Errorf("%d things are open", n)
		}
		s.end()
	})
}

// TestRoundByURL: the older era's question has an id of its own there.
func TestRoundByURL(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c, srv := s.crossed("ada", everything)
		s.asking(c, srv, required(`{"a":{"method":"elicitation/create","params":{"mode":"url","url":"https://x/?a=1&b","message":"go"}}}`, ""))
		q := parse(t, c.told()[0])
		if id := string(jsonrpc.Get(q.Params, "elicitationId")); len(id) < 12 || string(jsonrpc.Get(q.Params, "url")) != `"https://x/?a=1&b"` {
			t.Errorf("asked %s", q.line)
		}
		s.end()
	})
}

// TestForeignReply: only who was asked may answer.
func TestForeignReply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, true)
		srv := s.latest()
		srv.refuse(-32601)
		srv.discover(modernServer)
		synctest.Wait()
		bob, eve := s.introduce("bob", everything), s.introduce("eve", everything)
		srv.heard()
		s.asking(bob, srv, required(`{"a":`+elicit+`}`, `"s"`))
		q := parse(t, bob.told()[0])
		eve.reply(q.ID, `"result":{"stolen":true}`)
		equal(t, "the server was sent", srv.heard(), nil)
		bob.reply(q.ID, `"result":{"own":true}`)
		if got := srv.next(); !strings.Contains(string(got.Params), `{"own":true}`) {
			t.Errorf("the retry is %s", got.line)
		}
		s.end()
	})
}
