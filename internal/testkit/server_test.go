package testkit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// wire is the client's end of a server.
type wire struct {
	t    *testing.T
	in   io.WriteCloser
	out  *bufio.Reader
	wait func() error
}

func open(t *testing.T, o Options) *wire {
	in, out, wait := Pipe(t.Context(), o)
	return &wire{t, in, bufio.NewReader(out), wait}
}

func (w *wire) send(message []byte) {
	w.t.Helper()
	if _, err := w.in.Write(append(message, '\n')); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) line() string {
	w.t.Helper()
	line, err := w.out.ReadString('\n')
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSuffix(line, "\n")
}

func (w *wire) next() Message {
	w.t.Helper()
	m, err := Parse([]byte(w.line()))
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func (w *wire) initialize(version string) Message {
	w.t.Helper()
	w.send(Request("0", "initialize", InitializeParams(version, `{"roots":{}}`, "tester")))
	m := w.next()
	w.send(Notification("notifications/initialized", ""))
	return m
}

// call calls a tool and returns its text.
func (w *wire) call(tool, args string) string {
	w.t.Helper()
	w.send(CallTool("1", tool, args))
	m := w.next()
	if !m.IsAnswer("1") {
		w.t.Fatalf("%s: got %s", tool, m.Bytes)
	}
	return m.Text()
}

func (w *wire) close() {
	w.t.Helper()
	_ = w.in.Close()
	if err := w.wait(); err != nil {
		w.t.Errorf("Serve: %v", err)
	}
}

func TestServerAnswers(t *testing.T) {
	w := open(t, Options{})
	tests := []struct{ method, params, want string }{
		{"ping", ``, `{}`},
		{"x/any", `{"b":1.0, "a":9223372036854775807,"t":"<&>"}`, `{"b":1.0, "a":9223372036854775807,"t":"<&>"}`},
		{"x/none", ``, `{}`},
		{"resources/list", `{}`, `"uri":"testkit://text"`},
		{"resources/templates/list", `{}`, `"uriTemplate":"testkit://item/{id}"`},
		{"resources/read", `{"uri":"testkit://text"}`, `{"contents":[{"mimeType":"text/plain","text":"text","uri":"testkit://text"}]}`},
		{"resources/read", `{"uri":"testkit://blob"}`, `"blob":"AAECAw=="`},
		{"resources/read", `{"uri":"testkit://item/7"}`, `"text":"item 7"`},
		{"resources/read", `{"uri":"other"}`, `{"code":-32002,"message":"resource not found","data":{"uri":"other"}}`},
		{"prompts/list", `{}`, `"name":"greet"`},
		{"prompts/get", `{"name":"greet","arguments":{"name":"Ada"}}`, `Greet Ada.`},
		{"prompts/get", `{"name":"other"}`, `-32602`},
		{"completion/complete", `{"argument":{"name":"name","value":"A"}}`, `"values":["Ada","Alan"]`},
		{"logging/setLevel", `{"level":"loud"}`, `-32602`},
		{"server/discover", `{}`, `{"code":-32601,"message":"unknown method server/discover"}`},
		{"tools/call", `{"name":"other","arguments":{}}`, `-32602`},
		{"tools/call", `{"name":"echo","Name":"crash","arguments":{"text":"<a>&b"}}`, `{"content":[{"text":"<a>&b","type":"text"}]}`},
		{"tools/list", `{}`, `"maximum":9223372036854775807,"multipleOf":1.0`},
	}
	for _, tt := range tests {
		for _, id := range []string{`0`, `""`, `"\u0061"`, `1e3`} {
			w.send(Request(id, tt.method, tt.params))
			if got := w.line(); !strings.Contains(got, tt.want) || !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":`+id+`,`) {
				t.Errorf("%s: got %s, want id %s and %s", tt.method, got, id, tt.want)
			}
		}
	}
	w.close()
}

func TestServerNegotiates(t *testing.T) {
	tests := []struct {
		offers      []string
		asked, want string
	}{
		{nil, "2025-03-26", "2025-03-26"},
		{nil, "2026-07-28", "2025-11-25"},
		{[]string{"2024-11-05"}, "2025-11-25", "2024-11-05"},
	}
	for _, tt := range tests {
		w := open(t, Options{Versions: tt.offers, Name: "n", Capabilities: `{"tools":{}}`})
		m := w.initialize(tt.asked)
		want := fmt.Sprintf(`"protocolVersion":"%s","serverInfo":{"name":"n",`, tt.want)
		if !strings.Contains(string(m.Result), want) || !strings.Contains(string(m.Result), `"capabilities":{"tools":{}}`) {
			t.Errorf("got %s, want %s", m.Result, want)
		}
		w.close()
	}
}

func TestWhoamiAndCounts(t *testing.T) {
	w := open(t, Options{})
	w.initialize("2025-06-18")
	w.send([]byte("not a message"))
	w.send(Request("5", "logging/setLevel", `{"level":"error"}`))
	w.next()
	for _, uri := range []string{"b", "a", "c"} {
		w.send(Request("5", "resources/subscribe", `{"uri":"`+uri+`"}`))
		w.next()
	}
	w.send(Request("5", "resources/unsubscribe", `{"uri":"c"}`))
	w.next()
	var id Identity
	if err := json.Unmarshal([]byte(w.call("whoami", `{}`)), &id); err != nil {
		t.Fatal(err)
	}
	if string(id.ClientInfo) != `{"name":"tester","version":"1.0.0"}` || string(id.Capabilities) != `{"roots":{}}` ||
		id.ProtocolVersion != "2025-06-18" || id.Negotiated != "2025-06-18" || !id.Initialized || id.Pid != os.Getpid() ||
		id.LogLevel != "error" || fmt.Sprint(id.Subscribed) != "[a b]" || fmt.Sprint(id.InvalidLines) != "[not a message]" {
		t.Errorf("got %+v", id)
	}
	for key, want := range map[string]string{
		"request:resources/subscribe":            `{"start":3,"end":0,"cancel":0}`,
		"notification:notifications/initialized": `{"start":1,"end":0,"cancel":0}`,
		"nothing":                                `{"start":0,"end":0,"cancel":0}`,
	} {
		if got := w.call("count", `{"key":"`+key+`"}`); got != want {
			t.Errorf("%s: got %s, want %s", key, got, want)
		}
	}
	w.close()
}

func TestEchoKeepsBytes(t *testing.T) {
	w := open(t, Options{})
	args := `{"raw":true, "a":9223372036854775807,"b":1.0,"c":1e400,"d":-0,"e":0.1000,"t":"<&>\u00e9","a":2}`
	w.send(CallTool("1", "echo", args))
	m := w.next()
	if m.Text() != args {
		t.Errorf("text %s", m.Text())
	}
	if !strings.HasSuffix(string(m.Bytes), `"structuredContent":`+args+`}}`) {
		t.Errorf("got %s", m.Bytes)
	}
	if got := w.call("echo", `{"text":"t","a":1e400}`); got != "t" {
		t.Errorf("got %s", got)
	}
	w.close()
}

func TestTools(t *testing.T) {
	var stderr strings.Builder
	w := open(t, Options{Stderr: &stderr})
	t.Setenv("TESTKIT_PROBE", "set")
	tests := []struct{ tool, args, want string }{
		{"big", `{"bytes":5}`, "xxxxx"},
		{"stderr", `{"bytes":100,"newline":true}`, "written"},
		{"env", `{"name":"TESTKIT_PROBE"}`, `{"set":true,"value":"set"}`},
		{"env", `{"name":"TESTKIT_OTHER"}`, `{"set":false,"value":""}`},
		{"fail", `{"message":"bad"}`, "bad"},
		{"error", `{"code":-32000,"message":"no"}`, "no (-32000)"},
		{"touch", `{"uri":"a"}`, "subscribed=false"},
		{"progress", `{"n":3}`, "emitted=3"},
		{"sleep", `{"ms":1}`, "slept"},
		{"sleep", `{"ms":"1"}`, "params: json: cannot unmarshal string into Go struct field arguments.ms of type int (-32602)"},
	}
	for _, tt := range tests {
		if got := w.call(tt.tool, tt.args); got != tt.want {
			t.Errorf("%s %s: got %q, want %q", tt.tool, tt.args, got, tt.want)
		}
	}
	if got := stderr.String(); len(got) != 100 || strings.Count(got, "\n") != 1 {
		t.Errorf("stderr %q", got)
	}
	w.close()
}

func TestToolsThatSendMore(t *testing.T) {
	w := open(t, Options{})
	w.send(Request("5", "resources/subscribe", `{"uri":"a"}`))
	w.next()
	tests := []struct {
		call []byte
		want []string
	}{
		{CallToolWithToken("1", "progress", `{"n":2,"pad":3}`, `1e1`), []string{
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1e1,"progress":1,"total":2,"message":"ppp"}}`,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1e1,"progress":2,"total":2,"message":"ppp"}}`,
		}},
		{CallTool("1", "log", `{"n":2,"level":"error","message":"m"}`), []string{
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"m1","level":"error","logger":"testkit"}}`,
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"m2","level":"error","logger":"testkit"}}`,
		}},
		{CallTool("1", "junk", `{}`), []string{"◇ injected env (0)", "Server v1 running", "", `{"level":"info"}`, `ready {"a":1}`}},
		{CallTool("1", "list_changed", `{"kind":"prompts"}`), []string{`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`}},
		{CallTool("1", "touch", `{"uri":"a"}`), []string{`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a"}}`}},
		{CallTool("1", "notify", `{"method":"n","params":{"x":1.0}}`), []string{`{"jsonrpc":"2.0","method":"n","params":{"x":1.0}}`}},
	}
	for _, tt := range tests {
		w.send(tt.call)
		for _, want := range tt.want {
			if got := w.line(); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		}
		if m := w.next(); !m.IsAnswer("1") || m.Error != nil {
			t.Errorf("got %s", m.Bytes)
		}
	}
	w.send(Request("5", "logging/setLevel", `{"level":"critical"}`))
	w.next()
	if got := w.call("log", `{"n":2,"level":"error"}`); got != "logged=0" {
		t.Errorf("below the level: %s", got)
	}
	w.close()
}

func TestQuestions(t *testing.T) {
	w := open(t, Options{})
	tests := []struct{ tool, args, method, params, want string }{
		{"ask", `{"message":"why <?>"}`, "elicitation/create",
			`{"message":"why <?>","requestedSchema":{"type":"object","properties":{"answer":{"type":"string"}},"required":["answer"]}}`, `{"n":1.0}`},
		{"ask", `{"mode":"url","key":"k"}`, "elicitation/create", `{"mode":"url","message":"?","url":"https://example.com/","elicitationId":"k"}`, `{"n":1.0}`},
		{"sample", `{}`, "sampling/createMessage", `{"messages":[{"role":"user","content":{"type":"text","text":"?"}}],"maxTokens":10}`, `{"n":1.0}`},
		{"roots", `{}`, "roots/list", ``, `{"n":1.0}`},
		{"request", `{"method":"x/y","params":{"a":1.0}}`, "x/y", `{"a":1.0}`, `{"n":1.0}`},
	}
	for _, tt := range tests {
		w.send(CallTool("1", tt.tool, tt.args))
		q := w.next()
		if q.Method != tt.method || string(q.Params) != tt.params {
			t.Errorf("%s: asked %s %s", tt.tool, q.Method, q.Params)
		}
		w.send(Reply(string(q.ID), `{"n":1.0}`))
		m := w.next()
		if strings.Contains(tt.args, "url") {
			if m.Method != "notifications/elicitation/complete" {
				t.Errorf("got %s", m.Bytes)
			}
			m = w.next()
		}
		if m.Text() != tt.want {
			t.Errorf("%s: got %s", tt.tool, m.Bytes)
		}
	}
	w.send(CallTool("1", "roots", `{}`))
	w.send(Refusal(string(w.next().ID), -32601, "no roots"))
	if m := w.next(); m.Text() != "-32601 no roots" || !strings.Contains(string(m.Result), `"isError":true`) {
		t.Errorf("got %s", m.Bytes)
	}
	w.close()
}

func TestSleepIsCountedAndCancelled(t *testing.T) {
	file := filepath.Join(t.TempDir(), "counts")
	synctest.Test(t, func(t *testing.T) {
		w := open(t, Options{CountFile: file})
		w.send(CallTool("1", "sleep", `{"ms":60000,"key":"a b"}`))
		w.send(CallTool("2", "sleep", `{"ms":2000,"key":"a b","ignoreCancel":true}`))
		time.Sleep(time.Second)
		w.send(Notification("notifications/cancelled", `{"requestId":1}`))
		w.send(Notification("notifications/cancelled", `{"requestId":2}`))
		begin := time.Now()
		if m := w.next(); !m.IsAnswer("2") || time.Since(begin) != time.Second {
			t.Errorf("got %s after %v", m.Bytes, time.Since(begin))
		}
		if got := w.call("count", `{"key":"a b"}`); got != `{"start":2,"end":1,"cancel":1}` {
			t.Errorf("counted %s", got)
		}
		w.close()
	})
	want := Counts{Start: 2, End: 1, Cancel: 1}
	if got, err := ReadCounts(file, "a b"); err != nil || got != want {
		t.Errorf("file: %+v, %v", got, err)
	}
	if got, err := ReadCounts(file, "b"); err != nil || got != (Counts{}) {
		t.Errorf("another key: %+v, %v", got, err)
	}
	if got, err := ReadCounts(file+"x", "a b"); err != nil || got != (Counts{}) {
		t.Errorf("no file: %+v, %v", got, err)
	}
}

func TestDelaysAndBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		w := open(t, Options{StartDelay: 2 * time.Second, InitDelay: 3 * time.Second, Junk: true})
		w.send(Request("0", "initialize", InitializeParams("2025-11-25", "{}", "n")))
		if since := time.Since(begin); since != 2*time.Second {
			t.Errorf("read after %v", since)
		}
		for range 5 {
			w.line()
		}
		w.send(Request("1", "ping", ""))
		if m := w.next(); !m.IsAnswer("1") {
			t.Errorf("got %s", m.Bytes)
		}
		if m := w.next(); !m.IsAnswer("0") || time.Since(begin) != 5*time.Second {
			t.Errorf("got %s after %v", m.Bytes, time.Since(begin))
		}
		w.send(CallTool("2", "block", `{"ms":4000}`))
		w.send(Request("3", "ping", ""))
		for _, id := range []string{"2", "3"} {
			if m := w.next(); !m.IsAnswer(id) || time.Since(begin) != 9*time.Second {
				t.Errorf("got %s after %v, want the answer to %s", m.Bytes, time.Since(begin), id)
			}
		}
		w.close()
	})
}

func TestServersThatEnd(t *testing.T) {
	for tool, want := range map[string]int{"crash": 17, "exit-after-reply": 17} {
		var stderr strings.Builder
		w := open(t, Options{Stderr: &stderr})
		w.send(CallTool("1", tool, `{"code":17,"stderr":"last words"}`))
		if tool == "exit-after-reply" {
			if m := w.next(); m.Text() != "bye" {
				t.Errorf("got %s", m.Bytes)
			}
		}
		if e, ok := errors.AsType[*ExitError](w.wait()); !ok || e.Code != want {
			t.Errorf("%s: got %v", tool, w.wait())
		}
		if stderr.String() != "last words\n" {
			t.Errorf("%s: stderr %q", tool, stderr.String())
		}
		if _, err := w.out.ReadByte(); err != io.EOF {
			t.Errorf("%s: output goes on: %v", tool, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, _, wait := Pipe(ctx, Options{})
	cancel()
	if err := wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
