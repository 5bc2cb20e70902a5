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

// actors returns a troupe of the handshake era.
func actors(tools map[string]func(*testkit.ToolCall)) *testkit.Troupe {
	return &testkit.Troupe{Handshake: true, Tools: tools}
}

// TestMalformed: what every request must say is checked before any server hears
// of it.
func TestMalformed(t *testing.T) {
	const version, client, capabilities = `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`,
		`"io.modelcontextprotocol/clientInfo":{"name":"a","version":"1"}`, `"io.modelcontextprotocol/clientCapabilities":{}`
	tests := []struct{ method, meta, code, words string }{
		{"tools/list", ``, "-32602", "protocolVersion"},
		{"tools/list", client + `,` + capabilities, "-32602", "protocolVersion"},
		{"tools/list", `"io.modelcontextprotocol/protocolVersion":20260728,` + capabilities, "-32602", "protocolVersion"},
		{"tools/list", version, "-32602", "clientCapabilities"},
		{"tools/list", version + `,"io.modelcontextprotocol/clientCapabilities":null`, "-32602", "clientCapabilities"},
		{"tools/list", version + `,"io.modelcontextprotocol/clientCapabilities":[]`, "-32602", "clientCapabilities"},
		{"tools/list", version + `,"io.modelcontextprotocol/clientCapabilities":"{}"`, "-32602", "clientCapabilities"},
		{"tools/list", `"io.modelcontextprotocol/protocolVersion":"2099-01-01",` + capabilities, "-32022", `"data":{"supported":["2026-07-28"],"requested":"2099-01-01"}`},
		{"tools/list", `"io.modelcontextprotocol/protocolVersion":"2025-11-25",` + capabilities, "-32022", `"requested":"2025-11-25"`},
		{"tools/list", `"io.modelcontextprotocol/protocolVersion":"\"<",` + capabilities, "-32022", `"requested":"\"<"`},
		{"initialize", version + `,` + capabilities, "-32601", "initialize"},
		{"ping", version + `,` + capabilities, "-32601", "ping"},
		{"logging/setLevel", version + `,` + capabilities, "-32601", ""},
		{"resources/subscribe", version + `,` + capabilities, "-32601", ""},
		{"resources/unsubscribe", version + `,` + capabilities, "-32601", ""},
		{"tools/list", version + `,` + capabilities + `,"io.modelcontextprotocol/logLevel":"loud"`, "-32602", "logLevel"},
		{"tools/list", version + `,` + capabilities + `,"io.modelcontextprotocol/logLevel":7`, "-32602", "logLevel"},
		{"tools/list", version + `,` + capabilities + `,"io.modelcontextprotocol/logLevel":null`, "-32602", "logLevel"},
	}
	on(t, troupe{Troupe: actors(nil)}, func(t *testing.T, s *stage) {
		for _, tt := range tests {
			r := s.send(ann, fmt.Sprintf(`{"jsonrpc":"2.0","id":"x","method":%q,"params":{"_meta":{%s}}}`, tt.method, tt.meta))
			wantError(t, tt.method+" "+tt.meta, r.answer(), tt.code, tt.words, `"id":"x"`)
		}
		for _, params := range []string{``, `,"params":null`, `,"params":{}`, `,"params":{"_meta":null}`, `,"params":[]`} {
			r := s.send(ann, `{"jsonrpc":"2.0","id":"x","method":"tools/list"`+params+`}`)
			wantError(t, params, r.answer(), "-32602")
		}
		if n := len(s.troupe.Actors()); n != 0 {
			t.Errorf("%d servers were started", n)
		}
	})
}

// TestBridgeStamps: what the other era's results do not say is added, and what
// they do say is kept.
func TestBridgeStamps(t *testing.T) {
	tr := actors(map[string]func(*testkit.ToolCall){"odd": func(c *testkit.ToolCall) {
		c.Result(`{"structuredContent":{"b":1.0, "a":12345678901234567890},"_meta":{"x/y":1.0},"content":[]}`)
	}})
	tr.On = map[string]func(*testkit.Actor, *jsonrpc.Message){
		"prompts/list": func(a *testkit.Actor, m *jsonrpc.Message) {
			a.Reply(string(m.Raw(jsonrpc.ID)), `{"prompts":[],"ttlMs":5,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"own"}}}`)
		},
	}
	const info = `{"name":"troupe","version":"1.0"}`
	on(t, troupe{Troupe: tr}, func(t *testing.T, s *stage) {
		for method, cached := range map[string]bool{
			"server/discover": true, "tools/list": true, "resources/list": true, "resources/templates/list": true, "resources/read": true,
			"prompts/get": false, "completion/complete": false,
		} {
			got := s.ask(ann, "1", method, `"uri":"x://"`)
			if result(got, "resultType") != `"complete"` || string(jsonrpc.Get([]byte(result(got, "_meta")), "io.modelcontextprotocol/serverInfo")) != info {
				t.Errorf("%s was answered %s", method, got)
			}
			if ttl, scope := result(got, "ttlMs"), result(got, "cacheScope"); cached && (ttl != "0" || scope != `"private"`) || !cached && ttl+scope != "" {
				t.Errorf("%s: ttlMs %s, cacheScope %s", method, ttl, scope)
			}
		}
		if got := s.ask(ann, "2", "prompts/list", ""); result(got, "ttlMs") != "5" || result(got, "cacheScope") != `"public"` ||
			result(got, "_meta") != `{"io.modelcontextprotocol/serverInfo":{"name":"own"}}` {
			t.Errorf("what the server says is not kept: %s", got)
		}
		want := `{"jsonrpc":"2.0","id":"\u0041","result":{"structuredContent":{"b":1.0, "a":12345678901234567890},"content":[],"resultType":"complete",` +
			`"_meta":{"x/y":1.0,"io.modelcontextprotocol/serverInfo":` + info + `}}}`
		if got := s.done(s.call(ann, `"\u0041"`, "odd", `{}`, "")); got != want {
			t.Errorf("answered\n%s, want\n%s", got, want)
		}
		got := s.ask(ann, "3", "server/discover", "")
		has(t, "discover", got, `"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]`, `"instructions":"<play>"`, `"listChanged":true`)
	})
}

// TestBridgeRequest: the server is greeted with what the client says of itself,
// and its requests lose what means nothing there.
func TestBridgeRequest(t *testing.T) {
	on(t, troupe{Troupe: actors(nil)}, func(t *testing.T, s *stage) {
		w := who{principal: "p", name: "bob", capabilities: `{"elicitation":{"form":{}},"experimental":{"x":1.0}}`, meta: `,"io.modelcontextprotocol/logLevel":"error"`}
		s.done(s.send(w, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"n":1.0, "<":"\u0041"},"name":"echo","inputResponses":{},`+
			`"_meta":{"traceparent":"00-1","x/y":{"z":1.0},"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`))
		s.done(s.call(w, "2", "echo", `{}`, ""))
		a := s.troupe.Actors()
		if len(a) < 2 {
			t.Fatalf("%d servers for two kinds of client", len(a))
		}
		hello := s.troupe.Told(`"initialize"`, "bob")
		if len(hello) != 1 {
			t.Fatalf("greeted with %q", hello)
		}
		has(t, "initialize", hello[0], `"protocolVersion":"2025-11-25"`, `"capabilities":{"elicitation":{"form":{}},"experimental":{"x":1.0}}`, `"clientInfo":{"name":"bob","version":"1"}`)
		has(t, "a client without a name", s.troupe.Told(`"initialize"`, "unnamed")[0], `"capabilities":{}`)
		want := `"params":{"arguments":{"n":1.0, "<":"\u0041"},"name":"echo","_meta":{"traceparent":"00-1","x/y":{"z":1.0}}}`
		line := s.troupe.Told("tools/call", "traceparent")[0]
		has(t, "the call", strings.Replace(line, `"progressToken":`+raw(line, jsonrpc.ID)+`,`, "", 1), want)
		for _, line := range s.troupe.Told("tools/call") {
			if strings.Contains(line, "io.modelcontextprotocol/") || strings.Contains(line, "inputResponses") {
				t.Errorf("the server was sent %s", line)
			}
		}
		if got := s.troupe.Told("logging/setLevel"); len(got) != 1 || !strings.Contains(got[0], `"level":"error"`) {
			t.Errorf("told %q", got)
		}
		if n := len(s.troupe.Told("notifications/initialized")); n != 2 {
			t.Errorf("%d of 2 were told that they are initialized", n)
		}
	})
}

// TestBridgeErrors: codes that the other era gave up.
func TestBridgeErrors(t *testing.T) {
	errs := map[string]string{
		"one": `{"code":-32002,"message":"none","data":{"uri":"x://1"}}`,
		"two": `{"code":-32042,"message":"go","data":{"elicitations":[]}}`,
		"six": `{"code":-32000,"message":"own","data":[1.0]}`,
		"bad": `{"code":-32602,"message":"bad"}`,
	}
	tr := actors(nil)
	tr.On = map[string]func(*testkit.Actor, *jsonrpc.Message){
		"resources/read": func(a *testkit.Actor, m *jsonrpc.Message) {
			a.Say(`{"jsonrpc":"2.0","id":%s,"error":%s}`, m.Raw(jsonrpc.ID), errs[string(m.Text(jsonrpc.URI))])
		},
	}
	on(t, troupe{Troupe: tr}, func(t *testing.T, s *stage) {
		for uri, want := range map[string][]string{
			"one": {"-32602", `"message":"none"`, `"data":{"uri":"x://1"}`},
			"two": {"-32603", `"data":{"elicitations":[],"outcome":"not_executed"}`, "opened a URL"},
			"six": {"-32000", `"message":"own","data":[1.0]`},
			"bad": {"-32602", `"message":"bad"`},
		} {
			got := s.ask(ann, `"e"`, "resources/read", `"uri":"`+uri+`"`)
			wantError(t, uri, got, want[0], append(want[1:], `"id":"e"`)...)
		}
	})
}

// TestBridgeProgress comes under the caller's token, to the caller alone.
func TestBridgeProgress(t *testing.T) {
	on(t, troupe{Troupe: actors(map[string]func(*testkit.ToolCall){"report": func(c *testkit.ToolCall) {
		if c.Token != "" {
			c.Progress(`"progress":1,"message":` + c.Args)
		}
		c.Text("done")
	}})}, func(t *testing.T, s *stage) {
		var all []*reply
		tokens := []string{`1`, `"1"`, `"\u0031"`, ``}
		for i, token := range tokens {
			w := ann
			if token != "" {
				w.meta = `,"progressToken":` + token
			}
			all = append(all, s.call(w, `1`, "report", fmt.Sprint(i), ""))
		}
		for i, r := range all {
			s.done(r)
			want := []string{fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1,"message":%d}}`, tokens[i], i)}
			if tokens[i] == "" {
				want = nil
			}
			if got := r.told(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("token %s: told %q, want %q", tokens[i], got, want)
			}
		}
	})
}

func TestBridgeCancel(t *testing.T) { cancelStory(t, false) }

// TestBridgeCancelWhileWaiting: a call that waits for a conversation is taken
// out, and nobody hears of it.
func TestBridgeCancelWhileWaiting(t *testing.T) {
	on(t, troupe{Troupe: actors(nil), max: 1}, func(t *testing.T, s *stage) {
		w := ann
		w.capabilities = `{"elicitation":{}}`
		first := s.call(w, "1", "sleep", `{"ms":10000}`, "")
		s.within(time.Second, "the first", func() bool { return len(s.troupe.Told(`"sleep"`)) == 1 })
		second := s.call(w, "2", "echo", `{}`, "")
		time.Sleep(time.Second)
		second.stop()
		s.done(first)
		time.Sleep(time.Minute)
		if got := s.troupe.Told(`"echo"`); len(got) != 0 {
			t.Errorf("the server was sent %q", got)
		}
	})
}

// TestBridgeLogMessages: only to who asked, only of the level, and only where
// it alone can be meant.
func TestBridgeLogMessages(t *testing.T) {
	on(t, troupe{Troupe: actors(map[string]func(*testkit.ToolCall){"say": func(c *testkit.ToolCall) {
		for _, level := range levels {
			c.Log(level, "x")
		}
		c.Pause(time.Second)
		c.Text("said")
	}})}, func(t *testing.T, s *stage) {
		at := func(level string) who {
			w := ann
			w.meta = `,"io.modelcontextprotocol/logLevel":"` + level + `"`
			return w
		}
		heard := func(what string, r *reply, want ...string) {
			t.Helper()
			s.done(r)
			var got []string
			for _, n := range r.told() {
				got = append(got, raw(n, jsonrpc.Level))
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: heard %q, want %q", what, got, want)
			}
		}
		heard("error", s.call(at("error"), "1", "say", `{}`, ""), `"error"`, `"critical"`, `"alert"`, `"emergency"`)
		heard("emergency", s.call(at("emergency"), "2", "say", `{}`, ""), `"emergency"`)
		heard("none", s.call(ann, "3", "say", `{}`, ""))
		other := s.call(at("debug"), "4", "sleep", `{"ms":3000}`, "")
		s.within(time.Minute, "the other call", func() bool { return len(s.troupe.Told(`"sleep"`)) == 1 })
		heard("beside another call", s.call(at("debug"), "5", "say", `{}`, ""))
		heard("who did not say it", other)
		var set []string
		for _, line := range s.troupe.Told("logging/setLevel") {
			set = append(set, raw(line, jsonrpc.Level))
		}
		if fmt.Sprint(set) != `["error" "debug"]` {
			t.Errorf("the server was told %q: it must not be told more often than the level sinks", set)
		}
	})
}

// TestBridgeNoLogging: a server that cannot log is not asked to.
func TestBridgeNoLogging(t *testing.T) {
	tr := actors(nil)
	tr.Capabilities = `{"tools":{}}`
	on(t, troupe{Troupe: tr}, func(t *testing.T, s *stage) {
		w := ann
		w.meta = `,"io.modelcontextprotocol/logLevel":"debug"`
		s.done(s.call(w, "1", "echo", `{}`, ""))
		if got := s.troupe.Told("logging/setLevel"); len(got) > 0 {
			t.Errorf("told %q", got)
		}
	})
}

// TestBridgeSilentLogging: a server that never answers logging/setLevel does not
// hold up the call for good.
func TestBridgeSilentLogging(t *testing.T) {
	tr := actors(nil)
	tr.On = map[string]func(*testkit.Actor, *jsonrpc.Message){"logging/setLevel": func(*testkit.Actor, *jsonrpc.Message) {}}
	on(t, troupe{Troupe: tr}, func(t *testing.T, s *stage) {
		w := ann
		w.meta = `,"io.modelcontextprotocol/logLevel":"debug"`
		if got := s.done(s.call(w, "1", "echo", `{}`, "")); code(got) != "" {
			t.Errorf("answered %s", got)
		}
	})
}

// TestBridgeDeath: as with a server of the other era.
func TestBridgeDeath(t *testing.T) {
	on(t, troupe{Troupe: actors(nil)}, func(t *testing.T, s *stage) {
		r := s.call(ann, "1", "sleep", `{"ms":600000}`, "")
		s.within(time.Second, "the call", func() bool { return len(s.troupe.Told(`"sleep"`)) == 1 })
		for _, a := range s.troupe.Actors() {
			a.Die(errOver)
		}
		synctest.Wait()
		wantError(t, "at once", r.answer(), "-32603", `"outcome":"unknown"`)
		if got := code(s.done(s.call(ann, "2", "echo", `{}`, ""))); got != "" {
			t.Errorf("then error %s", got)
		}
	})
}
