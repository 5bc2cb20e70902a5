package conversation

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// C68 (ii): clients of the handshake era before a server that speaks the
// stateless era only.

// refuse plays such a server's part when it is sent initialize.
func (s *server) refuse(code int) parsed {
	s.t.Helper()
	hello := s.next()
	if hello.Method != "initialize" {
		s.t.Fatalf("the handshake begins with %s", hello.line)
	}
	s.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"params._meta must name a version"}}`, hello.ID, code)
	return hello
}

// discover plays its part when it is asked what it speaks.
func (s *server) discover(result string) {
	s.t.Helper()
	asked := s.next()
	if asked.Method != "server/discover" {
		s.t.Fatalf("then came %s", asked.line)
	}
	s.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, asked.ID, result)
}

// one demands exactly one message of the method among those that the server was
// sent, and returns it.
func (s *server) one(method string) parsed {
	s.t.Helper()
	var found []parsed
	for _, line := range s.heard() {
		if p := parse(s.t, line); p.Method == method {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		s.t.Fatalf("the server was sent %d messages of %s, want one", len(found), method)
	}
	return found[0]
}

const modernCapabilities = `{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{},"extensions":{"x/y":{}}}`

const modernServer = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":` + modernCapabilities +
	`,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"new", "version":"2.0"}},"instructions":"<do>","ttlMs":0,"cacheScope":"private"}`

// crossed is a client that has shaken hands with such a server.
func (s *stage) crossed(name, capabilities string) (*client, *server) {
	s.t.Helper()
	c := s.join(name)
	call := c.call(clientHello, `"i"`, "2025-06-18", capabilities, name)
	srv := s.latest()
	srv.refuse(-32602)
	srv.discover(modernServer)
	if got := parse(s.t, c.answer(call)); got.Result == nil {
		s.t.Fatalf("initialize was answered with %s", got.line)
	}
	c.notify(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	srv.heard()
	return c, srv
}

// everything is what a client may declare.
const everything = `{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{"listChanged":true}}`

// TestBridgeHandshake: initialize is answered from server/discover, whatever
// code the server refuses it with.
func TestBridgeHandshake(t *testing.T) {
	for _, code := range []int{-32601, -32602, -32600, -32022, -32020, -32000} {
		bubble(t, func(t *testing.T) {
			s := begin(t, false)
			c := s.join("a")
			call := c.call(clientHello, `"\u0041"`, "2025-06-18", `{"roots":{}}`, "a")
			srv := s.latest()
			srv.refuse(code)
			if got := c.answer(call); got != "" {
				t.Errorf("answered too early: %s", got)
			}
			srv.discover(modernServer)
			want := `{"jsonrpc":"2.0","id":"\u0041","result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},` +
				`"resources":{"subscribe":true},"logging":{}},"serverInfo":{"name":"new", "version":"2.0"},"instructions":"<do>"}}`
			if got := c.answer(call); got != want {
				t.Errorf("answered\n%s, want\n%s", got, want)
			}
			c.notify(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			c.notify(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
			for _, line := range srv.heard() {
				if strings.Contains(line, "initialized") || strings.Contains(line, "roots") {
					t.Errorf("the server was told %s", line)
				}
			}
			s.end()
		})
	}
}

// TestBridgeNoHandshakeAtAll: a server that speaks neither era has its refusal
// passed on, be it that it refuses server/discover, too, or says nothing to it.
func TestBridgeNoHandshakeAtAll(t *testing.T) {
	for _, answer := range []string{`"error":{"code":-32601,"message":"what?"}`, `"result":{"supportedVersions":["2099-01-01"]}`, ``} {
		bubble(t, func(t *testing.T) {
			s := begin(t, false)
			c := s.join("a")
			call := c.call(clientHello, `7`, "2025-06-18", `{}`, "a")
			s.latest().refuse(-32602)
			asked := s.latest().next()
			if answer != "" {
				s.latest().say(`{"jsonrpc":"2.0","id":%s,%s}`, asked.ID, answer)
			} else {
				time.Sleep(10 * time.Second)
				synctest.Wait()
			}
			want := `{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"params._meta must name a version"}}`
			if got := c.answer(call); got != want {
				t.Errorf("%s: answered %s", answer, got)
			}
			s.latest().say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, asked.ID, modernServer) // too late
			time.Sleep(time.Hour)
			if s.conv.Err() != nil {
				t.Errorf("ended by a clock that had nothing to wait for: %v", s.conv.Err())
			}
			s.end()
		})
	}
}

// TestBridgeSlowToDiscover: a server that has refused initialize is given up
// soon, unless it named a revision which is served: then it has all the time
// that a start may take.
func TestBridgeSlowToDiscover(t *testing.T) {
	for _, shared := range []bool{false, true} {
		for supported, waits := range map[string]bool{`["2025-11-25","2026-07-28"]`: true, `["2099-01-01"]`: false, `"2026-07-28"`: false} {
			bubble(t, func(t *testing.T) {
				s := begin(t, shared)
				c := s.join("a")
				call := c.call(clientHello, `7`, "2025-06-18", `{}`, "a")
				srv := s.latest()
				srv.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"no","data":{"supported":%s}}}`, srv.next().ID, supported)
				asked := srv.next()
				time.Sleep(crossTime + time.Second)
				synctest.Wait()
				srv.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, asked.ID, modernServer)
				synctest.Wait()
				if got := c.answer(call); strings.Contains(got, `"serverInfo":{"name":"new"`) != waits {
					t.Errorf("shared %v, %s: answered %s", shared, supported, got)
				}
				s.end()
			})
		}
	}
}

// TestBridgeKnown: once the pool knows, no further server is sent initialize.
func TestBridgeKnown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, f := pool(t, PoolOptions{Max: 3})
		for i := range 2 {
			c := &client{t: t, name: "a", conv: take(t, p), answers: map[*Call]string{}}
			if err := c.conv.Join(c); err != nil {
				t.Fatal(err)
			}
			call := c.call(clientHello, `1`, "2025-11-25", `{}`, "a")
			synctest.Wait()
			if i == 0 {
				f.latest().refuse(-32601)
			} else {
				time.Sleep(20 * time.Second) // it starts slowly
			}
			f.latest().discover(modernServer)
			synctest.Wait()
			if got := c.answer(call); !strings.Contains(got, `"serverInfo":{"name":"new"`) {
				t.Errorf("server %d: answered %s", i, got)
			}
		}
		p.Close(ErrClosed)
	})
}

// TestBridgeRequests get what each stateless request must say, and lose nothing.
func TestBridgeRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c, srv := s.crossed("ada", everything)
		call := c.call(`{"jsonrpc":"2.0","id":"\u0041","method":"tools/call","params":{"name":"x","arguments":{"n":1.0, "<":"\u0041"},` +
			`"_meta":{"progressToken":"tok","a/b":1.0}}}`)
		got := srv.next()
		want := `{"name":"x","arguments":{"n":1.0, "<":"\u0041"},"_meta":{"progressToken":` + string(got.ID) + `,"a/b":1.0,` +
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` + everything +
			`,"io.modelcontextprotocol/clientInfo":{"name":"ada","version":"0"}}}`
		if string(got.Params) != want {
			t.Errorf("sent\n%s, want\n%s", got.Params, want)
		}
		srv.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1.0}}`, got.ID)
		equal(t, "progress", c.told(), []string{`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tok","progress":1.0}}`})
		srv.say(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","content":[], "structuredContent":{"n":1.0},"ttlMs":5,"cacheScope":"public",`+
			`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"new"},"k":1.0}}}`, got.ID)
		if got, want := c.answer(call), `{"jsonrpc":"2.0","id":"\u0041","result":{"content":[],"structuredContent":{"n":1.0},"_meta":{"k":1.0}}}`; got != want {
			t.Errorf("answered\n%s, want\n%s", got, want)
		}
		plain := c.call(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
		got = srv.next()
		if !strings.HasPrefix(string(got.Params), `{"_meta":{"io.modelcontextprotocol/protocolVersion"`) {
			t.Errorf("a request without params became %s", got.line)
		}
		srv.say(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[],"_meta":{"io.modelcontextprotocol/serverInfo":{}}}}`, got.ID)
		if got := parse(t, c.answer(plain)); string(got.Result) != `{"tools":[]}` {
			t.Errorf("answered %s", got.line)
		}
		s.end()
	})
}

// TestBridgeErrors: codes that the older era had others for, and results that it
// has no word for.
func TestBridgeErrors(t *testing.T) {
	tests := []struct{ method, answer, want string }{
		{"resources/read", `"error":{"code":-32602,"message":"none","data":{"uri":"x://"}}`, `"error":{"message":"none","data":{"uri":"x://"},"code":-32002}`},
		{"resources/read", `"error":{"code":-32602,"message":"bad"}`, `"error":{"code":-32602,"message":"bad"}`},
		{"tools/call", `"error":{"code":-32602,"message":"bad","data":{"uri":"x://"}}`, `"error":{"code":-32602,"message":"bad","data":{"uri":"x://"}}`},
		{"tools/call", `"error":{"code":-32000,"message":"own","data":[1.0]}`, `"error":{"code":-32000,"message":"own","data":[1.0]}`},
		{"tools/call", `"result":{"resultType":"task","task":{}}`, `"error":{"code":-32603,`},
		{"tools/call", `"result":{"resultType":"weird"}`, `"error":{"code":-32603,`},
		{"tools/call", `"result":{"resultType":7}`, `"error":{"code":-32603,`},
	}
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c, srv := s.crossed("ada", `{}`)
		for _, tt := range tests {
			call := c.call(`{"jsonrpc":"2.0","id":"e","method":%q,"params":{"uri":"x://"}}`, tt.method)
			srv.say(`{"jsonrpc":"2.0","id":%s,%s}`, srv.next().ID, tt.answer)
			if got := c.answer(call); !strings.Contains(got, `{"jsonrpc":"2.0","id":"e",`+tt.want) {
				t.Errorf("%s: answered %s, want %s", tt.answer, got, tt.want)
			}
		}
		s.end()
	})
}

// TestBridgeLevel: logging/setLevel is kept here, and goes along with requests.
func TestBridgeLevel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c, srv := s.crossed("ada", `{}`)
		set := c.call(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"warning"}}`)
		if got := c.answer(set); got != `{"jsonrpc":"2.0","id":1,"result":{}}` {
			t.Errorf("answered %s", got)
		}
		if got := parse(t, c.answer(c.call(`{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"loud"}}`))); got.Error == nil || got.Error.Code != -32602 {
			t.Errorf("an unknown level: %s", got.line)
		}
		c.tool(`3`)
		if got := srv.next(); !strings.Contains(string(got.Params), `"io.modelcontextprotocol/logLevel":"warning"`) {
			t.Errorf("sent %s", got.line)
		}
		srv.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":1.0}}`)
		equal(t, "a log message", c.told(), []string{`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":1.0}}`})
		s.end()
	})
}

// listens keeps the books of the listen requests that a server was sent: their
// filters by their ids.
type listens struct {
	t    *testing.T
	srv  *server
	open map[string]string
}

// want demands that one is open, and that it asks for all the words.
func (l *listens) want(what string, words ...string) {
	l.t.Helper()
	for _, line := range l.srv.heard() {
		switch p := parse(l.t, line); p.Method {
		case "subscriptions/listen":
			l.open[string(p.ID)] = string(jsonrpc.Get(p.Params, "notifications"))
		case "notifications/cancelled":
			delete(l.open, string(jsonrpc.Get(p.Params, "requestId")))
		}
	}
	if len(l.open) != 1 {
		l.t.Errorf("%s: %d subscriptions are open: %v", what, len(l.open), l.open)
	}
	for _, f := range l.open {
		for _, w := range words {
			if !strings.Contains(f, w) {
				l.t.Errorf("%s: it wants %s, without %s", what, f, w)
			}
		}
	}
}

// TestBridgeSubscriptions are one listen request; a change opens another one
// before the old one is closed.
func TestBridgeSubscriptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c := s.join("a")
		c.call(clientHello, `"i"`, "2025-11-25", `{}`, "a")
		srv := s.latest()
		srv.refuse(-32602)
		srv.discover(modernServer)
		c.notify(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		subs := &listens{t: t, srv: srv, open: map[string]string{}}
		subs.want("at first", `"toolsListChanged":true`, `"resourcesListChanged":true`)
		for i, uri := range []string{"x://1", "x://2"} {
			sub := c.call(`{"jsonrpc":"2.0","id":%d,"method":"resources/subscribe","params":{"uri":%q}}`, i, uri)
			if got := parse(t, c.answer(sub)); string(got.Result) != `{}` {
				t.Errorf("answered %s", got.line)
			}
		}
		subs.want("both", `"x://1"`, `"x://2"`)
		var id string
		for id = range subs.open {
		}
		note := func(format string, args ...any) {
			srv.say(format, append(args, id)...)
		}
		note(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{},"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`)
		note(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://1","_meta":{"k":1.0,"io.modelcontextprotocol/subscriptionId":%s}}}`)
		note(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`)
		srv.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}`) // of one that is closed
		equal(t, "the client", c.told(), []string{
			`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://1","_meta":{"k":1.0}}}`,
			`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}`,
		})
		c.call(`{"jsonrpc":"2.0","id":8,"method":"resources/unsubscribe","params":{"uri":"x://1"}}`)
		subs.want("one left", `"resourceSubscriptions":["x://2"]`)
		s.end()
	})
}

// TestBridgeRestart: a new process hears of the subscriptions, without a
// handshake, and of what was held, once.
func TestBridgeRestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c, srv := s.crossed("ada", `{}`)
		c.call(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"x://1"}}`)
		srv.die(killed) // the first time it is started again at once, the second time not
		time.Sleep(time.Second)
		synctest.Wait()
		srv = s.latest()
		lost := c.tool(`2`)
		srv.heard()
		srv.die(killed)
		if got := c.answer(lost); !strings.Contains(got, `"outcome":"unknown"`) {
			t.Errorf("answered %s", got)
		}
		held := c.tool(`3`)
		c.call(`{"jsonrpc":"2.0","id":4,"method":"resources/subscribe","params":{"uri":"x://2"}}`)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s.latest() == srv {
			t.Fatal("no new server")
		}
		srv = s.latest()
		var got []string
		var up parsed
		for _, line := range srv.heard() {
			p := parse(t, line)
			if got = append(got, p.Method); p.Method == "tools/call" {
				up = p
			} else if f := string(jsonrpc.Get(p.Params, "notifications")); !strings.Contains(f, `"x://1"`) || !strings.Contains(f, `"x://2"`) {
				t.Errorf("subscribed to %s", f)
			}
		}
		equal(t, "the new server was told", got, []string{"subscriptions/listen", "tools/call"})
		if !strings.Contains(string(up.Params), `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`) {
			t.Errorf("sent %s", up.line)
		}
		srv.say(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete"}}`, up.ID)
		if got := parse(t, c.answer(held)); string(got.Result) != `{}` {
			t.Errorf("answered %s", got.line)
		}
		s.end()
	})
}

// TestBridgeShared: many clients, each with what it said of itself.
func TestBridgeShared(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, true)
		srv := s.latest()
		early := s.join("early")
		hello := early.call(clientHello, `"e"`, "2024-11-05", `{}`, "early")
		srv.refuse(-32601)
		srv.discover(modernServer)
		synctest.Wait()
		if got := early.answer(hello); !strings.Contains(got, `"protocolVersion":"2024-11-05"`) || !strings.Contains(got, `"serverInfo":{"name":"new"`) {
			t.Fatalf("answered %s", got)
		}
		if err := s.conv.awaitReady(t.Context(), time.Second); err != nil {
			t.Errorf("not ready: %v", err)
		}
		bob := s.introduce("bob", `{"roots":{}}`)
		srv.heard()
		calls := map[*client]*Call{early: early.tool(`1`), bob: bob.tool(`1`)}
		for i, line := range srv.heard() {
			want := []string{`"name":"early"`, `"name":"bob"`}[i]
			if !strings.Contains(line, want) {
				t.Errorf("call %d says %s, want %s", i, line, want)
			}
			srv.say(`{"jsonrpc":"2.0","id":%s,"result":{"n":%d}}`, parse(t, line).ID, i)
		}
		for i, c := range []*client{early, bob} {
			if got := parse(t, c.answer(calls[c])); string(got.Result) != fmt.Sprintf(`{"n":%d}`, i) {
				t.Errorf("%s was answered %s", c.name, got.line)
			}
		}
		early.call(`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"x://e"}}`)
		bob.call(`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"x://b"}}`)
		var last parsed
		for _, line := range srv.heard() {
			if p := parse(t, line); p.Method == "subscriptions/listen" {
				last = p
			}
		}
		srv.say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://b","_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, last.ID)
		if a, b := len(early.told()), len(bob.told()); a != 0 || b != 1 {
			t.Errorf("told %d and %d of what bob subscribed to", a, b)
		}
		s.conv.Leave(bob, "gone")
		if got := srv.one("subscriptions/listen"); slices.Contains(strings.Split(string(got.Params), `"`), "x://b") {
			t.Errorf("after bob has left: %s", got.line)
		}
		s.end()
	})
}
