package holdfast_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// The clients of the matrix, and what they do.

// speaker is a client of one revision over one transport.
type speaker struct{ at }

// can is what a client of the revision declares.
func (s speaker) can() string {
	switch {
	case s.era < v06:
		return `{"sampling":{},"roots":{}}`
	case s.era < v11:
		return `{"sampling":{},"roots":{},"elicitation":{}}`
	}
	return `{"sampling":{},"roots":{},"elicitation":{"form":{}}}`
}

// connect comes to the gateway, and goes through the handshake if there is one.
// The client stays only if it is told its own revision, or an earlier one that
// the server speaks.
func (s speaker) connect(b *bench, p place) *client {
	b.t.Helper()
	c := newcomers[map[string]string{wayPipe: "stdio", waySSE: "sse", wayHTTP: "mcp"}[s.way]](b)
	if s.stateless() {
		return c
	}
	first := c.send(hello(`"hello"`, s.era, s.can()))
	answer := c.answer(`"hello"`)
	told := min(s.era, p.era)
	if !strings.Contains(answer, `"protocolVersion":"`+told+`"`) {
		b.t.Fatalf("initialize was answered %s, want %s", answer, told)
	}
	if id := first.open().header.Get("Mcp-Session-Id"); id != "" {
		c.header.Set("Mcp-Session-Id", id)
		if told >= v06 {
			c.header.Set("MCP-Protocol-Version", told)
		}
	}
	c.send(initialized).done()
	if s.way == wayHTTP {
		c.listen("/mcp", "")
	}
	return c
}

// send sends a request as the speaker's era does.
func (s speaker) send(c *client, id, method, params, meta string) *stream {
	if s.stateless() {
		if meta != "" {
			meta = "," + meta
		}
		return c.sendModern(modern(id, method, params, `"io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"},"io.modelcontextprotocol/clientCapabilities":`+s.can()+meta))
	}
	if meta != "" {
		params = strings.TrimPrefix(params+`,"_meta":{`+meta+`}`, ",")
	}
	return c.send(body(id, method, "{"+params+"}"))
}

// ask sends a request and returns its answer, which must hold all the words.
func (m *meeting) ask(id, method, params, meta string, words ...string) string {
	m.t.Helper()
	m.client.send(m.c, `"`+id+`"`, method, params, meta)
	got := m.c.answer(`"` + id + `"`)
	for _, word := range words {
		if !strings.Contains(got, word) {
			m.t.Errorf("%s was answered %s, without %s", method, got, word)
		}
	}
	return got
}

// tool calls a tool, which is executed by that so many times.
func (m *meeting) tool(id, name, meta string, times int, words ...string) string {
	m.t.Helper()
	m.ran[name] += times
	return m.ask(id, "tools/call", `"name":"`+name+`","arguments":{}`, meta, words...)
}

func (m *meeting) list() {
	for method, want := range map[string]string{
		"tools/list":     `"tools":[{"name":"echo","inputSchema":{"type":"object"}}]`,
		"prompts/list":   `"prompts":[{"name":"greet","arguments":[{"name":"who"}]}]`,
		"resources/list": `"resources":[{"uri":"x://1","name":"one"}]`,
	} {
		got := m.ask(method, method, "", "", want)
		if m.client.stateless() != strings.Contains(got, `"resultType":"complete"`) {
			m.t.Errorf("%s was answered %s", method, got)
		}
	}
}

func (m *meeting) call() {
	const args = `{"b":1e400,"a":-0,"text":"Łódź \u2028"}`
	m.ran["echo"]++
	m.ask("call", "tools/call", `"name":"echo","arguments":`+args, "", `"structuredContent":`+args)
	if got := m.f.told("tools/call", `"arguments":`+args); len(got) != 1 {
		m.t.Errorf("the server was told %q", m.f.told("tools/call"))
	}
}

func (m *meeting) progress() {
	m.tool("progress", "report", `"progressToken":"mine"`, 1, `"done"`)
	reports := m.c.find()
	reports = slices.DeleteFunc(reports, func(r received) bool {
		return !strings.Contains(r.raw, `"progressToken":"mine"`) && !strings.Contains(r.raw, `"id":"progress"`)
	})
	if len(reports) != 3 || !strings.Contains(reports[0].raw, `"progress":1`) || !strings.Contains(reports[1].raw, `"progress":2`) {
		m.t.Errorf("reported %v", reports)
	}
}

func (m *meeting) prompt() {
	m.ask("prompt", "prompts/get", `"name":"greet","arguments":{"who":"Łódź"}`, "", `"text":"Greet Łódź."`)
}

func (m *meeting) completion() {
	m.ask("completion", "completion/complete", `"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"who","value":"Łó"}`, "", `"values":["Łódź"]`)
}

func (m *meeting) elicitation() { m.question("elicitation") }
func (m *meeting) sampling()    { m.question("sampling") }
func (m *meeting) roots()       { m.question("roots") }

// question holds that the server's question reaches the client in the way of
// the client's era, and the answer the server.
func (m *meeting) question(name string) {
	m.t.Helper()
	q := questions[name]
	id, params := `"`+name+`"`, `"name":"`+q.method+`","arguments":{}`
	if m.ran[q.method] = 1; m.server.stateless() { // which is called again with the answer
		m.ran[q.method] = 2
	}
	if !m.client.stateless() {
		m.client.send(m.c, id, "tools/call", params, "")
		asked := m.c.await(`"method":"`+q.method+`"`, "who")
		m.c.send(`{"jsonrpc":"2.0","id":` + raw(asked.raw, jsonrpc.ID) + `,"result":` + q.answer + `}`)
		if got := m.c.answer(id); !strings.Contains(got, q.answer) {
			m.t.Errorf("answered %s", got)
		}
		return
	}
	asked := m.ask(name, "tools/call", params, "", `"input_required"`, `"method":"`+q.method+`"`, "who")
	result := jsonrpc.Get([]byte(asked), "result")
	members := jsonrpc.Members(jsonrpc.Get(result, "inputRequests"))
	if len(members) != 1 {
		m.t.Fatalf("asked by %s", asked)
	}
	retry := fmt.Sprintf(`%s,"inputResponses":{%q:%s}`, params, members[0].Key, q.answer)
	if state := jsonrpc.Get(result, "requestState"); state != nil {
		retry += `,"requestState":` + string(state)
	}
	m.ask("answer to "+name, "tools/call", retry, "", q.answer)
}

// update holds that a subscription is made, and an update comes.
func (m *meeting) update() {
	if m.client.stateless() {
		listening := m.client.send(m.c, `"listen"`, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["x://1"]}`, "")
		m.c.waive(`"listen"`)
		defer m.leave("listen", listening)
		m.c.await("notifications/subscriptions/acknowledged", `"io.modelcontextprotocol/subscriptionId":"listen"`)
	} else {
		m.ask("subscribe", "resources/subscribe", `"uri":"x://1"`, "", `"result":{}`)
	}
	m.b.within(bound, "the subscription at the server", func() bool {
		return len(m.f.told("resources/subscribe", "x://1"))+len(m.f.told("subscriptions/listen", "x://1")) > 0
	})
	m.tool("touch", "touch", "", 1, `"done"`)
	got := m.c.await("notifications/resources/updated", `"uri":"x://1"`)
	if m.client.stateless() != strings.Contains(got.raw, `"io.modelcontextprotocol/subscriptionId":"listen"`) {
		m.t.Errorf("updated by %s", got.raw)
	}
}

// leave gives a request up in the way of the binding.
func (m *meeting) leave(id string, s *stream) {
	if m.client.stateless() && m.client.way == wayHTTP {
		s.cut()
		return
	}
	m.c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"` + id + `","reason":"enough"}}`)
}

// log holds that a log message comes to a client that asked for it.
func (m *meeting) log() {
	meta := ""
	if m.client.stateless() {
		meta = `"io.modelcontextprotocol/logLevel":"info"`
	} else {
		m.ask("level", "logging/setLevel", `"level":"info"`, "", `"result":{}`)
	}
	m.tool("say", "say", meta, 1, `"done"`)
	m.c.await("notifications/message", `"data":"said"`)
}

// cancel holds that the server hears of it, under the id that it knows.
func (m *meeting) cancel() {
	call := m.client.send(m.c, `"cancel"`, "tools/call", `"name":"hang","arguments":{}`, "")
	m.ran["hang"]++
	m.b.within(bound, "the call at the server", func() bool { return len(m.f.told("tools/call", `"hang"`)) == 1 })
	answered := m.client.way == wayHTTP && !m.client.stateless() // as HTTP needs an end
	if !answered {
		m.c.waive(`"cancel"`)
	}
	m.leave("cancel", call)
	id := raw(m.f.told("tools/call", `"hang"`)[0], jsonrpc.ID)
	m.b.within(bound, "the cancellation at the server", func() bool {
		return slices.ContainsFunc(m.f.told("notifications/cancelled"), func(line string) bool { return raw(line, jsonrpc.RequestID) == id })
	})
	if answered {
		if got := m.c.answer(`"cancel"`); !strings.Contains(got, `"code":-32800`) {
			m.t.Errorf("answered %s", got)
		}
	}
}
