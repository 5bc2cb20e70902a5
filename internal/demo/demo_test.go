package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// client speaks to a Serve that runs in the background.
type client struct {
	t     *testing.T
	in    *io.PipeWriter
	out   *bufio.Reader
	ended chan error
}

func connect(ctx context.Context, t *testing.T) *client {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	c := &client{t, inW, bufio.NewReader(outR), make(chan error, 1)}
	go func() { c.ended <- Serve(ctx, inR, outW) }() // ends with in or ctx
	return c
}

func (c *client) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

// message is any message of the server.
type message struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
		Data    json.RawMessage
	}
}

func (c *client) next() message {
	c.t.Helper()
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		c.t.Fatalf("%s: %v", line, err)
	}
	return m
}

func (c *client) initialize(version, capabilities string) message {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"` + version +
		`","capabilities":` + capabilities + `,"clientInfo":{"name":"test","version":"1"}}}`)
	m := c.next()
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return m
}

func (c *client) call(id int, tool, args, meta string) {
	c.t.Helper()
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s","arguments":%s,"_meta":%s}}`,
		id, tool, args, meta))
}

// text returns the text of a tool's result, and whether it is an error.
func (c *client) text(m message) (string, bool) {
	c.t.Helper()
	var r struct {
		Content []struct{ Type, Text string }
		IsError bool
	}
	if err := json.Unmarshal(m.Result, &r); err != nil || len(r.Content) != 1 || r.Content[0].Type != "text" {
		c.t.Fatalf("not a result of one text: %s %+v %v", m.Result, m.Error, err)
	}
	return r.Content[0].Text, r.IsError
}

func (c *client) close(want error) {
	c.t.Helper()
	_ = c.in.Close()
	if err := <-c.ended; !errors.Is(err, want) {
		c.t.Errorf("Serve returned %v, want %v", err, want)
	}
}

func TestInitialize(t *testing.T) {
	tests := []struct{ asked, want string }{
		{"2024-11-05", "2024-11-05"}, {"2025-03-26", "2025-03-26"},
		{"2025-06-18", "2025-06-18"}, {"2025-11-25", "2025-11-25"},
		{"2026-07-28", "2025-11-25"}, {"1999-01-01", "2025-11-25"}, {"", "2025-11-25"},
	}
	for _, tt := range tests {
		t.Run(tt.asked, func(t *testing.T) {
			c := connect(t.Context(), t)
			var r struct {
				ProtocolVersion string
				Capabilities    map[string]json.RawMessage
				ServerInfo      struct{ Name, Title, Version string }
				Instructions    string
			}
			if m := c.initialize(tt.asked, "{}"); json.Unmarshal(m.Result, &r) != nil || string(m.ID) != `"init"` {
				t.Fatalf("got %+v", m)
			}
			if r.ProtocolVersion != tt.want {
				t.Errorf("version %q, want %q", r.ProtocolVersion, tt.want)
			}
			if len(r.Capabilities) != 3 || r.ServerInfo.Name == "" || r.ServerInfo.Version == "" || r.Instructions == "" {
				t.Errorf("got %+v", r)
			}
			c.close(nil)
		})
	}
}

func TestListsAndGets(t *testing.T) {
	c := connect(t.Context(), t)
	c.initialize("2025-11-25", "{}")
	tests := []struct{ method, params, want string }{
		{"ping", `{}`, `{}`},
		{"ping", `null`, `{}`},
		{"tools/list", `{}`, `"name":"build_report","title":"Build a report"`},
		{"resources/list", `{}`, `"uri":"demo://about","name":"about"`},
		{"resources/templates/list", `{}`, `{"resourceTemplates":[]}`},
		{"resources/read", `{"uri":"demo://about"}`, `holdfast serve --demo`},
		{"resources/read", `{"uri":"demo://x"}`, `-32002 resource not found {"uri":"demo://x"}`},
		{"resources/read", `[]`, `-32602 params: `},
		{"prompts/list", `{}`, `"name":"plan_report"`},
		{"prompts/get", `{"name":"plan_report","arguments":{"topic":"<rope> & anchor"}}`, `a report on <rope> & anchor`},
		{"prompts/get", `{"name":"plan_report"}`, `-32602 the argument topic is required`},
		{"prompts/get", `{"name":"other"}`, `-32602 unknown prompt other`},
		{"tools/call", `{"name":"other"}`, `-32602 unknown tool other`},
		{"tools/call", `{"name":1}`, `-32602 params: `},
		{"initialize", `{"capabilities":1}`, `-32602 params: `},
		{"server/discover", `{}`, `-32601 unknown method server/discover`},
	}
	for _, tt := range tests {
		t.Run(tt.method+" "+tt.params, func(t *testing.T) {
			c.send(`{"jsonrpc":"2.0","id":1,"method":"` + tt.method + `","params":` + tt.params + `}`)
			m := c.next()
			got := string(m.Result)
			if m.Error != nil {
				got = fmt.Sprint(m.Error.Code, " ", m.Error.Message, " ", string(m.Error.Data))
			}
			if !strings.Contains(got, tt.want) {
				t.Errorf("got %s, want it to contain %s", got, tt.want)
			}
		})
	}
	c.close(nil)
}

func TestToolsAreDescribed(t *testing.T) {
	var list []struct {
		Name, Title, Description string
		InputSchema              struct{ Type string }
		Annotations              map[string]any
	}
	if err := json.Unmarshal([]byte(tools), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 3 {
		t.Errorf("%d tools", len(list))
	}
	for _, tool := range list {
		if tool.Title == "" || tool.Description == "" || tool.InputSchema.Type != "object" || len(tool.Annotations) == 0 {
			t.Errorf("%q lacks something: %+v", tool.Name, tool)
		}
	}
}

func TestHelloWorld(t *testing.T) {
	c := connect(t.Context(), t)
	tests := []struct {
		args, want string
		failed     bool
	}{
		{`{}`, "Hello, world!", false},
		{`{"name":"Ada <&>"}`, "Hello, Ada <&>!", false},
		{`{"name":1}`, "hello_world: name must be a string", true},
	}
	for _, tt := range tests {
		c.call(1, "hello_world", tt.args, "{}")
		if got, failed := c.text(c.next()); got != tt.want || failed != tt.failed {
			t.Errorf("%s: got %q, %v", tt.args, got, failed)
		}
	}
	c.close(nil)
}

func TestBuildReport(t *testing.T) {
	tests := []struct {
		name, args, meta string
		seconds, notes   int
	}{
		{"with a token", `{"seconds":7,"topic":"ropes"}`, `{"progressToken":"t"}`, 7, 7},
		{"with a large number as token", `{"seconds":3}`, `{"progressToken":9007199254740993}`, 3, 3},
		{"without a token", `{"seconds":7}`, `{}`, 7, 0},
		{"default", `{}`, `{"progressToken":0}`, 20, 20},
		{"short", `{"seconds":1}`, `{"progressToken":""}`, 1, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := connect(t.Context(), t)
				begin := time.Now()
				c.call(1, "build_report", tt.args, tt.meta)
				for i := range tt.notes {
					m := c.next()
					want := fmt.Sprintf(`{"progressToken":%s,"progress":%d,"total":%d,"message":"%s"}`,
						strings.TrimSuffix(strings.TrimPrefix(tt.meta, `{"progressToken":`), "}"), i+1, tt.seconds, phase(i+1, tt.seconds))
					if string(m.Params) != want || m.Method != "notifications/progress" {
						t.Errorf("got %s %s, want %s", m.Method, m.Params, want)
					}
					if at := time.Since(begin); at != time.Duration(i+1)*time.Second {
						t.Errorf("progress %d after %v", i+1, at)
					}
				}
				got, failed := c.text(c.next())
				if failed || !strings.HasPrefix(got, "Report on ") {
					t.Errorf("got %q, %v", got, failed)
				}
				if took := time.Since(begin); took != time.Duration(tt.seconds)*time.Second {
					t.Errorf("took %v", took)
				}
				c.close(nil)
			})
		})
	}
}

func TestBuildReportRefuses(t *testing.T) {
	c := connect(t.Context(), t)
	for _, args := range []string{`{"seconds":0}`, `{"seconds":-1}`, `{"seconds":3601}`, `{"seconds":1.5}`, `{"seconds":"5"}`, `{"topic":5}`} {
		c.call(1, "build_report", args, `{"progressToken":1}`)
		if got, failed := c.text(c.next()); !failed || !strings.HasPrefix(got, "build_report: ") {
			t.Errorf("%s: got %q, %v", args, got, failed)
		}
	}
	c.close(nil)
}

func TestBuildReportIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t.Context(), t)
		c.call(1, "build_report", `{}`, `{}`)
		c.call(2, "build_report", `{"seconds":5}`, `{}`)
		time.Sleep(1500 * time.Millisecond)
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		c.send(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
		if m := c.next(); string(m.ID) != "3" {
			t.Errorf("the ping waited behind %s", m.ID)
		}
		if m := c.next(); string(m.ID) != "2" || m.Error != nil {
			t.Errorf("got %+v, want the report that was not cancelled", m)
		}
		c.call(4, "build_report", `{}`, `{}`)
		time.Sleep(time.Minute)
		if m := c.next(); string(m.ID) != "4" {
			t.Errorf("%s was answered, though it was cancelled", m.ID)
		}
		c.call(5, "build_report", `{}`, `{}`)
		begin := time.Now()
		c.close(nil)
		if waited := time.Since(begin); waited > 0 {
			t.Errorf("ended %v after its input", waited)
		}
	})
}

func TestAskName(t *testing.T) {
	tests := []struct {
		name, reply, want string
		failed            bool
	}{
		{"accept", `"result":{"action":"accept","content":{"name":"Grace"}}`, "Hello, Grace!", false},
		{"decline", `"result":{"action":"decline"}`, "You would rather not say.", false},
		{"cancel", `"result":{"action":"cancel"}`, "The question was dismissed.", false},
		{"nothing", `"result":{"action":"accept","content":{}}`, "ask_name: the answer holds no name", true},
		{"other type", `"result":{"action":"accept","content":{"name":5}}`, "ask_name: the answer was not understood", true},
		{"error", `"error":{"code":-32601,"message":"no such thing"}`, "ask_name: the question failed: no such thing (-32601)", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := connect(t.Context(), t)
			c.initialize("2025-11-25", `{"elicitation":{}}`)
			c.call(1, "ask_name", `{}`, `{}`)
			q := c.next()
			if q.Method != "elicitation/create" || !strings.Contains(string(q.Params), `"properties":{"name":{"type":"string"`) {
				t.Fatalf("asked %s %s", q.Method, q.Params)
			}
			c.send(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,` + tt.reply + `}`)
			if got, failed := c.text(c.next()); !strings.HasPrefix(got, tt.want) || failed != tt.failed {
				t.Errorf("got %q, %v", got, failed)
			}
			c.close(nil)
		})
	}
}

func TestAskNameNeedsTheCapability(t *testing.T) {
	tests := []struct {
		capabilities string
		asks         bool
	}{
		{`{}`, false}, {`{"elicitation":null}`, false}, {`{"elicitation":{"url":{}}}`, false},
		{`{"elicitation":{}}`, true}, {`{"elicitation":{"form":{}}}`, true}, {`{"elicitation":{"form":{},"url":{}}}`, true},
	}
	for _, tt := range tests {
		t.Run(tt.capabilities, func(t *testing.T) {
			c := connect(t.Context(), t)
			c.initialize("2025-11-25", tt.capabilities)
			c.call(1, "ask_name", `{}`, `{}`)
			m := c.next()
			if asks := m.Method == "elicitation/create"; asks != tt.asks {
				t.Errorf("asked: %v", asks)
			}
			if !tt.asks {
				if got, failed := c.text(m); !failed || !strings.Contains(got, "elicitation") {
					t.Errorf("got %q, %v", got, failed)
				}
			}
			c.close(nil)
		})
	}
}

func TestAskNameIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t.Context(), t)
		c.initialize("2025-11-25", `{"elicitation":{}}`)
		c.call(1, "ask_name", `{}`, `{}`)
		q := c.next()
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		if m := c.next(); m.Method != "notifications/cancelled" || !strings.Contains(string(m.Params), `"requestId":`+string(q.ID)) {
			t.Errorf("got %+v, want the question to be cancelled", m)
		}
		c.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		if m := c.next(); string(m.ID) != "2" {
			t.Errorf("got %+v", m)
		}
		c.close(nil)
	})
}

func TestServeEndsWithItsContext(t *testing.T) {
	stopped := errors.New("stopped")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		c := connect(ctx, t)
		c.call(1, "build_report", `{}`, `{"progressToken":1}`)
		time.Sleep(2500 * time.Millisecond) // nobody reads: the first progress is stuck
		cancel(stopped)
		c.close(stopped)
	})
}
