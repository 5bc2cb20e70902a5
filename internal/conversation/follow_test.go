package conversation

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// taskIn is the state of a task as a server tells it; more are further members.
func taskIn(kind, status, more string) string {
	return fmt.Sprintf(`{"resultType":%q,"taskId":"t<\u0031>","status":%q,"createdAt":"2000-01-01T00:00:00Z","lastUpdatedAt":"2000-01-01T00:00:00Z","ttlMs":null%s}`, kind, status, more)
}

// polls demands that the server is asked for its task after d, not before, and
// answers.
func (s *server) polls(d time.Duration, state string) parsed {
	s.t.Helper()
	time.Sleep(d - time.Millisecond)
	synctest.Wait()
	if lines := s.heard(); len(lines) != 0 {
		s.t.Fatalf("earlier than after %v the server was sent %q", d, lines)
	}
	time.Sleep(2 * time.Millisecond)
	asked := s.next()
	if asked.Method != "tasks/get" || string(jsonrpc.Get(asked.Params, "taskId")) != `"t<\u0031>"` ||
		!strings.Contains(asked.line, `"extensions":{"io.modelcontextprotocol/tasks":{}}`) {
		s.t.Fatalf("the server was asked %s", asked.line)
	}
	s.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, asked.ID, state)
	return asked
}

// TestFollow: a server's task is an ordinary long call to a client of the
// handshake era (C70). It is polled as often as the server wants, by the newest
// word.
func TestFollow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c, srv := s.crossed("ada", everything)
		call, _ := s.asking(c, srv, taskIn("task", "working", `,"pollIntervalMs":2000`))
		srv.polls(2*time.Second, taskIn("complete", "working", `,"pollIntervalMs":5000,"statusMessage":"<half>"`))
		srv.polls(5*time.Second, taskIn("complete", "working", ""))
		srv.polls(5*time.Second, taskIn("complete", "completed", `,"result":{"resultType":"complete","content":[],"n":1.0}`))
		if got := c.answer(call); got != `{"jsonrpc":"2.0","id":"\u0041","result":{"content":[],"n":1.0}}` {
			t.Errorf("answered %s", got)
		}
		equal(t, "meanwhile", c.told(), []string{
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tok","progress":1,"message":"<half>"}}`,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tok","progress":2}}`})
		time.Sleep(time.Minute)
		equal(t, "then the server was sent", srv.heard(), nil)
		if s.conv.InFlight() != 0 {
			t.Errorf("%d in flight", s.conv.InFlight())
		}
		s.end()
	})
}

func TestFollowEnds(t *testing.T) {
	for state, want := range map[string]string{
		taskIn("complete", "failed", `,"error":{"code":-32099,"message":"<no>","data":1.0}`): `"error":{"code":-32099,"message":"<no>","data":1.0}`,
		taskIn("complete", "cancelled", ""):                                                  `"outcome":"cancelled"`,
		taskIn("complete", "completed", ""):                                                  `"outcome":"unknown"`,
		taskIn("complete", "failed", ""):                                                     `"outcome":"unknown"`,
	} {
		bubble(t, func(t *testing.T) {
			s := begin(t, false)
			c, srv := s.crossed("ada", everything)
			call, _ := s.asking(c, srv, taskIn("task", "working", ""))
			srv.polls(pollUsual, state)
			if got := c.answer(call); !strings.Contains(got, want) {
				t.Errorf("%s was answered %s", state, got)
			}
			s.end()
		})
	}
}

// TestFollowAsks: what the task asks goes to the client as requests, once each;
// the answers go back by tasks/update.
func TestFollowAsks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c, srv := s.crossed("ada", everything)
		call, _ := s.asking(c, srv, taskIn("task", "working", ""))
		asks := taskIn("complete", "input_required", `,"inputRequests":{"\u0061 key":`+elicit+`}`)
		srv.polls(pollUsual, asks)
		told := c.told()
		if len(told) != 1 {
			t.Fatalf("asked %q", told)
		}
		time.Sleep(time.Minute)
		equal(t, "while the client is asked, the server was sent", srv.heard(), nil)
		c.reply(parse(t, told[0]).ID, `"result":{"action":"accept","n":1.0}`)
		update := srv.next()
		if got := string(jsonrpc.Get(update.Params, "inputResponses")); update.Method != "tasks/update" || got != `{"a key":{"action":"accept","n":1.0}}` {
			t.Errorf("the server was sent %s", update.line)
		}
		srv.say(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete"}}`, update.ID)
		srv.polls(pollUsual, asks) // it does not show yet
		if told := c.told(); len(told) != 1 || !strings.Contains(told[0], "notifications/progress") {
			t.Errorf("then the client was told %q", told)
		}
		srv.polls(pollUsual, taskIn("complete", "completed", `,"result":{"content":[]}`))
		if got := c.answer(call); !strings.Contains(got, `"content":[]`) {
			t.Errorf("answered %s", got)
		}
		s.end()
	})
}

// TestFollowCancelled: tasks are cancelled by tasks/cancel, by nothing else.
func TestFollowCancelled(t *testing.T) {
	for name, asking := range map[string]bool{"while it works": false, "while it asks": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := begin(t, false)
				c, srv := s.crossed("ada", everything)
				call, _ := s.asking(c, srv, taskIn("task", "working", ""))
				if asking {
					srv.polls(pollUsual, taskIn("complete", "input_required", `,"inputRequests":{"a":`+elicit+`}`))
				}
				if !c.conv.Cancel(call, c.message(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"A"}}`)) {
					t.Error("the call was not running")
				}
				time.Sleep(time.Minute)
				lines := srv.heard()
				if len(lines) != 1 || parse(t, lines[0]).Method != "tasks/cancel" {
					t.Errorf("the server was sent %q", lines)
				}
				s.end()
			})
		})
	}
}

// TestFollowWhatMustBeATask: a server that executes a tool as a task only is
// called once more by a client that takes tasks: the gateway.
func TestFollowWhatMustBeATask(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c, srv := s.crossed("ada", everything)
		call := c.call(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"n":1.0}}}`)
		const needs = `{"code":-32021,"message":"no","data":{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}`
		srv.say(`{"jsonrpc":"2.0","id":%s,"error":%s}`, srv.next().ID, needs)
		again := srv.next()
		meta := jsonrpc.Get(again.Params, "_meta")
		capabilities := string(jsonrpc.Get(meta, "io.modelcontextprotocol/clientCapabilities"))
		if !strings.Contains(capabilities, `"extensions":{"io.modelcontextprotocol/tasks":{}}`) || !strings.Contains(capabilities, `"sampling"`) || strings.Count(again.line, "clientCapabilities") != 1 {
			t.Errorf("called again with %s", again.line)
		}
		srv.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, again.ID, taskIn("task", "working", ""))
		srv.polls(pollUsual, taskIn("complete", "completed", `,"result":{"content":[]}`))
		if got := c.answer(call); !strings.Contains(got, `"content":[]`) {
			t.Errorf("answered %s", got)
		}
		call = c.call(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x"}}`)
		srv.say(`{"jsonrpc":"2.0","id":%s,"error":%s}`, srv.next().ID, needs)
		srv.say(`{"jsonrpc":"2.0","id":%s,"error":%s}`, srv.next().ID, needs) // nothing helps
		if got := c.answer(call); !strings.Contains(got, "-32021") {
			t.Errorf("answered %s", got)
		}
		s.end()
	})
}

func TestFollowWhenTheServerDies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c, srv := s.crossed("ada", everything)
		call, _ := s.asking(c, srv, taskIn("task", "working", ""))
		time.Sleep(10 * time.Millisecond)
		srv.die(errors.New("gone"))
		if got := c.answer(call); !strings.Contains(got, `"outcome":"unknown"`) {
			t.Errorf("answered %s", got)
		}
		s.end()
	})
}
