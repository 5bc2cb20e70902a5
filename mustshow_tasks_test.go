package holdfast_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// A long call of a stateless client that can take tasks outlives its connection,
// and says what is true once the gateway itself is gone.

const takesTasks = `"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`

// minute makes servers with a tool of a minute.
func minute() *farm {
	return &farm{tools: map[string]func(*fakeCall){"job": func(c *fakeCall) {
		if c.pause(time.Minute) {
			c.reply(`{"content":[],"structuredContent":"done"}`)
		}
	}}}
}

// aboutTask asks for a task, in the way of the client's binding.
func (c *client) aboutTask(id, method, task string) string {
	c.t.Helper()
	message := modern(id, method, fmt.Sprintf(`"taskId":%q`, task), takesTasks)
	if c.endpoint != "" {
		c.do(http.MethodPost, c.endpoint, message)
		return c.answer(id)
	}
	return c.askModern(message, "Mcp-Name", task)
}

// taskID is the id of the task that a call was answered with.
func taskID(t *testing.T, answer string) string {
	t.Helper()
	m, err := jsonrpc.Parse([]byte(answer))
	if err != nil || string(jsonrpc.Get(m.Raw(jsonrpc.Result), "resultType")) != `"task"` {
		t.Fatalf("no task: %s", answer)
	}
	return strings.Trim(string(jsonrpc.Get(m.Raw(jsonrpc.Result), "taskId")), `"`)
}

func TestTaskOutlivesItsConnection(t *testing.T) {
	for binding, connect := range newcomers {
		if binding == "stdio" { // there, the connection is the gateway's own
			continue
		}
		for era, modernServer := range map[string]bool{"handshake": false, "stateless": true} {
			t.Run(binding+", "+era+" server", func(t *testing.T) {
				f := minute()
				if modernServer {
					f.methods = modernOnly()
				}
				virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
					poster := connect(b)
					call := modernCall("1", "job", `{}`, takesTasks)
					if poster.endpoint != "" {
						poster.do(http.MethodPost, poster.endpoint, call)
					} else {
						poster.sendModern(call)
					}
					begin := time.Now()
					id := taskID(t, poster.answer("1"))
					if d := time.Since(begin); d < 10*time.Second || d > 11*time.Second {
						t.Errorf("a task after %v", d)
					}
					poster.close()
					<-time.After(5 * time.Second)
					poller := connect(b) // another process: nothing is left but the id
					got := ""
					for n := 10; !strings.Contains(got, `"status":"completed"`) && time.Since(begin) < 2*time.Minute; n++ {
						<-time.After(time.Second)
						got = poller.aboutTask(fmt.Sprint(n), "tasks/get", id)
					}
					wantAnswer(t, got, `"status":"completed"`, done)
					if d := time.Since(begin); d < time.Minute || d > 62*time.Second {
						t.Errorf("the answer came after %v", d)
					}
					wantExecuted(t, f, "job", 1)
					wantCancels(t, f)
				})
			})
		}
	}
}

func TestTaskAfterTheGatewaysRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := minute()
		before := newBench(t, setup{farm: f})
		defer before.close()
		poster := before.client()
		poster.sendModern(modernCall("1", "job", `{}`, takesTasks))
		id := taskID(t, poster.answer("1"))
		stopped := make(chan struct{})
		go func() { defer close(stopped); _ = before.g.Stop(t.Context()) }()
		<-time.After(5 * time.Second) // within the drain time, new calls are refused, and tasks still answered for
		wantAnswer(t, poster.aboutTask("2", "tasks/get", id), `"status":"working"`)
		if s := poster.sendModern(modernCall("3", "job", `{}`, takesTasks)).done(); s.status != http.StatusServiceUnavailable {
			t.Errorf("a new call was answered with %d", s.status)
		}
		<-stopped
		wantExecuted(t, f, "job", 1)
		before.close()

		after := newBench(t, setup{farm: minute()})
		defer after.close()
		wantAnswer(t, after.client().aboutTask("1", "tasks/get", id), `"code":-32602`, `"outcome":"unknown"`, "started anew")
		wantExecuted(t, after.farm, "job", 0)
	})
}

// TestServersTaskIDsOutliveTheGateway: a server's own tasks are known by its own
// ids, which the next gateway before it passes on like the one before.
func TestServersTaskIDsOutliveTheGateway(t *testing.T) {
	f := &farm{methods: modernOnly(), tools: map[string]func(*fakeCall){"job": func(c *fakeCall) {
		c.reply(`{"resultType":"task","taskId":"their<1>","status":"working","createdAt":"x","lastUpdatedAt":"x","ttlMs":null,"pollIntervalMs":2000}`)
	}}}
	f.methods["tasks/get"] = func(k *fake, m *jsonrpc.Message) {
		k.reply(string(m.Raw(jsonrpc.ID)), `{"resultType":"complete","taskId":"their<1>","status":"completed","createdAt":"x","lastUpdatedAt":"x","ttlMs":null,"pollIntervalMs":2000,"result":{"content":[],"structuredContent":"done"}}`)
	}
	f.methods["tasks/cancel"] = func(k *fake, m *jsonrpc.Message) {
		k.reply(string(m.Raw(jsonrpc.ID)), `{"resultType":"complete"}`)
	}
	server := back(t, f.serve, open)
	before := newBench(t, setup{options: upstreamOptions(server.URL + "/mcp"), real: true})
	defer before.close()
	poster := before.client()
	poster.sendModern(modernCall("1", "job", `{}`, takesTasks))
	got := poster.answer("1")
	wantAnswer(t, got, `"taskId":"their<1>"`, `"pollIntervalMs":2000`, `"ttlMs":null`)
	id := taskID(t, got)
	before.close()

	after := newBench(t, setup{options: upstreamOptions(server.URL + "/mcp"), real: true})
	defer after.close()
	poller := after.client()
	wantAnswer(t, poller.aboutTask("1", "tasks/get", id), `"taskId":"their<1>"`, `"status":"completed"`, done)
	wantAnswer(t, poller.aboutTask("2", "tasks/cancel", id), `"resultType":"complete"`)
	wantExecuted(t, f, "job", 1)
	if told := f.told("tasks/cancel"); len(told) != 1 || !strings.Contains(told[0], `"their<1>"`) {
		t.Errorf("the server was told %q", told)
	}
}

// TestTaskThatEndsWhileTheGatewayDrains: its client gets the answer, and the
// gateway waits no longer than for that.
func TestTaskThatEndsWhileTheGatewayDrains(t *testing.T) {
	for name, looks := range map[string]bool{"its client looks": true, "nobody looks": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := minute()
				b := newBench(t, setup{farm: f, options: holdfast.Options{Timers: holdfast.Timers{Drain: 40 * time.Second}}})
				defer b.close()
				c := b.client()
				c.sendModern(modernCall("1", "job", `{}`, takesTasks))
				id := taskID(t, c.answer("1"))
				<-time.After(45 * time.Second) // 55 s of 60
				begin, stopped := time.Now(), make(chan struct{})
				go func() { defer close(stopped); _ = b.g.Stop(t.Context()) }()
				<-time.After(8 * time.Second) // its end is 3 s ago
				want := 15 * time.Second      // as long as a client may be away between two looks
				if looks {
					wantAnswer(t, c.aboutTask("2", "tasks/get", id), `"status":"completed"`, done)
					want = 8 * time.Second
				}
				<-stopped
				if d := time.Since(begin); d < want || d > want+time.Second {
					t.Errorf("the gateway stopped after %v", d)
				}
			})
		})
	}
}

// TestTaskOfATool: what a tool's entry says holds for it.
func TestTaskOfATool(t *testing.T) {
	for name, tt := range map[string]struct {
		rules holdfast.Tool
		after time.Duration // negative: it becomes no task
		plain string        // of the answer to a client that takes none
	}{
		"left out":   {holdfast.Tool{Name: "other"}, 10 * time.Second, done},
		"a duration": {holdfast.Tool{Name: "job", TaskAfter: 30 * time.Second}, 30 * time.Second, done},
		"always":     {holdfast.Tool{Name: "j*", Task: holdfast.TaskAlways}, 0, done},
		"never":      {holdfast.Tool{Name: "job", Task: holdfast.TaskNever}, -1, done},
		"required":   {holdfast.Tool{Name: "job", Task: holdfast.TaskRequired}, 0, `"code":-32021`},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, tooled(minute(), tt.rules, holdfast.Timers{}), func(t *testing.T, b *bench) {
				c := b.client()
				begin := time.Now()
				c.sendModern(modernCall("1", "job", `{}`, takesTasks))
				got := c.answer("1")
				if tt.after < 0 {
					wantAnswer(t, got, done, "!taskId")
				} else if taskID(t, got); time.Since(begin) < tt.after || time.Since(begin) > tt.after+time.Second {
					t.Errorf("a task after %v", time.Since(begin))
				}
				c.sendModern(modernCall("2", "job", `{}`, ""))
				wantAnswer(t, c.answer("2"), tt.plain, "!taskId")
			})
		})
	}
}
