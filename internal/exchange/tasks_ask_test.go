package exchange

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/testkit"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// keysOf are the keys of a task's open questions.
func keysOf(detail string) (keys []string) {
	for _, m := range jsonrpc.Members([]byte(result(detail, "inputRequests"))) {
		keys = append(keys, m.Key)
	}
	return keys
}

// respond answers one question of a task.
func (s *stage) respond(w who, id, key, answer string) {
	s.t.Helper()
	got := s.about(w, "tasks/update", id, fmt.Sprintf(`,"inputResponses":{%q:%s}`, key, answer))
	if got != `{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete"}}` {
		s.t.Errorf("acknowledged with %s", got)
	}
}

const accepted = `{"action":"accept","content":{"n":"<Ada>"}}`

// onHandshake runs a test of tasks before a server of the handshake era.
func onHandshake(t *testing.T, tools map[string]func(*testkit.ToolCall), f func(t *testing.T, s *stage)) {
	t.Helper()
	on(t, troupe{Troupe: &testkit.Troupe{Handshake: true, Tools: tools}, tasks: taskRules}, f)
}

// TestTaskAsks: what a server of the handshake era asks stands in the task, and
// its answers go back one by one.
func TestTaskAsks(t *testing.T) {
	onHandshake(t, map[string]func(*testkit.ToolCall){"always": func(c *testkit.ToolCall) {
		c.Pause(time.Second)
		one := c.AskLater("elicitation/create", `{"message":"<one>","requestedSchema":{"type":"object"}}`)
		two := c.AskLater("roots/list", `{}`)
		first := <-one
		third := c.AskLater("elicitation/create", `{"message":"three"}`)
		c.Text(first + <-two + <-third)
	}}, func(t *testing.T, s *stage) {
		w := tasker("ann")
		id := s.task(w, "always", `{}`)
		got := s.becomes(w, id, "input_required")
		keys := keysOf(got)
		if len(keys) != 2 || strings.Contains(got, "requestState") {
			t.Fatalf("asked %s", got)
		}
		has(t, "the questions", got, `"method":"elicitation/create","params":{"message":"<one>"`, `"method":"roots/list"`)
		s.respond(w, id, "unknown", accepted)
		s.respond(w, id, keys[0], `"nonsense"`)
		if again := keysOf(s.about(w, "tasks/get", id, "")); fmt.Sprint(again) != fmt.Sprint(keys) {
			t.Errorf("after answers to nothing: %v", again)
		}
		s.respond(w, id, keys[0], accepted)
		got = s.about(w, "tasks/get", id, "")
		if now := keysOf(got); len(now) == 0 || now[0] != keys[1] {
			t.Errorf("after one answer: %s", got)
		}
		s.respond(w, id, keys[0], accepted) // once more: ignored
		s.within(time.Second, "the third question", func() bool { return len(keysOf(s.about(w, "tasks/get", id, ""))) == 2 })
		third := keysOf(s.about(w, "tasks/get", id, ""))[1]
		if third == keys[0] || third == keys[1] {
			t.Errorf("key %s is used twice", third)
		}
		s.respond(w, id, keys[1], `{"roots":[]}`)
		s.respond(w, id, third, `{"action":"decline"}`)
		has(t, "the end", s.becomes(w, id, "completed"), `<Ada>`, `\"roots\":[]`, `decline`)
		if n := len(s.troupe.Told(`"result"`, "<Ada>")); n != 1 {
			t.Errorf("the server was answered %d times", n)
		}
		wantError(t, "no answers", s.about(w, "tasks/update", s.task(w, "always", `{}`), ""), "-32602", "inputResponses")
		time.Sleep(time.Hour)
	})
}

// TestTaskAsksFirst: what is asked before there is a task ends the request, and
// the retry may become one (SEP-2663, "Composition with Multi Round-Trip
// Requests").
func TestTaskAsksFirst(t *testing.T) {
	onHandshake(t, map[string]func(*testkit.ToolCall){"slow": func(c *testkit.ToolCall) {
		name := c.Ask("elicitation/create", `{"message":"who?"}`)
		if c.Pause(time.Minute) {
			c.Text(name)
		}
	}}, func(t *testing.T, s *stage) {
		w := tasker("ann")
		asked := s.done(s.call(w, "1", "slow", `{}`, ""))
		if result(asked, "resultType") != `"input_required"` || strings.Contains(asked, "taskId") {
			t.Fatalf("first round: %s", asked)
		}
		time.Sleep(30 * time.Second) // there is no task whose time could come
		retry := s.done(s.call(w, "2", "slow", `{}`, `,"inputResponses":{"`+keysOf(asked)[0]+`":`+accepted+`},"requestState":`+result(asked, "requestState")))
		if result(retry, "resultType") != `"task"` || strings.Contains(retry, "requestState") {
			t.Fatalf("second round: %s", retry)
		}
		has(t, "the end", s.becomes(w, strings.Trim(result(retry, "taskId"), `"`), "completed"), "<Ada>")
		if n := len(s.troupe.Told(`"slow"`)); n != 1 {
			t.Errorf("executed %d times", n)
		}
	})
}

func TestTaskQuestionIsWithdrawnOrNotAnswered(t *testing.T) {
	onHandshake(t, map[string]func(*testkit.ToolCall){
		"always-withdrawn": func(c *testkit.ToolCall) {
			c.AskLater("elicitation/create", `{"message":"who?"}`)
			c.Pause(10 * time.Second)
			c.Withdraw()
			c.Pause(10 * time.Second)
			c.Text("without")
		},
		"always-waits": func(c *testkit.ToolCall) { c.Ask("elicitation/create", `{"message":"who?"}`); <-c.Context.Done() },
	}, func(t *testing.T, s *stage) {
		w := tasker("ann")
		id := s.task(w, "always-withdrawn", `{}`)
		s.becomes(w, id, "input_required")
		time.Sleep(15 * time.Second)
		has(t, "withdrawn", s.about(w, "tasks/get", id, ""), `"status":"working"`)
		has(t, "the end", s.becomes(w, id, "completed"), "without")
		id = s.task(w, "always-waits", `{}`)
		s.becomes(w, id, "input_required")
		time.Sleep(11 * time.Minute)
		has(t, "nobody answers", s.about(w, "tasks/get", id, ""), `"status":"failed"`, "--question-timeout", `"outcome":"cancelled"`)
		s.within(time.Second, "the cancellation", func() bool { return len(s.troupe.Told("notifications/cancelled")) == 1 })
		id = s.task(w, "always-waits", `{}`)
		s.becomes(w, id, "input_required")
		s.about(w, "tasks/cancel", id, "")
		s.within(time.Second, "the cancellation", func() bool { return len(s.troupe.Told("notifications/cancelled")) == 2 })
		has(t, "cancelled", s.about(w, "tasks/get", id, ""), `"status":"cancelled"`)
	})
}

// TestTaskBeforeAStatelessServerThatAsks: its input_required result is no end of
// the task; the gateway retries with the answers, and the state as it came.
func TestTaskBeforeAStatelessServerThatAsks(t *testing.T) {
	const state = `"a b==\u2028"`
	tools := map[string]func(*testkit.ToolCall){"slow": func(c *testkit.ToolCall) {
		switch {
		case c.State == "":
			c.Pause(20 * time.Second)
			c.Result(`{"resultType":"input_required","requestState":` + state + `,"inputRequests":{"who":{"method":"elicitation/create","params":{"message":"who?"}},"l":{"method":"roots/list"}}}`)
		case c.Response("l") != "":
			c.Result(`{"resultType":"input_required","requestState":` + state + `,"inputRequests":{"who":{"method":"elicitation/create","params":{"message":"really?"}}}}`)
		default:
			c.Text(c.State + c.Response("who"))
		}
	}}
	on(t, troupe{Troupe: &testkit.Troupe{Stateless: true, Tools: tools}, tasks: taskRules}, func(t *testing.T, s *stage) {
		w := tasker("ann")
		id := s.task(w, "slow", `{}`)
		got := s.becomes(w, id, "input_required")
		if fmt.Sprint(keysOf(got)) != "[who l]" || strings.Contains(got, "requestState") {
			t.Fatalf("asked %s", got)
		}
		s.respond(w, id, "who", accepted)
		if n := len(s.troupe.Told("inputResponses")); n != 0 {
			t.Errorf("%d retries with half of the answers", n)
		}
		s.respond(w, id, "l", `{"roots":[]}`)
		got = s.becomes(w, id, "input_required")
		if fmt.Sprint(keysOf(got)) != "[who-2]" {
			t.Fatalf("a key is used twice: %s", got)
		}
		s.respond(w, id, "who-2", `{"action":"decline"}`)
		has(t, "the end", s.becomes(w, id, "completed"), `a b==\\u2028`, "decline")
		retries := s.troupe.Told("inputResponses")
		if len(retries) != 2 || !strings.Contains(retries[0], `"who":`+accepted) || !strings.Contains(retries[1], `"requestState":`+state) {
			t.Errorf("retried with %q", retries)
		}
	})
}

// TestTaskNotifications come on a subscription that names the task: its state at
// once, then each change, then nothing more.
func TestTaskNotifications(t *testing.T) {
	tools := lasting(time.Minute, "slow")
	bothEras(t, tools, func(t *testing.T, s *stage) {
		w := tasker("ann")
		id := s.task(w, "slow", `{}`)
		filter := fmt.Sprintf(`"notifications":{"toolsListChanged":true,"taskIds":[%q,"theirs","hf-task-x"]}`, id)
		wantError(t, "a client that cannot take tasks", s.ask(who{name: "b"}, "1", "subscriptions/listen", filter), "-32021")
		r := s.send(w, w.request(`"sub"`, "subscriptions/listen", filter))
		foreign := s.send(tasker("bob"), tasker("bob").request(`"sub"`, "subscriptions/listen", filter))
		s.within(time.Second, "the present state", func() bool { return len(r.told()) == 2 })
		told := r.told()
		ack, err := jsonrpc.Parse([]byte(told[0]))
		if err != nil {
			t.Fatal(err)
		}
		if ids := string(jsonrpc.Get(jsonrpc.Get(ack.Raw(jsonrpc.Params), "notifications"), "taskIds")); !strings.Contains(ids, id) || strings.Contains(ids, "hf-task-x") {
			t.Errorf("acknowledged %s", told[0])
		}
		has(t, "the present state", told[1], `"method":"notifications/tasks"`, `"status":"working"`, id, `"io.modelcontextprotocol/subscriptionId":"sub"`)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		told = r.told()
		if len(told) != 3 {
			t.Fatalf("told %q", told)
		}
		has(t, "the end", told[2], `"status":"completed"`, `"text":"done"`, id)
		if strings.Contains(told[2], "resultType\":\"complete\",\"taskId") {
			t.Errorf("a notification with the mark of a result: %s", told[2])
		}
		if got := strings.Join(foreign.told(), ""); strings.Contains(got, "notifications/tasks") || strings.Contains(got, id) && !strings.Contains(got, `"theirs"`) {
			t.Errorf("another principal was told %s", got)
		}
		for _, line := range s.troupe.Told("subscriptions/listen") {
			if strings.Contains(line, id) {
				t.Errorf("the server was asked for a task that is not its own: %s", line)
			}
		}
		r.stop()
		foreign.stop()
		if j, _ := s.host.jobs.Find(id, "ann"); len(j.hearers) != 0 {
			t.Errorf("%d still listen", len(j.hearers))
		}
	})
}

// TestTasksOfAServer that has its own pass as they are, with all that is about
// them.
func TestTasksOfAServer(t *testing.T) {
	const made = `{"resultType":"task","taskId":"t<1>","status":"working","createdAt":"2000-01-01T00:00:00Z","lastUpdatedAt":"2000-01-01T00:00:00Z","ttlMs":null,"pollIntervalMs":2000.0}`
	tr := &testkit.Troupe{Stateless: true, Tools: map[string]func(*testkit.ToolCall){"slow": func(c *testkit.ToolCall) { c.Result(made) }},
		On: map[string]func(a *testkit.Actor, m *jsonrpc.Message){}}
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		tr.On[method] = func(a *testkit.Actor, m *jsonrpc.Message) { a.Reply(string(m.Raw(jsonrpc.ID)), made) }
	}
	on(t, troupe{Troupe: tr, tasks: taskRules}, func(t *testing.T, s *stage) {
		w := tasker("ann")
		want := `{"jsonrpc":"2.0","id":7,"result":` + made + `}`
		if got := s.done(s.call(w, "7", "slow", `{}`, "")); got != want {
			t.Errorf("answered %s", got)
		}
		for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
			if got := s.about(w, method, "t<1>", `,"x":1.0`); got != want {
				t.Errorf("%s: %s", method, got)
			}
			if lines := s.troupe.Told(method); len(lines) != 1 || !strings.Contains(lines[0], `"x":1.0`) {
				t.Errorf("%s: the server was sent %q", method, lines)
			}
		}
	})
}
