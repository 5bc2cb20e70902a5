package conversation

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// remoteStage is a conversation with a remote server, whose client has sent
// initialize and, without waiting for the answer, what comes after it.
func remoteStage(t *testing.T) (s *stage, c *client, hello, tool *Call, asked parsed) {
	t.Helper()
	s = begin(t, false)
	s.conv.opts.Remote = true
	c = s.join("a")
	hello = c.call(clientHello, `"i"`, "2025-06-18", `{}`, "a")
	c.notify(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	tool = c.tool(`"t"`)
	asked = s.latest().next()
	if asked.Method != "server/discover" {
		t.Fatalf("the server was sent %s first", asked.line)
	}
	return s, c, hello, tool, asked
}

// TestLook: a remote server is asked what it speaks before it is sent a client's
// initialize. Only one of the stateless era alone is not sent it at all. What the
// client sent meanwhile comes after.
func TestLook(t *testing.T) {
	dual := strings.Replace(discovered, `["2026-07-28"]`, `["2026-07-28","2025-06-18"]`, 1)
	older := strings.Replace(discovered, `["2026-07-28"]`, `["2025-06-18","2025-03-26"]`, 1)
	for name, said := range map[string]string{
		"it speaks both eras": `"result":` + dual, "it speaks no other": `"result":` + older, "it does not know the method": `"error":{"code":-32601,"message":"no"}`,
		"it wants a session": `"error":{"code":-32000,"message":"HTTP 400","data":{"outcome":"not_executed","status":400}}`, "it is silent": "",
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s, c, hello, tool, asked := remoteStage(t)
				srv := s.latest()
				if said == "" {
					time.Sleep(crossTime)
					synctest.Wait()
				} else {
					srv.say(`{"jsonrpc":"2.0","id":%s,%s}`, asked.ID, said)
				}
				var order []string
				for _, line := range srv.heard() {
					p := parse(t, line)
					order = append(order, p.Method)
					switch p.Method {
					case "initialize":
						srv.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, p.ID, serverResult)
					case "tools/call":
						srv.say(`{"jsonrpc":"2.0","id":%s,"result":{"x":1}}`, p.ID)
					}
				}
				want := []string{"initialize", "notifications/initialized", "tools/call"}
				if said == "" {
					want = append([]string{"notifications/cancelled"}, want...)
				}
				equal(t, "sent", order, want)
				if got := parse(t, c.answer(hello)); string(got.Result) != serverResult {
					t.Errorf("initialize was answered with %s", got.line)
				}
				if !strings.Contains(c.answer(tool), `{"x":1}`) {
					t.Errorf("the call was answered with %q", c.answer(tool))
				}
				srv.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, asked.ID, discovered) // too late
				s.end()
			})
		})
	}
}

// A server of the stateless era alone is sent nothing of the other one, whatever it
// would say to it.
func TestLookAtAStatelessServer(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("again=%v", again), func(t *testing.T) { lookAtAStatelessServer(t, again) })
	}
}

// again: the server refuses the revision that it speaks, the first time.
func lookAtAStatelessServer(t *testing.T, again bool) {
	bubble(t, func(t *testing.T) {
		s, c, hello, tool, asked := remoteStage(t)
		srv := s.latest()
		if again {
			srv.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"x","data":{"supported":["2026-07-28"]}}}`, asked.ID)
			if asked = srv.next(); asked.Method != "server/discover" {
				t.Fatalf("then it was sent %s", asked.line)
			}
		}
		srv.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, asked.ID, discovered)
		if got := c.answer(hello); !strings.Contains(got, `"protocolVersion":"2025-06-18"`) {
			t.Errorf("initialize was answered with %s", got)
		}
		for _, line := range srv.heard() {
			switch p := parse(t, line); p.Method {
			case "subscriptions/listen":
			case "tools/call":
				if !strings.Contains(line, `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`) {
					t.Errorf("a call of the other era: %s", line)
				}
				srv.say(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","x":1}}`, p.ID)
			default:
				t.Errorf("it was sent %s", line)
			}
		}
		if !strings.Contains(c.answer(tool), `{"x":1}`) {
			t.Errorf("the call was answered with %q", c.answer(tool))
		}
		s.end()
	})
}

// TestLookAtNothing: that nothing was reached is the answer; the next initialize
// looks again.
func TestLookAtNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, c, hello, _, asked := remoteStage(t)
		s.latest().say(`{"jsonrpc":"2.0","id":%s,"error":%s}`, asked.ID, nobodyThere)
		if got := c.answer(hello); !strings.Contains(got, nobodyThere) {
			t.Errorf("initialize was answered with %q", got)
		}
		s.latest().heard()
		c.call(clientHello, `"j"`, "2025-06-18", `{}`, "a")
		s.latest().one("server/discover")
		s.end()
	})
}

// TestLeaveDuringALook: of a client that has left, or of a call that it has
// cancelled, the server hears nothing.
func TestLeaveDuringALook(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, c, _, tool, asked := remoteStage(t)
		if !c.conv.Cancel(tool, c.message(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"t"}}`)) {
			t.Error("the call was not running")
		}
		s.latest().say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, asked.ID)
		for _, line := range s.latest().heard() {
			if p := parse(t, line); p.Method == "tools/call" || p.Method == "notifications/cancelled" {
				t.Errorf("it was sent %s", line)
			}
		}
		s.end()

		s, c, hello, _, asked := remoteStage(t)
		srv := s.latest()
		s.conv.Leave(c, "it goes")
		srv.heard()
		srv.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, asked.ID)
		if got := srv.heard(); len(got) > 0 || c.answer(hello) != "" {
			t.Errorf("it was sent %q", got)
		}
		s.end()
	})
}

// What waits during a look is bounded.
func TestTooMuchDuringALook(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, c, _, _, _ := remoteStage(t)
		s.conv.mu.Lock()
		s.conv.looking.size = maxHeld
		s.conv.mu.Unlock()
		if _, err := c.try(`{"jsonrpc":"2.0","id":9,"method":"tools/list"}`); err == nil {
			t.Error("taken")
		}
		if err := c.conv.Notify(c, c.message(`{"jsonrpc":"2.0","method":"x/y"}`)); err == nil {
			t.Error("taken")
		}
		s.end()
	})
}

// TestLookOnce: a server that took a handshake is not asked again, until it
// refuses one.
func TestLookOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, f := pool(t, PoolOptions{Options: Options{Remote: true}, Max: 10})
		first := func(want string, answer string) {
			t.Helper()
			conv, err := p.Take()
			if err != nil {
				t.Fatal(err)
			}
			c := &client{t: t, name: "a", conv: conv, answers: map[*Call]string{}}
			if err := conv.Join(c); err != nil {
				t.Fatal(err)
			}
			c.call(clientHello, `"i"`, "2025-06-18", `{}`, "a")
			got := f.latest().next()
			if got.Method != want {
				t.Errorf("the server was sent %s, not %s", got.line, want)
			}
			f.latest().say(`{"jsonrpc":"2.0","id":%s,%s}`, got.ID, answer)
			if want == "server/discover" {
				f.latest().greet(serverResult)
			}
			conv.Leave(c, "done")
		}
		no := `"error":{"code":-32601,"message":"no"}`
		first("server/discover", no)
		first("initialize", `"result":`+serverResult)
		first("initialize", no)
		first("server/discover", no)
		p.Close(ErrClosed)
	})
}

func TestAway(t *testing.T) {
	for fault, want := range map[string]bool{nobodyThere: true, notLetIn: false, notFound: false, `{"code":-32601}`: false, `{"data":{"outcome":"unknown"}}`: false} {
		m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"error":` + fault + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := away(m); got != want {
			t.Errorf("%s: %v", fault, got)
		}
	}
}
