package conversation

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-mcp/holdfast/internal/stdio"
)

// TestIDsAndTokens: C12, C44, C47. The server sees ids of the gateway only, the
// client its own, in the type and the spelling that it sent; all else passes.
func TestIDsAndTokens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c := s.open("a")
		srv := s.latest()
		used := map[string]bool{}
		for _, id := range []string{`0`, `""`, `"0"`, `"init-1"`, `-1`, `9007199254740992`, `9007199254740993`, `18446744073709551615`, `1e3`, `"\u00e9"`} {
			call := c.call(`{"jsonrpc":"2.0", "id":%s,"method":"tools/call","params":{"name":"x","arguments":{"id":1,"b":1.0,"a":9223372036854775807},"_meta":{"k":-0,"progressToken":%s}}}`, id, id)
			up := srv.next()
			if used[string(up.ID)] {
				t.Errorf("id %s was used twice", up.ID)
			}
			used[string(up.ID)] = true
			want := fmt.Sprintf(`{"jsonrpc":"2.0", "id":%s,"method":"tools/call","params":{"name":"x","arguments":{"id":1,"b":1.0,"a":9223372036854775807},"_meta":{"k":-0,"progressToken":%s}}}`, up.ID, up.ID)
			if up.line != want {
				t.Errorf("the server got  %s\nwant %s", up.line, want)
			}
			srv.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1.0,"x":1e400}}`, up.ID)
			equal(t, "progress", c.told(), []string{`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + id + `,"progress":1.0,"x":1e400}}`})
			srv.say(`{"id":%s,"result":{"n":18446744073709551616,"t":"<a>&b"},"jsonrpc":"2.0"}`, up.ID)
			if got, want := c.answer(call), `{"id":`+id+`,"result":{"n":18446744073709551616,"t":"<a>&b"},"jsonrpc":"2.0"}`; got != want {
				t.Errorf("answered %s\nwant     %s", got, want)
			}
			// The token ends with its call.
			srv.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":2}}`, up.ID)
			srv.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, up.ID)
			equal(t, "after the answer", c.told(), nil)
		}
		s.end()
	})
}

func TestProgressThatNobodyAskedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c := s.open("a")
		srv := s.latest()
		c.call(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`)
		up := srv.next()
		for _, token := range []string{string(up.ID), `"` + string(up.ID) + `"`, `999`, `"x"`, `null`, `{}`} {
			srv.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, token)
		}
		equal(t, "progress", c.told(), nil)
		s.end()
	})
}

// TestAnswersToNobody: an answer counts once, for the call that is running.
func TestAnswersToNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c := s.open("a")
		srv := s.latest()
		call := c.tool(`1`)
		up := srv.next()
		for _, id := range []string{`999`, `"x"`, `null`, `-1`, `1.0`, `true`} {
			srv.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":1,"message":""}}`, id)
		}
		srv.say(`{"jsonrpc":"2.0","error":{"code":1,"message":""}}`)
		if c.answer(call) != "" {
			t.Fatalf("answered %s", c.answer(call))
		}
		srv.say(`{"jsonrpc":"2.0","id":"%s","result":{}}`, up.ID) // some servers quote it
		if got := c.answer(call); got != `{"jsonrpc":"2.0","id":1,"result":{}}` {
			t.Errorf("answered %s", got)
		}
		s.end()
	})
}

// TestCancel: C14. The server hears of it under the id that it knows, at once;
// no answer is delivered any more.
func TestCancel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c := s.open("a")
		srv := s.latest()
		one := c.tool(`101`)
		upOne := srv.next()
		two := c.tool(`102`)
		upTwo := srv.next()
		cancel := func(call *Call, id string) bool {
			return s.conv.Cancel(call, c.message(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"x","requestId":%s}}`, id))
		}
		if !cancel(one, "101") || cancel(one, "101") {
			t.Error("a call is cancelled once")
		}
		if got := srv.next(); got.line != fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"x","requestId":%s}}`, upOne.ID) {
			t.Errorf("the server heard %s", got.line)
		}
		srv.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, upOne.ID) // too late
		srv.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, upTwo.ID)
		if c.answer(one) != "" || c.answer(two) == "" {
			t.Errorf("answers %q and %q", c.answer(one), c.answer(two))
		}
		if cancel(two, "102") {
			t.Error("cancelled a call that was answered")
		}
		equal(t, "the server heard", srv.heard(), nil)
		s.end()
	})
}

// TestInitializeIsNotCancelled: 2025-11-25 basic/utilities/cancellation.
func TestInitializeIsNotCancelled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c := s.join("a")
		call := c.call(clientHello, `1`, "2025-06-18", `{}`, "a")
		hello := s.latest().next()
		if s.conv.Cancel(call, c.message(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)) {
			t.Error("initialize was cancelled")
		}
		equal(t, "the server heard", s.latest().heard(), nil)
		s.latest().say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, hello.ID, serverResult)
		if c.answer(call) == "" {
			t.Error("initialize was not answered")
		}
		s.end()
	})
}

func TestInitializeAsksForAKnownVersion(t *testing.T) {
	for asked, want := range map[string]string{
		"2024-11-05": "2024-11-05", "2025-03-26": "2025-03-26", "2025-06-18": "2025-06-18", "2025-11-25": "2025-11-25",
		"2026-07-28": "2025-11-25", "1999-01-01": "2025-11-25", "": "2025-11-25",
	} {
		bubble(t, func(t *testing.T) {
			s := begin(t, false)
			c := s.join("a")
			c.call(clientHello, `"i"`, asked, `{"x":1.0}`, "a")
			got := s.latest().next()
			if line := fmt.Sprintf(clientHello, got.ID, want, `{"x":1.0}`, "a"); got.line != line {
				t.Errorf("asked for %q, the server got\n%s\nwant\n%s", asked, got.line, line)
			}
			s.end()
		})
	}
}

// TestPingIsAnswered: the server's pings never wait for a client.
func TestPingIsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		srv := s.latest()
		for _, id := range []string{`1`, `"p"`, `0`} {
			srv.say(`{"jsonrpc":"2.0","id":%s,"method":"ping"}`, id)
			equal(t, "ping", srv.heard(), []string{`{"jsonrpc":"2.0","id":` + id + `,"result":{}}`})
		}
		s.end()
	})
}

// TestQuestions: a request of the server reaches its client under an id of the
// gateway, and the answer the server under its own.
func TestQuestions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c := s.open("a")
		srv := s.latest()
		call := c.tool(`7`)
		srv.heard()
		srv.say(`{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"n":1.0}}`)
		c.mu.Lock()
		of := c.of
		c.mu.Unlock()
		if len(of) != 1 || of[0] != call {
			t.Error("with one call in flight the question belongs to it")
		}
		asked := parse(t, c.told()[0])
		if asked.line != `{"jsonrpc":"2.0","id":`+string(asked.ID)+`,"method":"elicitation/create","params":{"n":1.0}}` ||
			!strings.HasPrefix(string(asked.ID), `"hf-`) {
			t.Errorf("asked %s", asked.line)
		}
		stranger := &client{t: t, name: "stranger", conv: s.conv, answers: map[*Call]string{}}
		s.conv.Reply(stranger, c.message(`{"jsonrpc":"2.0","id":%s,"result":{"by":"a stranger"}}`, asked.ID))
		s.conv.Reply(c, c.message(`{"jsonrpc":"2.0","id":"hf-0000000000-1","result":{}}`))
		s.conv.Reply(c, c.message(`{"jsonrpc":"2.0","id":7,"result":{}}`))
		equal(t, "the server heard", srv.heard(), nil)
		s.conv.Reply(c, c.message(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept", "x":1e400}}`, asked.ID))
		s.conv.Reply(c, c.message(`{"jsonrpc":"2.0","id":%s,"result":{"action":"twice"}}`, asked.ID))
		equal(t, "the server heard", srv.heard(), []string{`{"jsonrpc":"2.0","id":7,"result":{"action":"accept", "x":1e400}}`})

		// Two of one id, as two servers after each other could ask.
		srv.say(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		srv.say(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		both := c.told()
		if len(both) != 2 || string(parse(t, both[0]).ID) == string(parse(t, both[1]).ID) {
			t.Errorf("asked %q", both)
		}
		// Given up by the server.
		srv.say(`{"jsonrpc":"2.0","id":"g","method":"sampling/createMessage"}`)
		minted := parse(t, c.told()[0]).ID
		srv.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"g","reason":"late"}}`)
		srv.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"unknown"}}`)
		equal(t, "given up", c.told(), []string{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + string(minted) + `,"reason":"late"}}`})
		s.conv.Reply(c, c.message(`{"jsonrpc":"2.0","id":%s,"result":{}}`, minted))
		equal(t, "the server heard", srv.heard(), nil)
		s.end()
	})
}

func TestMintedIDsDifferBetweenConversations(t *testing.T) {
	seen := map[string]bool{}
	for range 20 {
		bubble(t, func(t *testing.T) {
			s := begin(t, false)
			c := s.open("a")
			s.latest().say(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
			seen[string(parse(t, c.told()[0]).ID)] = true
			s.end()
		})
	}
	if len(seen) != 20 {
		t.Errorf("%d ids in 20 conversations", len(seen))
	}
}

// TestNotifications go to the one client, a log message to the call if there
// is exactly one.
func TestNotifications(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c := s.open("a")
		srv := s.latest()
		log, changed := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1.0}}`, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
		expect := func(what string, logOf *Call) {
			t.Helper()
			srv.say("%s", log)
			srv.say("%s", changed)
			c.mu.Lock()
			of := c.of
			c.mu.Unlock()
			equal(t, what, c.told(), []string{log, changed})
			if of[0] != logOf || of[1] != nil {
				t.Errorf("%s: belong to %v", what, of)
			}
		}
		expect("no call", nil)
		one := c.tool(`1`)
		up := srv.next()
		expect("one call", one)
		c.tool(`2`)
		srv.heard()
		expect("two calls", nil)
		srv.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, up.ID)
		srv.say(`{"jsonrpc":"2.0","method":"notifications/unknown","params":[1]}`)
		equal(t, "an unknown one", c.told(), []string{`{"jsonrpc":"2.0","method":"notifications/unknown","params":[1]}`})
		s.end()
	})
}

// TestJunk: C31. What is no message is skipped, with few words.
func TestJunk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		srv := s.latest()
		for _, line := range []string{"Server v1 running", "[dotenv@17] injecting env", `{"level":"info"}`, "{", "\xff\xfe", `"x"`, "[]", `[1,"x"]`, `{"jsonrpc":"2.0","id":{},"method":"x"}`} {
			srv.say("%s", line)
		}
		c := s.open("a") // nothing of it did harm
		srv.say("again")
		equal(t, "the client heard", c.told(), nil)
		s.end()
		if n := strings.Count(s.log.String(), "it is no message"); n != 2 || !strings.Contains(s.log.String(), "Server v1 running") {
			t.Errorf("%d warnings for 11 lines, want the first and the tenth:\n%s", n, s.log)
		}
	})
}

func TestBatchOfTheServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c := s.open("a")
		srv := s.latest()
		one, two := c.tool(`1`), c.tool(`2`)
		up := srv.heard()
		srv.say(`[{"jsonrpc":"2.0","id":%s,"result":1},{"jsonrpc":"2.0","method":"notifications/x"},7,{"jsonrpc":"2.0","id":%s,"result":2}]`, parse(t, up[1]).ID, parse(t, up[0]).ID)
		if c.answer(one) != `{"jsonrpc":"2.0","id":1,"result":2}` || c.answer(two) != `{"jsonrpc":"2.0","id":2,"result":1}` {
			t.Errorf("answers %s, %s", c.answer(one), c.answer(two))
		}
		equal(t, "beside", c.told(), []string{`{"jsonrpc":"2.0","method":"notifications/x"}`})
		s.end()
	})
}

// TestOversize: C26. A call whose answer is too long ends with an error; a
// message that only looks like it ends nothing.
func TestOversize(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c := s.open("a")
		srv := s.latest()
		call := c.tool(`"big"`)
		up := srv.next()
		for _, head := range []string{
			`{"jsonrpc":"2.0","id":%s,"method":"sampling/createMessage","params":{"x":"`,
			`{"jsonrpc":"2.0","id":%s,"params":{"x":"`,
			`{"jsonrpc":"2.0","result":{"id":%s,"x":"`,
			`noise %s`,
		} {
			srv.h.Oversize(fmt.Appendf(nil, head, up.ID), 5000)
			if got := c.answer(call); got != "" {
				t.Fatalf("%s ended the call: %s", head, got)
			}
		}
		srv.h.Oversize(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"content":"`, up.ID), 5000)
		got := parse(t, c.answer(call))
		if got.Error == nil || got.Error.Code != -32603 || string(got.Error.Data) != `{"outcome":"executed"}` || !strings.Contains(got.Error.Message, "--max-body") {
			t.Errorf("answered %s", got.line)
		}
		s.end()
	})
}

func TestBusyServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c := s.open("a")
		srv := s.latest()
		srv.mu.Lock()
		srv.busy = stdio.ErrBusy
		srv.mu.Unlock()
		if _, err := c.try(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`); !errors.Is(err, stdio.ErrBusy) {
			t.Errorf("got %v", err)
		}
		if n := s.conv.InFlight(); n != 0 {
			t.Errorf("%d calls in flight", n)
		}
		s.end()
	})
}

// TestLeaveEndsTheConversationOfOne: its calls are cancelled, nothing is
// delivered any more, the server goes.
func TestLeaveEndsTheConversationOfOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c := s.open("a")
		srv := s.latest()
		call := c.tool(`1`)
		up := srv.next()
		srv.say(`{"jsonrpc":"2.0","id":5,"method":"roots/list"}`)
		c.told()
		s.conv.Leave(c, "deleted")
		got := srv.heard()
		if len(got) != 2 || got[0] != `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+string(up.ID)+`,"reason":"deleted"}}` ||
			parse(t, got[1]).Error == nil || string(parse(t, got[1]).ID) != `5` {
			t.Errorf("the server heard %q", got)
		}
		s.conv.Wait()
		srv.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, up.ID)
		if c.answer(call) != "" || len(c.told()) > 0 || c.over() != nil {
			t.Error("something was delivered to a client that has left")
		}
		if _, err := c.try(`{"jsonrpc":"2.0","id":1,"method":"ping"}`); !errors.Is(err, ErrClosed) {
			t.Errorf("a call afterwards: %v", err)
		}
		if err := s.conv.Join(c); !errors.Is(err, ErrClosed) {
			t.Errorf("joining afterwards: %v", err)
		}
		if err := s.conv.Notify(c, c.message(`{"jsonrpc":"2.0","method":"x"}`)); !errors.Is(err, ErrClosed) {
			t.Errorf("a notification afterwards: %v", err)
		}
		s.end()
	})
}
