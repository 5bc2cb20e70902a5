package exchange

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/calls"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// tasker is a client that can take tasks, and be asked.
func tasker(name string) who {
	return who{principal: name, name: name, capabilities: `{"elicitation":{"form":{}},"roots":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`}
}

// taskRules are those of the tests: by the tool's name.
func taskRules(tool string) TaskRule {
	switch {
	case strings.HasPrefix(tool, "never"):
		return TaskRule{After: -1}
	case strings.HasPrefix(tool, "always"):
		return TaskRule{}
	case strings.HasPrefix(tool, "required"):
		return TaskRule{Required: true}
	}
	return TaskRule{After: 10 * time.Second}
}

// lasting are tools of some length.
func lasting(d time.Duration, names ...string) map[string]func(*testkit.ToolCall) {
	tools := map[string]func(*testkit.ToolCall){}
	for _, name := range names {
		tools[name] = func(c *testkit.ToolCall) {
			if c.Pause(d) {
				c.Text("done")
			}
		}
	}
	return tools
}

// bothEras runs a test before servers of either era.
func bothEras(t *testing.T, tools map[string]func(*testkit.ToolCall), f func(t *testing.T, s *stage)) {
	t.Helper()
	for name, stateless := range map[string]bool{"handshake": false, "stateless": true} {
		t.Run(name, func(t *testing.T) {
			on(t, troupe{Troupe: &testkit.Troupe{Handshake: !stateless, Stateless: stateless, Tools: tools}, tasks: taskRules}, f)
		})
	}
}

// task calls a tool and returns the id of the task that it becomes.
func (s *stage) task(w who, tool, args string) string {
	s.t.Helper()
	answer := s.done(s.call(w, `"poster"`, tool, args, ""))
	if result(answer, "resultType") != `"task"` {
		s.t.Fatalf("no task: %s", answer)
	}
	return strings.Trim(result(answer, "taskId"), `"`)
}

// about sends a request about a task; rest are further members of params.
func (s *stage) about(w who, method, id, rest string) string {
	s.t.Helper()
	return s.ask(w, "7", method, fmt.Sprintf(`"taskId":%q%s`, id, rest))
}

// becomes waits until a task has a status, and returns what tasks/get says.
func (s *stage) becomes(w who, id, status string) string {
	s.t.Helper()
	var got string
	s.within(time.Hour, "task "+status, func() bool {
		got = s.about(w, "tasks/get", id, "")
		return result(got, "status") == `"`+status+`"`
	})
	return got
}

func TestTaskOfALongCall(t *testing.T) {
	bothEras(t, lasting(time.Minute, "slow"), func(t *testing.T, s *stage) {
		w := tasker("ann")
		r := s.call(w, `"p"`, "slow", `{}`, "")
		time.Sleep(9900 * time.Millisecond)
		if got := r.answer(); got != "" {
			t.Fatalf("too early: %s", got)
		}
		time.Sleep(200 * time.Millisecond)
		created := r.answer()
		has(t, "the answer", created, `"id":"p"`, `"resultType":"task"`, `"status":"working"`, `"taskId":"hf-task-`, `"createdAt":"2000-01-01T00:00:10.`,
			`"lastUpdatedAt":"2000-`, `"ttlMs":600000`, `"pollIntervalMs":1000`)
		for _, word := range []string{"requestState", `"result":{"result"`, `"ttl":`, `"pollInterval":`} {
			if strings.Contains(created, word) {
				t.Errorf("%s is in %s", word, created)
			}
		}
		id := strings.Trim(result(created, "taskId"), `"`)
		has(t, "tasks/get", s.about(w, "tasks/get", id, ""), `"resultType":"complete"`, `"status":"working"`, id)
		r.stop() // the connection has gone: nobody can cancel it so
		time.Sleep(55 * time.Second)
		got := s.about(w, "tasks/get", id, "")
		has(t, "the end", got, `"status":"completed"`, `"result":{`, `"text":"done"`, `"ttlMs":65`)
		if n := len(s.troupe.Told(`"slow"`)); n != 1 {
			t.Errorf("executed %d times", n)
		}
		if n := len(s.troupe.Told("notifications/cancelled")); n != 0 {
			t.Errorf("cancelled: %q", s.troupe.Told("notifications/cancelled"))
		}
		time.Sleep(9 * time.Minute)
		has(t, "within its time", s.about(w, "tasks/get", id, ""), `"text":"done"`)
		time.Sleep(2 * time.Minute)
		wantError(t, "after its time", s.about(w, "tasks/get", id, ""), "-32602", "no such task")
	})
}

func TestTaskOnlyWhereItIsWanted(t *testing.T) {
	tools := lasting(time.Minute, "slow", "never", "required", "always")
	bothEras(t, tools, func(t *testing.T, s *stage) {
		able, unable := tasker("ann"), who{principal: "bob", name: "bob"}
		for _, tt := range []struct {
			who  who
			tool string
		}{{able, "never"}, {unable, "slow"}, {unable, "always"}} {
			if got := s.done(s.call(tt.who, "1", tt.tool, `{}`, "")); text(t, got) != "done" || strings.Contains(got, "taskId") {
				t.Errorf("%s of %s: %s", tt.tool, tt.who.name, got)
			}
		}
		if got := text(t, s.done(s.call(able, "2", "sleep", `{"ms":9000}`, ""))); got != "slept" {
			t.Errorf("a quick call: %s", got)
		}
		wantError(t, "who cannot take the task", s.done(s.call(unable, "3", "required", `{}`, "")), "-32021",
			`"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`)
		begin := time.Now()
		for _, tool := range []string{"always", "required"} {
			s.becomes(able, s.task(able, tool, `{}`), "working")
		}
		if d := time.Since(begin); d > time.Second {
			t.Errorf("it took %v to become a task", d)
		}
		time.Sleep(2 * time.Minute)
	})
}

func TestTaskOfAQuickCallThatIsAlwaysOne(t *testing.T) {
	tools := map[string]func(*testkit.ToolCall){
		"always-error": func(c *testkit.ToolCall) { c.Refuse(c.ID, -32603, "it <broke>") },
		"always-wrong": func(c *testkit.ToolCall) { c.Result(`{"content":[],"isError":true}`) },
	}
	bothEras(t, tools, func(t *testing.T, s *stage) {
		w := tasker("ann")
		got := s.becomes(w, s.task(w, "always-error", `{}`), "failed")
		has(t, "an error", got, `"error":{"code":-32603,"message":"it <broke>"`, `"statusMessage":"it <broke>"`)
		if result(got, "result") != "" {
			t.Errorf("a failed task with a result: %s", got)
		}
		has(t, "a tool's error", s.becomes(w, s.task(w, "always-wrong", `{}`), "completed"), `"isError":true`)
	})
}

func TestTaskCancel(t *testing.T) {
	bothEras(t, lasting(time.Minute, "slow"), func(t *testing.T, s *stage) {
		w := tasker("ann")
		r := s.call(w, "1", "slow", `{}`, "")
		time.Sleep(5 * time.Second)
		r.stop() // no task yet: closing the stream cancels
		s.within(time.Second, "the cancellation", func() bool { return len(s.troupe.Told("notifications/cancelled")) == 1 })
		id := s.task(w, "slow", `{}`)
		if got := s.about(w, "tasks/cancel", id, ""); got != `{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete"}}` {
			t.Errorf("acknowledged with %s", got)
		}
		has(t, "afterwards", s.about(w, "tasks/get", id, ""), `"status":"cancelled"`)
		s.within(time.Second, "the cancellation", func() bool { return len(s.troupe.Told("notifications/cancelled")) == 2 })
		if got := s.about(w, "tasks/cancel", id, ""); result(got, "resultType") != `"complete"` {
			t.Errorf("once more: %s", got)
		}
		if n := s.host.InFlight(); n != 0 {
			t.Errorf("%d in flight", n)
		}
	})
}

// TestTaskIsItsPrincipals: whoever else asks for it is told what is told of
// one that does not exist.
func TestTaskIsItsPrincipals(t *testing.T) {
	bothEras(t, lasting(time.Minute, "always"), func(t *testing.T, s *stage) {
		ann, bob := tasker("ann"), tasker("bob")
		id := s.task(ann, "always", `{}`)
		for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
			foreign := s.about(bob, method, id, `,"inputResponses":{}`)
			unknown := s.about(bob, method, id[:len(id)-1], `,"inputResponses":{}`)
			wantError(t, "a foreign task", foreign, "-32602")
			if foreign != unknown {
				t.Errorf("%s tells a foreign task from none:\n%s\n%s", method, foreign, unknown)
			}
			unable := who{principal: "ann", name: "ann"}
			wantError(t, "a client that cannot take tasks", s.about(unable, method, id, ""), "-32021", "requiredCapabilities")
		}
		earlier := calls.TaskPrefix + "ABCDEFGHIJ-" + strings.Repeat("A", 26)
		wantError(t, "a task of an earlier process", s.about(ann, "tasks/get", earlier, ""), "-32602", `"outcome":"unknown"`, "started anew")
		other := ann
		other.name, other.capabilities = "another process", `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`
		has(t, "the same principal", s.about(other, "tasks/get", id, ""), `"status":"working"`)
		s.about(ann, "tasks/cancel", id, "")
	})
}

func TestTaskIDsAreUnguessable(t *testing.T) {
	bothEras(t, lasting(time.Minute, "always"), func(t *testing.T, s *stage) {
		w := tasker("ann")
		seen := map[string]bool{}
		for range 20 {
			id := s.task(w, "always", `{}`)
			parts := strings.Split(id, "-")
			if secret := parts[len(parts)-1]; len(secret) < 26 || seen[secret] { // 5 bits each
				t.Errorf("id %s", id)
			} else {
				seen[secret] = true
			}
		}
		time.Sleep(2 * time.Minute)
	})
}

func TestTaskBeforeAHandshakeServerHasNoOldMethods(t *testing.T) {
	on(t, troupe{Troupe: &testkit.Troupe{Handshake: true}, tasks: taskRules}, func(t *testing.T, s *stage) {
		w := tasker("ann")
		for _, method := range []string{"tasks/result", "tasks/list"} {
			wantError(t, method, s.about(w, method, "x", ""), "-32601")
		}
		wantError(t, "no task of ours", s.about(w, "tasks/get", "x", ""), "-32602")
		wantError(t, "no id", s.ask(w, "1", "tasks/get", ""), "-32602")
		wantError(t, "no extension", s.about(who{name: "b"}, "tasks/get", "x", ""), "-32021")
		got := s.done(s.call(w, "1", "echo", `{"n":1.0}`, `,"task":{"ttl":1}`))
		if lines := s.troupe.Told(`"echo"`); len(lines) != 1 || strings.Contains(lines[0], `"task"`) || strings.Contains(got, "taskId") {
			t.Errorf("a call with the older revision's wish for a task: the server was sent %q; answered %s", lines, got)
		}
		has(t, "discovery", s.ask(w, "1", "server/discover", ""), `"extensions":{"io.modelcontextprotocol/tasks":{}}`)
	})
}

// TestTaskSaysWhereItStands: progress is not passed on, but told on request.
func TestTaskSaysWhereItStands(t *testing.T) {
	tools := map[string]func(*testkit.ToolCall){"slow": func(c *testkit.ToolCall) {
		c.Progress(`"progress":1,"total":4`)
		c.Pause(20 * time.Second)
		c.Progress(`"progress":2,"total":4,"message":"half <way>"`)
		c.Pause(20 * time.Second)
		c.Text("done")
	}}
	bothEras(t, tools, func(t *testing.T, s *stage) {
		w := tasker("ann")
		w.meta = `,"progressToken":"mine"`
		r := s.call(w, "1", "slow", `{}`, "")
		id := strings.Trim(result(s.done(r), "taskId"), `"`)
		time.Sleep(15 * time.Second)
		has(t, "half way", s.about(w, "tasks/get", id, ""), `"statusMessage":"2 of 4: half <way>"`)
		if got := r.told(); len(got) != 1 || !strings.Contains(got[0], `"progressToken":"mine","progress":1`) {
			t.Errorf("its first request was told %q", got)
		}
		s.becomes(w, id, "completed")
	})
}

// TestTaskOfAHeldCall: with a key, two requests wait for one execution, each
// with a task of its own.
func TestTaskOfAHeldCall(t *testing.T) {
	rules := func(string) calls.Rules { return calls.Rules{Grace: time.Minute} }
	for name, stateless := range map[string]bool{"handshake": false, "stateless": true} {
		t.Run(name, func(t *testing.T) {
			tr := troupe{Troupe: &testkit.Troupe{Handshake: !stateless, Stateless: stateless, Tools: lasting(time.Minute, "slow")}, tasks: taskRules, rules: rules}
			on(t, tr, func(t *testing.T, s *stage) {
				w := tasker("ann")
				w.capabilities = `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`
				keyed := func() (*reply, *Receipt) {
					m, err := jsonrpc.Parse([]byte(w.request("1", "tools/call", `"name":"slow","arguments":{}`)))
					if err != nil {
						t.Fatal(err)
					}
					r, receipt := &reply{t: t}, &Receipt{}
					cancel, fail := s.host.Serve(Request{Principal: w.principal, Message: m, Emit: r.emit, Key: "k", Receipt: receipt})
					if fail != nil {
						t.Fatal(fail)
					}
					r.cancel = cancel
					return r, receipt
				}
				lost, receipt := keyed()
				time.Sleep(5 * time.Second)
				if !receipt.Lost() {
					t.Error("a call with a key ends with its connection")
				}
				first, _ := keyed()
				time.Sleep(time.Second)
				second, gone := keyed()
				one, two := strings.Trim(result(s.done(first), "taskId"), `"`), strings.Trim(result(s.done(second), "taskId"), `"`)
				if !gone.Lost() || lost.answer() != "" {
					t.Errorf("the loss of a task's poster; the lost one was answered %q", lost.answer())
				}
				s.about(w, "tasks/cancel", one, "")
				synctest.Wait()
				if n := len(s.troupe.Told("notifications/cancelled")); n != 0 || one == two {
					t.Error("the end of one of two tasks ends their execution")
				}
				has(t, "the other", s.becomes(w, two, "completed"), `"text":"done"`)
				if n := len(s.troupe.Told(`"slow"`)); n != 1 {
					t.Errorf("executed %d times", n)
				}
			})
		})
	}
}

// TestTasksAreBounded: past the limit a call is answered as any other, and
// results are given up for want of room.
func TestTasksAreBounded(t *testing.T) {
	on(t, troupe{Troupe: &testkit.Troupe{Stateless: true}, tasks: taskRules}, func(t *testing.T, s *stage) {
		w := tasker("ann")
		id := s.task(w, "always-unknown", `{}`)
		s.becomes(w, id, "failed")
		stub := &job{h: s.host}
		big, _ := s.host.jobs.Enter("nobody", stub)
		for _, old := range s.host.jobs.Finished(big, calls.MaxTaskBytes) {
			old.shed()
		}
		next := s.task(w, "always-unknown", `{}`)
		s.becomes(w, next, "failed")
		has(t, "the oldest", s.about(w, "tasks/get", id, ""), `"outcome":"executed"`, "given up")
		for ok := true; ok; {
			_, ok = s.host.jobs.Enter("nobody", stub)
		}
		if got := s.done(s.call(w, "1", "always-unknown", `{}`, "")); code(got) != "-32602" {
			t.Errorf("past the limit: %s", got)
		}
	})
}
