package holdfast_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// The experimental tasks of revision 2025-11-25, offered by the gateway for a
// server that knows nothing of them.

// offersJob is a gateway that offers the tool of a minute as a task.
func offersJob(f *farm, timers holdfast.Timers) setup {
	return tooled(f, holdfast.Tool{Name: "job", Task: holdfast.TaskAlways}, timers)
}

// asTask is a call that its client wants as a task.
func asTask(id, tool, task string) string {
	return body(id, "tools/call", fmt.Sprintf(`{"name":%q,"task":%s,"arguments":{"n":1.0}}`, tool, task))
}

func taskRequest(id, method, task string) string {
	return body(id, method, fmt.Sprintf(`{"taskId":%q}`, task))
}

// ownTask is the id of the task that a call was answered with.
func ownTask(t *testing.T, answer string) string {
	t.Helper()
	m, err := jsonrpc.Parse([]byte(answer))
	if err != nil {
		t.Fatal(err)
	}
	id := jsonrpc.Unquote(jsonrpc.Get(jsonrpc.Get(m.Raw(jsonrpc.Result), "task"), "taskId"))
	if id == "" {
		t.Fatalf("no task: %s", answer)
	}
	return id
}

func TestOldTaskOutlivesItsConnection(t *testing.T) {
	for name, open := range bindings {
		t.Run(name, func(t *testing.T) {
			f := minute()
			virtually(t, offersJob(f, holdfast.Timers{}), func(t *testing.T, b *bench) {
				c := open(b, v11)
				begin := time.Now()
				got := c.ask(asTask("1", "job", `{"ttl":120000}`))
				wantAnswer(t, got, `"result":{"task":{"taskId":`, `"status":"working"`, `"ttl":120000`)
				id := ownTask(t, got)
				if d := time.Since(begin); d > time.Second {
					t.Errorf("answered after %v", d)
				}
				lost := c.send(taskRequest("2", "tasks/result", id))
				<-time.After(5 * time.Second)
				if name == "streamable" {
					lost.cut()
					<-lost.ended
					c.waive("2")
				}
				<-time.After(10 * time.Second)
				wantAnswer(t, c.ask(taskRequest("3", "tasks/get", id)), `"status":"working"`)
				got = c.ask(taskRequest("4", "tasks/result", id))
				wantAnswer(t, got, done, `"io.modelcontextprotocol/related-task":{"taskId":"`+id)
				if d := time.Since(begin); d < time.Minute || d > 62*time.Second {
					t.Errorf("the answer came after %v", d)
				}
				wantAnswer(t, c.ask(taskRequest("5", "tasks/get", id)), `"status":"completed"`)
				wantExecuted(t, f, "job", 1)
				wantCancels(t, f)
				for _, line := range f.told("tools/call") {
					wantAnswer(t, asSent(t, line), `"params":{"name":"job","arguments":{"n":1.0}}}`)
				}
				<-time.After(time.Minute)
				wantAnswer(t, c.ask(taskRequest("6", "tasks/get", id)), `"code":-32602`)
			})
		})
	}
}

// TestOldTaskAsks: a client that only polls learns that there is a question,
// fetches it with the result, and loses nothing to a cut.
func TestOldTaskAsks(t *testing.T) {
	f := &farm{tools: map[string]func(*fakeCall){"job": func(c *fakeCall) {
		c.pause(time.Second)
		c.progress(`"progress":1`)
		c.k.line(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"who?","requestedSchema":{"type":"object"}}}`)
		for len(c.k.told(`"id":"q"`, `"accept"`)) == 0 && c.pause(100*time.Millisecond) {
		}
		c.reply(`{"content":[],"structuredContent":"done"}`)
	}}}
	virtually(t, offersJob(f, holdfast.Timers{}), func(t *testing.T, b *bench) {
		c := b.client()
		c.handshake(v11, `{"elicitation":{}}`)
		id := ownTask(t, c.ask(asTask("1", "job", `{}`)))
		<-time.After(2 * time.Second)
		wantAnswer(t, c.ask(taskRequest("2", "tasks/get", id)), `"status":"input_required"`)
		if got := c.find("elicitation/create"); len(got) != 0 {
			t.Fatalf("asked on a stream of another request: %s", got[0].raw)
		}
		lost := c.send(taskRequest("3", "tasks/result", id))
		q := c.await("elicitation/create", `"io.modelcontextprotocol/related-task":{"taskId":"`+id)
		lost.cut()
		<-lost.ended
		c.waive("3")
		<-time.After(time.Second)
		c.send(taskRequest("4", "tasks/result", id))
		b.within(bound, "the question again", func() bool { return len(c.find("elicitation/create")) == 2 })
		if again := c.find("elicitation/create")[1]; again.raw != q.raw {
			t.Errorf("asked %s, and then %s", q.raw, again.raw)
		}
		m, _ := jsonrpc.Parse([]byte(q.raw))
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{}}}`, m.Raw(jsonrpc.ID))).done()
		wantAnswer(t, c.answer("4"), done)
		wantExecuted(t, f, "job", 1)
	})
}

// TestOldTasksAreOfferedByConfiguration: without a tool's own entry a server's
// answers stay as they are, byte for byte.
func TestOldTasksAreOfferedByConfiguration(t *testing.T) {
	const tools = `{"tools":[ {"name":"job", "inputSchema":{"type":"object"}},{"name":"jog"} ]}`
	const marked = `{"tools":[ {"name":"job", "inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}},{"name":"jog"} ]}`
	for name, tt := range map[string]struct {
		rules   holdfast.Tool
		timers  holdfast.Timers
		version string
		want    string
	}{
		"left out":                  {holdfast.Tool{Name: "job"}, holdfast.Timers{}, v11, tools},
		"never":                     {holdfast.Tool{Name: "job", Task: holdfast.TaskNever}, holdfast.Timers{}, v11, tools},
		"0s":                        {holdfast.Tool{Name: "job", TaskAfter: -1}, holdfast.Timers{}, v11, tools},
		"only the server's":         {holdfast.Tool{Name: "job"}, holdfast.Timers{TaskAfter: time.Minute}, v11, tools},
		"a duration":                {holdfast.Tool{Name: "job", TaskAfter: time.Minute}, holdfast.Timers{}, v11, marked},
		"always":                    {holdfast.Tool{Name: "job", Task: holdfast.TaskAlways}, holdfast.Timers{}, v11, marked},
		"required":                  {holdfast.Tool{Name: "*b", Task: holdfast.TaskRequired}, holdfast.Timers{}, v11, marked},
		"always, an older revision": {holdfast.Tool{Name: "job", Task: holdfast.TaskAlways}, holdfast.Timers{}, v06, tools},
	} {
		t.Run(name, func(t *testing.T) {
			f := minute()
			f.methods = map[string]func(*fake, *jsonrpc.Message){"tools/list": func(k *fake, m *jsonrpc.Message) { k.reply(string(m.Raw(jsonrpc.ID)), tools) }}
			virtually(t, tooled(f, tt.rules, tt.timers), func(t *testing.T, b *bench) {
				c := b.streamable(tt.version)
				offers := tt.want == marked
				if strings.Contains(c.answer(`"hello"`), `"tasks":`) != offers {
					t.Errorf("initialize: %s", c.answer(`"hello"`))
				}
				if got := c.ask(body("1", "tools/list", "")); got != `{"jsonrpc":"2.0","id":1,"result":`+tt.want+`}` {
					t.Errorf("tools/list: %s", got)
				}
				if offers {
					wantAnswer(t, c.ask(toolCall("2", "job", `{}`, "")), done) // nobody must
					wantAnswer(t, c.ask(asTask("3", "jog", `{}`)), `"code":-32601`)
					return
				}
				wantAnswer(t, c.ask(asTask("2", "job", `{}`)), done) // a server without tasks ignores the wish
				wantAnswer(t, c.ask(taskRequest("3", "tasks/get", "x")), `"code":-32601`)
				if n := len(f.told(`"task":{}`)) + len(f.told("tasks/get")); n != 2 {
					t.Errorf("the server was told %d of two requests", n)
				}
			})
		})
	}
}

// TestOldTasksOfAServer that has its own are its own.
func TestOldTasksOfAServer(t *testing.T) {
	const welcome = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"kid","version":"1"}}`
	f := &farm{tools: map[string]func(*fakeCall){"job": func(c *fakeCall) { c.reply(`{"task":{"taskId":"theirs","status":"working"}}`) }}}
	f.methods = map[string]func(*fake, *jsonrpc.Message){
		"initialize": func(k *fake, m *jsonrpc.Message) { k.reply(string(m.Raw(jsonrpc.ID)), welcome) },
		"tools/list": func(k *fake, m *jsonrpc.Message) {
			k.reply(string(m.Raw(jsonrpc.ID)), `{"tools":[{"name":"job","execution":{"taskSupport":"required"}}]}`)
		},
		"tasks/result": func(k *fake, m *jsonrpc.Message) { k.reply(string(m.Raw(jsonrpc.ID)), `{"content":[]}`) },
	}
	virtually(t, offersJob(f, holdfast.Timers{}), func(t *testing.T, b *bench) {
		c := b.streamable(v11)
		for request, want := range map[string]string{
			body("1", "tools/list", ""):                         `{"tools":[{"name":"job","execution":{"taskSupport":"required"}}]}`,
			asTask("1", "job", `{"ttl":5}`):                     `{"task":{"taskId":"theirs","status":"working"}}`,
			taskRequest("1", "tasks/result", "theirs"):          `{"content":[]}`,
			body("1", "tasks/result", `{"taskId":"hf-task-x"}`): `{"content":[]}`,
		} {
			c := b.streamable(v11)
			wantAnswer(t, c.answer(`"hello"`), `"result":`+welcome)
			if got := c.ask(request); got != `{"jsonrpc":"2.0","id":1,"result":`+want+`}` {
				t.Errorf("%s: %s", request, got)
			}
		}
		wantAnswer(t, c.answer(`"hello"`), `"result":`+welcome)
		if len(f.told("tools/call", `"task":{"ttl":5}`)) != 1 {
			t.Errorf("the server was told %s", f.told("tools/call"))
		}
	})
}

// TestOldTaskOfAnotherSession is none, whoever asks.
func TestOldTaskOfAnotherSession(t *testing.T) {
	f := minute()
	virtually(t, offersJob(f, holdfast.Timers{}), func(t *testing.T, b *bench) {
		c, other := b.streamable(v11), b.streamable(v11)
		id := ownTask(t, c.ask(asTask("1", "job", `{}`)))
		for n, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
			wantAnswer(t, other.ask(taskRequest(fmt.Sprint(n), method, id)), `"code":-32602`)
		}
		wantAnswer(t, other.ask(body("9", "tasks/list", "")), `"tasks":[]`)
		wantAnswer(t, c.ask(body("9", "tasks/list", "")), id)
		modern := b.client()
		wantAnswer(t, modern.aboutTask("1", "tasks/get", id), `"code":-32602`)
		c.do(http.MethodDelete, "/mcp", "").done()
		b.within(bound, "the end of the server", func() bool { return f.all()[0].gone() || len(f.told("notifications/cancelled")) == 1 })
		again := b.streamable(v11)
		wantAnswer(t, again.ask(taskRequest("1", "tasks/get", id)), `"code":-32602`, "no such task")
	})
}

func TestOldTaskAtTheGatewaysEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := minute()
		before := newBench(t, offersJob(f, holdfast.Timers{Drain: 2 * time.Minute}))
		defer before.close()
		c := before.streamable(v11)
		id := ownTask(t, c.ask(asTask("1", "job", `{}`)))
		stopped := make(chan struct{})
		go func() { defer close(stopped); _ = before.g.Stop(t.Context()) }()
		<-time.After(5 * time.Second) // within the drain time
		wantAnswer(t, c.ask(taskRequest("2", "tasks/get", id)), `"status":"working"`)
		if s := c.send(asTask("3", "job", `{}`)).done(); s.status != http.StatusServiceUnavailable {
			t.Errorf("a new call was answered with %d", s.status)
		}
		wantAnswer(t, c.ask(taskRequest("4", "tasks/result", id)), done)
		<-stopped
		wantExecuted(t, f, "job", 1)
		before.close()

		after := newBench(t, offersJob(minute(), holdfast.Timers{}))
		defer after.close()
		wantAnswer(t, after.streamable(v11).ask(taskRequest("1", "tasks/get", id)), `"code":-32602`, `"outcome":"unknown"`, "started anew")
	})
}

// TestOldTaskThatEndsWhileTheGatewayDrains: its client gets the answer, and the
// gateway waits no longer than for that.
func TestOldTaskThatEndsWhileTheGatewayDrains(t *testing.T) {
	for _, binding := range []string{"streamable", "sse"} {
		for name, looks := range map[string]bool{"its client looks": true, "nobody looks": false} {
			t.Run(binding+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := minute()
					b := newBench(t, offersJob(f, holdfast.Timers{Drain: 40 * time.Second}))
					defer b.close()
					c := bindings[binding](b, v11)
					id := ownTask(t, c.ask(asTask("1", "job", `{}`)))
					<-time.After(55 * time.Second) // of 60
					begin, stopped := time.Now(), make(chan struct{})
					go func() { defer close(stopped); _ = b.g.Stop(t.Context()) }()
					<-time.After(8 * time.Second) // its end is 3 s ago
					want := 15 * time.Second      // as long as a client may be away between two looks
					if looks {
						wantAnswer(t, c.ask(taskRequest("2", "tasks/get", id)), `"status":"completed"`)
						wantAnswer(t, c.ask(taskRequest("3", "tasks/result", id)), done)
						want = 8 * time.Second
					}
					<-stopped
					if d := time.Since(begin); d < want || d > want+3*time.Second {
						t.Errorf("the gateway stopped after %v", d)
					}
					wantExecuted(t, f, "job", 1)
				})
			})
		}
	}
}

// TestOldTaskOfADyingServer: nobody knows what became of it, and that is said.
func TestOldTaskOfADyingServer(t *testing.T) {
	f := &farm{tools: map[string]func(*fakeCall){"job": func(c *fakeCall) {
		c.pause(time.Second)
		_ = c.k.w.(io.Closer).Close()
	}}}
	virtually(t, offersJob(f, holdfast.Timers{}), func(t *testing.T, b *bench) {
		c := b.streamable(v11)
		id := ownTask(t, c.ask(asTask("1", "job", `{}`)))
		for _, n := range []string{"2", "3"} {
			wantAnswer(t, c.ask(taskRequest(n, "tasks/result", id)), `"code":-32603`, `"outcome":"unknown"`)
		}
		wantAnswer(t, c.ask(taskRequest("4", "tasks/get", id)), `"status":"failed","statusMessage":"MCP server`)
		wantExecuted(t, f, "job", 1)
	})
}

// TestOldTaskBeforeAStatelessServer: what the server speaks does not matter.
func TestOldTaskBeforeAStatelessServer(t *testing.T) {
	f := minute()
	f.methods = modernOnly()
	virtually(t, offersJob(f, holdfast.Timers{}), func(t *testing.T, b *bench) {
		c := b.streamable(v11)
		id := ownTask(t, c.ask(asTask("1", "job", `{}`)))
		wantAnswer(t, c.ask(taskRequest("2", "tasks/result", id)), done)
		wantExecuted(t, f, "job", 1)
	})
}
