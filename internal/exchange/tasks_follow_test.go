package exchange

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/testkit"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// taskmaster is a server of the stateless era that makes a task of each call of
// "slow", whoever calls, after a while; the task takes three looks at it.
func taskmaster(after time.Duration, looks *atomic.Int64, input bool) *testkit.Troupe {
	const head = `"taskId":"t1","createdAt":"2000-01-01T00:00:00Z","lastUpdatedAt":"2000-01-01T00:00:00Z","ttlMs":null,"pollIntervalMs":5000`
	return &testkit.Troupe{Stateless: true,
		Tools: map[string]func(*testkit.ToolCall){"slow": func(c *testkit.ToolCall) {
			if c.Pause(after) {
				c.Result(`{"resultType":"task","status":"working",` + head + `}`)
			}
		}},
		On: map[string]func(a *testkit.Actor, m *jsonrpc.Message){
			"tasks/get": func(a *testkit.Actor, m *jsonrpc.Message) {
				state := `"status":"working"`
				switch n := looks.Add(1); {
				case input:
					state = `"status":"input_required","inputRequests":{"a":{"method":"roots/list"}}`
				case n == 3:
					state = `"status":"completed","result":{"resultType":"complete","content":[{"type":"text","text":"done"}]}`
				}
				a.Reply(string(m.Raw(jsonrpc.ID)), fmt.Sprintf(`{"resultType":"complete",%s,%s}`, head, state))
			},
			"tasks/cancel": func(a *testkit.Actor, m *jsonrpc.Message) {
				a.Reply(string(m.Raw(jsonrpc.ID)), `{"resultType":"complete"}`)
			},
		}}
}

// TestServersTaskIsFollowed for a client that cannot take it: as long as the
// server wants, and no faster.
func TestServersTaskIsFollowed(t *testing.T) {
	var looks atomic.Int64
	on(t, troupe{Troupe: taskmaster(time.Second, &looks, false), tasks: taskRules}, func(t *testing.T, s *stage) {
		begin := time.Now()
		got := s.done(s.call(who{name: "unable"}, "1", "slow", `{}`, ""))
		if text(t, got) != "done" || strings.Contains(got, "taskId") || time.Since(begin) < 16*time.Second || looks.Load() != 3 {
			t.Errorf("after %v and %d looks: %s", time.Since(begin), looks.Load(), got)
		}
		r := s.call(who{name: "unable"}, "2", "slow", `{}`, "")
		time.Sleep(3 * time.Second)
		r.stop()
		time.Sleep(time.Minute)
		if looks.Load() != 3 || len(s.troupe.Told("tasks/cancel", `"t1"`)) != 1 || len(s.troupe.Told("notifications/cancelled")) != 0 {
			t.Errorf("after the cancellation: %d looks; the server was told %q", looks.Load(), s.troupe.Told("cancel"))
		}
		if n := s.host.InFlight(); n != 0 {
			t.Errorf("%d in flight", n)
		}
	})
}

// TestServersTaskWithinOurs: a server that takes its time to make a task finds
// that there is one already; the client sees one only.
func TestServersTaskWithinOurs(t *testing.T) {
	var looks atomic.Int64
	on(t, troupe{Troupe: taskmaster(20*time.Second, &looks, false), tasks: taskRules}, func(t *testing.T, s *stage) {
		w := tasker("ann")
		id := s.task(w, "slow", `{}`)
		got := s.becomes(w, id, "completed")
		if has(t, "the end", got, `"text":"done"`, id); strings.Contains(got, `"t1"`) {
			t.Errorf("the server's own id is in %s", got)
		}
	})
}

func TestServersTaskThatAsksWhoCannotBeAsked(t *testing.T) {
	var looks atomic.Int64
	on(t, troupe{Troupe: taskmaster(time.Second, &looks, true), tasks: taskRules}, func(t *testing.T, s *stage) {
		got := s.done(s.call(who{name: "unable"}, "1", "slow", `{}`, ""))
		wantError(t, "a question of a task", got, "-32021", "requiredCapabilities")
		s.within(time.Second, "the task's end", func() bool { return len(s.troupe.Told("tasks/cancel")) == 1 })
	})
}
