package exchange

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/calls"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// notary is a server of the stateless era whose tool "sign" is a task that asks:
// first "a", then, of whoever answered, "b" and "c" at once. What it knows of its
// task outlives its process.
type notary struct {
	after  time.Duration // until the call is answered with the task
	strict bool          // calls of clients that take no tasks are refused
	lag    int           // looks until an answer shows

	mu        sync.Mutex // guards the fields below
	looks     []time.Time
	answers   map[string]string
	behind    int
	withdrawn bool
	cancelled bool
}

const notaryCan = `{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`

func (n *notary) head() string {
	return `"taskId":"t<1>","createdAt":"2000-01-01T00:00:00Z","lastUpdatedAt":"2000-01-01T00:00:00Z","ttlMs":null,"pollIntervalMs":3000`
}

// state is what tasks/get says.
func (n *notary) state() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looks = append(n.looks, time.Now())
	known := n.answers
	if n.behind > 0 {
		n.behind--
		known = nil
	}
	var open []string
	switch {
	case n.cancelled:
		return `"status":"cancelled"`
	case len(n.looks) == 1, n.withdrawn:
		return `"status":"working"`
	case known["a"] == "":
		open = []string{"a"}
	case known["b"] == "":
		open = append(open, "b")
		fallthrough
	default:
		if known["c"] == "" {
			open = append(open, "c")
		}
	}
	if len(open) == 0 {
		return fmt.Sprintf(`"status":"completed","result":{"resultType":"complete","content":[{"type":"text","text":%q}]}`, known["a"]+known["b"]+known["c"])
	}
	asks := make([]string, 0, len(open))
	for _, key := range open {
		asks = append(asks, fmt.Sprintf(`%q:{"method":"elicitation/create","params":{"message":"<%s>","requestedSchema":{"n":1.0}}}`, key, key))
	}
	return `"status":"input_required","inputRequests":{` + strings.Join(asks, ",") + `}`
}

func (n *notary) troupe() *testkit.Troupe {
	n.answers = map[string]string{}
	done := func(a *testkit.Actor, m *jsonrpc.Message) {
		a.Reply(string(m.Raw(jsonrpc.ID)), `{"resultType":"complete"}`)
	}
	return &testkit.Troupe{Stateless: true, Capabilities: notaryCan,
		Tools: map[string]func(*testkit.ToolCall){"sign": func(c *testkit.ToolCall) {
			switch takes := strings.Contains(c.Params, `"extensions":{"io.modelcontextprotocol/tasks":{}}`); {
			case n.strict && !takes:
				c.Actor.Say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32021,"message":"no","data":{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}`, c.ID)
			case c.Pause(n.after):
				c.Result(`{"resultType":"task","status":"working",` + n.head() + `}`)
			}
		}, "own": func(c *testkit.ToolCall) {
			c.Result(`{"resultType":"input_required","inputRequests":{"x":{"method":"roots/list"}},"requestState":"a b==\u2028"}`)
		}},
		On: map[string]func(a *testkit.Actor, m *jsonrpc.Message){
			"tasks/get": func(a *testkit.Actor, m *jsonrpc.Message) {
				a.Reply(string(m.Raw(jsonrpc.ID)), fmt.Sprintf(`{"resultType":"complete",%s,%s}`, n.head(), n.state()))
			},
			"tasks/update": func(a *testkit.Actor, m *jsonrpc.Message) {
				n.mu.Lock()
				for _, r := range jsonrpc.Members(jsonrpc.Get(m.Raw(jsonrpc.Params), "inputResponses")) {
					if n.answers[r.Key] == "" {
						n.answers[r.Key] = string(r.Value)
					}
				}
				n.behind = n.lag
				n.mu.Unlock()
				done(a, m)
			},
			"tasks/cancel": func(a *testkit.Actor, m *jsonrpc.Message) {
				n.mu.Lock()
				n.cancelled = true
				n.mu.Unlock()
				done(a, m)
			},
		}}
}

// paced holds that no look came sooner than the server wants.
func (n *notary) paced(t *testing.T) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := 1; i < len(n.looks); i++ {
		if d := n.looks[i].Sub(n.looks[i-1]); d < 3*time.Second {
			t.Errorf("look %d came %v after the one before", i+1, d)
		}
	}
}

// onNotary runs a test before a notary.
func onNotary(t *testing.T, n *notary, f func(t *testing.T, s *stage)) {
	t.Helper()
	on(t, troupe{Troupe: n.troupe(), tasks: taskRules}, f)
}

// simple is a client that takes no tasks, and answers questions.
func simple() who {
	return who{principal: "sue", name: "sue", capabilities: `{"elicitation":{"form":{}}}`}
}

// retry answers an input_required result.
func (s *stage) retry(w who, id, asked, responses string) string {
	s.t.Helper()
	if result(asked, "resultType") != `"input_required"` || strings.Contains(asked, "taskId") || strings.Contains(asked, "t<1>") {
		s.t.Fatalf("no question: %s", asked)
	}
	return s.done(s.call(w, id, "sign", `{"n":1.0}`, `,"inputResponses":`+responses+`,"requestState":`+result(asked, "requestState")))
}

const yes, no, maybe = `{"action":"accept","content":{"n":-0}}`, `{"action":"decline"}`, `{"action":"cancel"}`

// TestServersTaskAsks: what a server's task asks a client that takes none ends its
// request, as any question does. Its retry answers, and goes on with the task.
func TestServersTaskAsks(t *testing.T) {
	n := &notary{lag: 1}
	onNotary(t, n, func(t *testing.T, s *stage) {
		asked := s.done(s.call(simple(), "1", "sign", `{"n":1.0}`, ""))
		has(t, "the first question", asked, `"inputRequests":{"a":{"method":"elicitation/create","params":{"message":"<a>","requestedSchema":{"n":1.0}}}}`)
		first := asked
		asked = s.retry(simple(), `"2"`, asked, `{"a":`+yes+`}`)
		if got := strings.Join(keysOf(asked), " "); got != "b c" {
			t.Fatalf("then it asks %s: %s", got, asked)
		}
		asked = s.retry(simple(), "3", asked, `{"b":`+no+`}`) // one of two
		if got := strings.Join(keysOf(asked), " "); got != "c" {
			t.Fatalf("then it asks %s: %s", got, asked)
		}
		if got := text(t, s.retry(simple(), "4", asked, `{"c":`+maybe+`}`)); got != yes+no+maybe {
			t.Errorf("answered %s", got)
		}
		if got := text(t, s.retry(simple(), "5", first, `{"a":`+no+`}`)); got != yes+no+maybe { // as after a cut: the answer was given
			t.Errorf("an old retry was answered %s", got)
		}
		if n := len(s.troupe.Told(`"tools/call"`)); n != 1 {
			t.Errorf("the server was called %d times", n)
		}
		n.paced(t)
		time.Sleep(time.Hour)
		if told := s.troupe.Told("tasks/cancel"); len(told) != 0 {
			t.Errorf("cancelled: %q", told)
		}
	})
}

// TestServersTaskGoesOnAfterARestart: what a client carries across the gateway's
// restart is all that it takes, where the server still knows its task.
func TestServersTaskGoesOnAfterARestart(t *testing.T) {
	n := &notary{}
	synctest.Test(t, func(t *testing.T) {
		tr := troupe{Troupe: n.troupe(), tasks: taskRules}
		before := newStage(t, tr)
		asked := before.done(before.call(simple(), "1", "sign", `{"n":1.0}`, ""))
		before.close()
		after := newStage(t, tr)
		defer after.close()
		asked = after.retry(simple(), "1", asked, `{"a":`+yes+`}`)
		if got := text(t, after.retry(simple(), "2", asked, `{"b":`+no+`,"c":`+no+`}`)); got != yes+no+no {
			t.Errorf("answered %s", got)
		}
		if n := len(tr.Told(`"tools/call"`)); n != 1 {
			t.Errorf("the server was called %d times", n)
		}
	})
}

// TestServersTaskIsAnsweredByWhoWasAsked, in time, for the same call.
func TestServersTaskIsAnsweredByWhoWasAsked(t *testing.T) {
	onNotary(t, &notary{}, func(t *testing.T, s *stage) {
		asked := s.done(s.call(simple(), "1", "sign", `{"n":1.0}`, ""))
		other := simple()
		other.principal = "eve"
		wantError(t, "somebody else", s.retry(other, "2", asked, `{"a":`+yes+`}`), "-32602", "not_executed")
		elsewhere := s.call(simple(), "3", "sign", `{"n":2.0}`, `,"inputResponses":{"a":{}},"requestState":`+result(asked, "requestState"))
		wantError(t, "another call", s.done(elsewhere), "-32602", "not_executed")
		time.Sleep(11 * time.Minute)
		wantError(t, "too late", s.retry(simple(), "4", asked, `{"a":`+yes+`}`), "-32602", "not_executed")
		if cancels, updates := s.troupe.Told("tasks/cancel", `"t<1>"`), s.troupe.Told("tasks/update"); len(cancels) != 1 || len(updates) != 0 {
			t.Errorf("told %q and %q", cancels, updates)
		}
		if n := len(s.troupe.Told(`"tools/call"`)); n != 1 {
			t.Errorf("the server was called %d times", n)
		}
	})
}

// TestServersTaskAsksWhoCannotAnswer: the error names what the client lacks.
func TestServersTaskAsksWhoCannotAnswer(t *testing.T) {
	onNotary(t, &notary{}, func(t *testing.T, s *stage) {
		got := s.done(s.call(who{name: "mute"}, "1", "sign", `{"n":1.0}`, ""))
		wantError(t, "a question", got, "-32021", `"requiredCapabilities":{"elicitation":{}}`, `"outcome":"cancelled"`)
		s.within(time.Second, "the task's end", func() bool { return len(s.troupe.Told("tasks/cancel")) == 1 })
	})
}

// TestServersTaskAsksWithinOurs: the question stands in the task that the client
// knows, the answers go to the server's.
func TestServersTaskAsksWithinOurs(t *testing.T) {
	n := &notary{after: 20 * time.Second, lag: 2}
	onNotary(t, n, func(t *testing.T, s *stage) {
		w := tasker("ann")
		id := s.task(w, "sign", `{"n":1.0}`)
		got := s.becomes(w, id, "input_required")
		has(t, "the question", got, `"a":{"method":"elicitation/create","params":{"message":"<a>"`)
		s.respond(w, id, "a", yes)
		has(t, "once it is answered", s.about(w, "tasks/get", id, ""), `"status":"working"`)
		got = s.becomes(w, id, "input_required")
		if keys := strings.Join(keysOf(got), " "); keys != "b c" {
			t.Fatalf("then it asks %s: %s", keys, got)
		}
		s.respond(w, id, "c", no)
		if keys := strings.Join(keysOf(s.about(w, "tasks/get", id, "")), " "); keys != "b" {
			t.Errorf("then it asks %s", keys)
		}
		time.Sleep(20 * time.Second)
		s.respond(w, id, "b", maybe)
		s.respond(w, id, "b", maybe) // once more: ignored
		if got := s.becomes(w, id, "completed"); !strings.Contains(got, "cancel") || strings.Count(got, "cancel") != 1 {
			t.Errorf("the end: %s", got)
		}
		if n := len(s.troupe.Told(`"tools/call"`)); n != 1 {
			t.Errorf("the server was called %d times", n)
		}
		n.paced(t)
	})
}

func TestServersTaskWithinOursIsWithdrawnOrCancelled(t *testing.T) {
	n := &notary{after: 20 * time.Second}
	onNotary(t, n, func(t *testing.T, s *stage) {
		w := tasker("ann")
		id := s.task(w, "sign", `{"n":1.0}`)
		s.becomes(w, id, "input_required")
		n.mu.Lock()
		n.withdrawn = true
		n.mu.Unlock()
		got := s.becomes(w, id, "working")
		if strings.Contains(got, "inputRequests") {
			t.Errorf("withdrawn: %s", got)
		}
		n.mu.Lock()
		n.withdrawn = false
		n.mu.Unlock()
		s.becomes(w, id, "input_required")
		s.about(w, "tasks/cancel", id, "")
		s.within(time.Second, "the cancellation", func() bool { return len(s.troupe.Told("tasks/cancel", `"t<1>"`)) == 1 })
		has(t, "then", s.about(w, "tasks/get", id, ""), `"status":"cancelled"`)
	})
}

// TestServersTaskThatHadToBeOne: a server that executes a tool as a task only is
// called by the gateway, which takes tasks, for a client that takes none.
func TestServersTaskThatHadToBeOne(t *testing.T) {
	n := &notary{strict: true}
	onNotary(t, n, func(t *testing.T, s *stage) {
		asked := s.done(s.call(simple(), "1", "sign", `{"n":1.0}`, ""))
		asked = s.retry(simple(), "2", asked, `{"a":`+yes+`}`)
		if got := text(t, s.retry(simple(), "3", asked, `{"b":`+no+`,"c":`+no+`}`)); got != yes+no+no {
			t.Errorf("answered %s", got)
		}
		told := s.troupe.Told(`"tools/call"`)
		if len(told) != 2 || strings.Contains(told[0], "extensions") || !strings.Contains(told[1], `"elicitation":{"form":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}`) ||
			!strings.Contains(told[1], `"arguments":{"n":1.0}`) {
			t.Errorf("called with %q", told)
		}
	})
}

// TestServersOwnRequestState goes to the server and back as it is.
func TestServersOwnRequestState(t *testing.T) {
	onNotary(t, &notary{}, func(t *testing.T, s *stage) {
		w := simple()
		w.capabilities = `{"roots":{}}`
		asked := s.done(s.call(w, "1", "own", `{}`, ""))
		has(t, "the question", asked, `"requestState":"a b==\u2028"`)
		s.done(s.call(w, "2", "own", `{}`, `,"inputResponses":{"x":{"roots":[]}},"requestState":"a b==\u2028"`))
		if n := len(s.troupe.Told(`"inputResponses":{"x":{"roots":[]}},"requestState":"a b==\u2028"`)); n != 1 {
			t.Errorf("the server was told so %d times", n)
		}
	})
}

// TestServersTaskOfAHeldCall asks whoever waits, and is not taken for one of the
// gateway's.
func TestServersTaskOfAHeldCall(t *testing.T) {
	n := &notary{}
	rules := func(string) calls.Rules { return calls.Rules{OnDisconnect: calls.Linger} }
	on(t, troupe{Troupe: n.troupe(), tasks: taskRules, rules: rules}, func(t *testing.T, s *stage) {
		m, err := jsonrpc.Parse([]byte(tasker("ann").request("1", "tools/call", `"name":"sign","arguments":{"n":1.0}`)))
		if err != nil {
			t.Fatal(err)
		}
		r := &reply{t: t}
		if _, fail := s.host.Serve(Request{Principal: "ann", Message: m, Emit: r.emit, Receipt: &Receipt{}, Caller: func() string { return "ann" }}); fail != nil {
			t.Fatal(fail)
		}
		asked := s.done(r)
		if result(asked, "resultType") != `"input_required"` {
			t.Fatalf("answered %s", asked)
		}
		again := s.call(tasker("ann"), "2", "sign", `{"n":1.0}`, `,"inputResponses":{"a":`+yes+`},"requestState":`+result(asked, "requestState"))
		if asked = s.done(again); strings.Join(keysOf(asked), " ") != "b c" {
			t.Errorf("then it asks %s", asked)
		}
	})
}
