package conversation

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestSharedHandshake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, true)
		srv := s.latest()
		early := s.join("early") // before the server has answered
		call := early.call(clientHello, `"e"`, "2024-11-05", `{"sampling":{}}`, "early")
		if hello := srv.greet(serverResult); hello.line != fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"initialize","params":`+
			`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"holdfast","version":"1"}}}`, hello.ID) {
			t.Errorf("the gateway introduces itself with %s", hello.line)
		}
		synctest.Wait()
		equal(t, "then", methods(t, srv.heard()), []string{"notifications/initialized"})
		for asked, want := range map[string]string{"2024-11-05": "2024-11-05", "2025-03-26": "2025-03-26", "2025-11-25": "2025-11-25", "2030-01-01": "2025-11-25"} {
			c := s.join(asked)
			call := c.call(clientHello, `1`, asked, `{}`, asked)
			result := strings.Replace(serverResult, "2025-06-18", want, 1)
			if got := c.answer(call); got != `{"jsonrpc":"2.0","id":1,"result":`+result+`}` {
				t.Errorf("asked for %s: %s", asked, got)
			}
			c.notify(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			c.notify(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
		}
		if got := early.answer(call); !strings.Contains(got, `"protocolVersion":"2024-11-05"`) {
			t.Errorf("the early one: %s", got)
		}
		equal(t, "the server heard of its clients", srv.heard(), nil)
		if s.conv.Err() != nil || s.conv.InFlight() != 0 {
			t.Errorf("Err %v, %d in flight", s.conv.Err(), s.conv.InFlight())
		}
		s.end()
	})
}

func TestSharedHandshakeFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, true)
		c := s.join("a")
		call := c.call(clientHello, `1`, "2025-06-18", `{}`, "a")
		for range 2 { // initialize, then server/discover
			s.latest().say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"never"}}`, s.latest().next().ID)
		}
		synctest.Wait()
		if got := c.answer(call); !strings.Contains(got, "never") || c.over() == nil {
			t.Errorf("answered %s, over %v", got, c.over())
		}
		if err := s.conv.awaitReady(t.Context(), time.Second); err == nil {
			t.Error("ready")
		}
		s.end()
	})
	bubble(t, func(t *testing.T) {
		s := begin(t, true)
		if err := s.conv.awaitReady(t.Context(), 10*time.Second); err == nil || !strings.Contains(err.Error(), "--start-timeout") {
			t.Errorf("a silent server: %v", err)
		}
		s.end()
	})
}

// TestSharedNothingGoesAstray: C12, C45. Two clients with the same ids and the
// same tokens on one server.
func TestSharedNothingGoesAstray(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, srv := sharedStage(t)
		a, b := s.introduce("a", `{}`), s.introduce("b", `{}`)
		for _, id := range []string{`1`, `"1"`, `0`} {
			ofA, ofB := a.tool(id), b.tool(id)
			up := srv.heard()
			upA, upB := parse(t, up[0]), parse(t, up[1])
			for client, id := range map[string]string{"b": string(upB.ID), "a": string(upA.ID)} {
				srv.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1,"for":%q}}`, id, client)
				srv.say(`{"jsonrpc":"2.0","id":%s,"result":{"for":%q}}`, id, client)
			}
			for c, call := range map[*client]*Call{a: ofA, b: ofB} {
				if got := c.answer(call); got != fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"for":%q}}`, id, c.name) {
					t.Errorf("%s got %s", c.name, got)
				}
				equal(t, c.name+" heard", c.told(), []string{fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1,"for":%q}}`, id, c.name)})
			}
		}
		s.end()
	})
}

// TestSharedLeave: who leaves has its calls cancelled, the others go on.
func TestSharedLeave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, srv := sharedStage(t)
		a, b := s.introduce("a", `{}`), s.introduce("b", `{}`)
		ofA, ofB := a.tool(`1`), b.tool(`1`)
		up := srv.heard()
		s.conv.Leave(a, "gone")
		if got := srv.next(); got.line != fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s,"reason":"gone"}}`, parse(t, up[0]).ID) {
			t.Errorf("the server heard %s", got.line)
		}
		for _, line := range up {
			srv.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, parse(t, line).ID)
		}
		srv.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		if a.answer(ofA) != "" || len(a.told()) > 0 || b.answer(ofB) == "" || len(b.told()) != 1 || s.conv.Err() != nil {
			t.Errorf("a got %q, b %q, Err %v", a.answer(ofA), b.answer(ofB), s.conv.Err())
		}
		s.conv.Leave(b, "gone")
		if s.conv.Err() != nil || s.started() != 1 {
			t.Error("a shared server ends with its last client")
		}
		s.end()
	})
}

// TestSharedLevels: the server gets the lowest level that is asked for, each
// client what it asked for.
func TestSharedLevels(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, srv := sharedStage(t)
		a, b, silent := s.introduce("a", `{}`), s.introduce("b", `{}`), s.introduce("silent", `{}`)
		set := func(c *client, level string) *Call {
			t.Helper()
			return c.call(`{"jsonrpc":"2.0","id":"l","method":"logging/setLevel","params":{"level":%q}}`, level)
		}
		for _, tc := range []struct {
			c     *client
			level string
			want  string // what the server is told, "" for nothing
		}{
			{a, "error", "error"}, {b, "info", "info"}, {a, "warning", ""}, {b, "debug", "debug"}, {b, "critical", "warning"}, {a, "warning", ""},
		} {
			call := set(tc.c, tc.level)
			if tc.want != "" {
				up := srv.next()
				if string(up.Params) != fmt.Sprintf(`{"level":%q}`, tc.want) {
					t.Errorf("%s asked for %s, the server was told %s", tc.c.name, tc.level, up.Params)
				}
				srv.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, up.ID)
			} else {
				equal(t, "the server heard", srv.heard(), nil)
			}
			if got := tc.c.answer(call); got != `{"jsonrpc":"2.0","id":"l","result":{}}` {
				t.Errorf("%s, %s: answered %q", tc.c.name, tc.level, got)
			}
		}
		call := set(a, "loud") // the server says what is wrong with it
		srv.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no"}}`, srv.next().ID)
		if !strings.Contains(a.answer(call), "-32602") {
			t.Errorf("answered %s", a.answer(call))
		}
		// a hears warning and above, b critical and above, silent everything.
		for _, level := range []string{"debug", "warning", "critical", "unknown"} {
			srv.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":%q}}`, level)
		}
		equal(t, "a", methods(t, a.told()), []string{"notifications/message{level:warning}", "notifications/message{level:critical}", "notifications/message{level:unknown}"})
		equal(t, "b", methods(t, b.told()), []string{"notifications/message{level:critical}", "notifications/message{level:unknown}"})
		if n := len(silent.told()); n != 4 {
			t.Errorf("who asked for nothing heard %d messages, want 4", n)
		}
		// With one call in flight it is that client's alone, at its level.
		b.tool(`1`)
		srv.heard()
		srv.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error"}}`)
		srv.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"alert"}}`)
		equal(t, "a, during b's call", a.told(), nil)
		equal(t, "b, during its call", methods(t, b.told()), []string{"notifications/message{level:alert}"})
		s.end()
	})
}

// TestSharedSubscriptions are counted: the last who unsubscribes, or leaves,
// does it at the server.
func TestSharedSubscriptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, srv := sharedStage(t)
		a, b := s.introduce("a", `{}`), s.introduce("b", `{}`)
		ask := func(c *client, method, uri string, reaches bool) {
			t.Helper()
			call := c.call(`{"jsonrpc":"2.0","id":"s","method":"resources/%s","params":{"uri":%q}}`, method, uri)
			if reaches {
				srv.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, srv.next().ID)
			} else {
				equal(t, "the server heard", srv.heard(), nil)
			}
			if c.answer(call) != `{"jsonrpc":"2.0","id":"s","result":{}}` {
				t.Errorf("%s %s of %s: answered %q", method, uri, c.name, c.answer(call))
			}
		}
		updated := func(uri string, who ...*client) {
			t.Helper()
			line := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":%q}}`, uri)
			srv.say("%s", line)
			want := map[*client][]string{}
			for _, c := range who {
				want[c] = []string{line}
			}
			equal(t, "a, "+uri, a.told(), want[a])
			equal(t, "b, "+uri, b.told(), want[b])
		}
		ask(a, "subscribe", "u://1", true)
		ask(b, "subscribe", "u://1", true)
		ask(b, "subscribe", "u://2", true)
		ask(b, "subscribe", "u://quo\"te", true)
		updated("u://1", a, b)
		updated("u://2", b)
		updated("u://3")
		ask(a, "unsubscribe", "u://1", false) // b still wants it
		updated("u://1", b)
		ask(a, "subscribe", "u://1", true)
		ask(b, "unsubscribe", "u://1", false)
		updated("u://1", a)
		ask(a, "unsubscribe", "u://1", true)
		updated("u://1")

		ask(a, "subscribe", "u://2", true)
		s.conv.Leave(b, "gone")
		equal(t, "b has left", methods(t, srv.heard()), []string{`resources/unsubscribe{uri:u://quo\te}`})
		updated("u://2", a)
		s.end()
	})
}

// TestSharedRestart: what is retold is what the clients that are left want, and
// the clients are not asked to begin anew.
func TestSharedRestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, srv := sharedStage(t)
		a, b := s.introduce("a", `{}`), s.introduce("b", `{}`)
		for _, c := range []*client{a, b} {
			c.call(`{"jsonrpc":"2.0","id":"s","method":"resources/subscribe","params":{"uri":"u://both"}}`)
			c.call(`{"jsonrpc":"2.0","id":"o","method":"resources/subscribe","params":{"uri":"u://%s"}}`, c.name)
		}
		a.call(`{"jsonrpc":"2.0","id":"l","method":"logging/setLevel","params":{"level":"error"}}`)
		b.call(`{"jsonrpc":"2.0","id":"l","method":"logging/setLevel","params":{"level":"info"}}`)
		s.conv.Leave(b, "gone")
		srv.heard()
		call := a.tool(`1`)
		srv.die(killed)
		if !strings.Contains(a.answer(call), `"outcome":"unknown"`) {
			t.Errorf("answered %s", a.answer(call))
		}
		restarted()
		srv = s.latest()
		late := s.introduce("late", `{}`) // while the new server is not ready
		again := a.tool(`2`)
		srv.greet(serverResult)
		told := srv.heard()
		got := methods(t, told)
		subscribed := map[string]bool{}
		for _, m := range got {
			if uri, ok := strings.CutPrefix(m, "resources/subscribe"); ok {
				subscribed[uri] = true
			}
		}
		if len(got) != 5 || got[0] != "notifications/initialized" || !strings.HasPrefix(got[1], "logging/setLevel") || !subscribed["{uri:u://both}"] || !subscribed["{uri:u://a}"] {
			t.Errorf("retold %q", got)
		}
		srv.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, parse(t, told[4]).ID)
		if a.answer(again) == "" || a.over() != nil || late.over() != nil {
			t.Errorf("answered %q, over %v, %v", a.answer(again), a.over(), late.over())
		}
		s.end()
	})
	bubble(t, func(t *testing.T) { // even if nobody is there: it is kept for whoever comes
		s, srv := sharedStage(t)
		srv.die(killed)
		time.Sleep(time.Second)
		synctest.Wait()
		if s.started() != 2 {
			t.Errorf("%d servers", s.started())
		}
		s.latest().greet(strings.Replace(serverResult, `"tools":{}`, `"prompts":{}`, 1))
		if err := s.conv.Err(); err == nil {
			t.Error("another server took the place of the first")
		}
		s.end()
	})
}

// TestSharedQuestions: only a question that can be tied to one client is put to
// it, if it said that it answers such; all others are refused with a reason.
func TestSharedQuestions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, srv := sharedStage(t)
		a, b := s.introduce("a", `{"elicitation":{},"roots":{"listChanged":true}}`), s.introduce("b", `{"sampling":{}}`)
		n := 0
		ask := func(method string) string {
			t.Helper()
			srv.heard()
			n++
			srv.say(`{"jsonrpc":"2.0","id":%d,"method":%q}`, n, method)
			got := append(a.told(), b.told()...)
			if refused := srv.heard(); len(refused) == 1 {
				p := parse(t, refused[0])
				if len(got) > 0 || p.Error == nil || p.Error.Code != -32603 || string(p.ID) != fmt.Sprint(n) {
					t.Errorf("refused with %s, asked %q", p.line, got)
				}
				return p.Error.Message
			}
			if len(got) != 1 {
				t.Fatalf("asked %q", got)
			}
			return string(parse(t, got[0]).ID)
		}
		expect := func(method, want string) {
			t.Helper()
			if got := ask(method); !strings.Contains(got, want) {
				t.Errorf("%s: %s, want %q", method, got, want)
			}
		}
		expect("elicitation/create", "not exactly one call is running")
		ofA := a.tool(`1`)
		expect("elicitation/create", "hf-")
		expect("roots/list", "hf-")
		expect("sampling/createMessage", "did not declare")
		expect("x/unknown", "did not declare")
		ofB := b.tool(`1`)
		expect("elicitation/create", "--isolation session")
		s.conv.Cancel(ofA, a.message(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`))
		expect("elicitation/create", "did not declare")
		minted := ask("sampling/createMessage")
		s.conv.Reply(a, a.message(`{"jsonrpc":"2.0","id":%q,"result":{"by":"a"}}`, strings.Trim(minted, `"`)))
		equal(t, "an answer of who was not asked", srv.heard(), nil)
		s.conv.Reply(b, b.message(`{"jsonrpc":"2.0","id":%q,"result":{"by":"b"}}`, strings.Trim(minted, `"`)))
		equal(t, "the answer", srv.heard(), []string{fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"by":"b"}}`, n)})
		ask("sampling/createMessage")
		s.conv.Leave(b, "gone")
		if got := srv.heard(); len(got) != 2 || !strings.Contains(got[1], "has left") {
			t.Errorf("the server heard %q", got)
		}
		_ = ofB
		s.end()
	})
}
