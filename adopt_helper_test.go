package holdfast_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// The calls of a client that comes back as another one: adoption by equality,
// and by key.

// legacyOverHTTP are the bindings over which calls outlive connections.
var legacyOverHTTP = []struct{ binding, version string }{
	{"streamable", v03}, {"streamable", v06}, {"streamable", v11}, {"sse", v2024}, {"sse", v11},
}

// overHTTP runs a test on each of them.
func overHTTP(t *testing.T, s setup, f func(t *testing.T, b *bench, open func() *client)) {
	t.Helper()
	for _, tt := range legacyOverHTTP {
		t.Run(tt.binding+" "+tt.version, func(t *testing.T) {
			virtually(t, s, func(t *testing.T, b *bench) {
				f(t, b, func() *client { return bindings[tt.binding](b, tt.version) })
			})
		})
	}
}

// The two spellings of the same arguments, and what the tool reports and answers.
const (
	args      = `{"a":1,"b":{"x":[1,2],"y":"z\u00e9"}}`
	sameArgs  = `{ "b": {"y":"z\u00E9", "x":[1, 2]}, "a":1 }`
	otherArgs = `{"a":1.0,"b":{"x":[1,2],"y":"z\u00e9"}}`
	done      = `"structuredContent":"done"`
	adopted   = `"dev.holdfast/adopted":true`
)

// jobs makes servers with a tool of 3 s that reports after 0.5 s and 2.5 s.
func jobs() *farm {
	return &farm{tools: map[string]func(*fakeCall){"job": func(c *fakeCall) {
		c.pause(500 * time.Millisecond)
		c.progress(`"progress":1`)
		c.pause(2 * time.Second)
		c.progress(`"progress":2`)
		c.pause(500 * time.Millisecond)
		c.reply(`{"structuredContent":"done"}`)
	}}}
}

// job is a call of that tool.
func job(id, arguments string) string {
	return toolCall(id, "job", arguments, `{"progressToken":"t`+strings.Trim(id, `"`)+`"}`)
}

// lose cuts the connection that the answer to a request would come on; it is
// not waited for any more.
func (c *client) lose(s *stream, id string) {
	c.t.Helper()
	if c.endpoint != "" {
		s = c.main
	}
	s.open().cut()
	s.done()
	c.waive(id)
}

// answerPings answers the gateway's pings until the returned function is
// called, which waits for the last answer.
func (c *client) answerPings(with string) (stop func()) {
	quit, stopped := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(stopped)
		for seen := 0; ; {
			pings := c.find(`"method":"ping"`)
			for ; seen < len(pings); seen++ {
				c.send(`{"jsonrpc":"2.0","id":` + raw(pings[seen].raw, jsonrpc.ID) + `,` + with + `}`).done()
			}
			select {
			case <-quit:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return func() { close(quit); <-stopped }
}

// wantExecuted holds how often a tool was executed.
func wantExecuted(t *testing.T, f *farm, tool string, want int) {
	t.Helper()
	if got := f.executed()[tool]; got != want {
		t.Errorf("%s ran %d times, want %d", tool, got, want)
	}
}

// wantCancels holds that the servers were told of the end of just these calls,
// named by words of theirs, each under the id that the server knows it by.
func wantCancels(t *testing.T, f *farm, words ...string) {
	t.Helper()
	<-time.After(5 * time.Millisecond) // what is on its way arrives
	got := f.told("notifications/cancelled")
	if len(got) != len(words) {
		t.Errorf("the servers were told %q, want %d cancellations", got, len(words))
		return
	}
	for i, word := range words {
		call := f.told("tools/call", word)
		if len(call) != 1 || raw(got[i], jsonrpc.RequestID) != raw(call[0], jsonrpc.ID) {
			t.Errorf("the servers were told %s, want a cancellation of %q", got[i], call)
		}
		for _, k := range f.all() {
			if (len(k.told("notifications/cancelled", got[i])) > 0) != (len(k.told("tools/call", word)) > 0) {
				t.Errorf("%s went to a server that does not run %q", got[i], word)
			}
		}
	}
}

// wantAnswer holds an answer against words that must stand in it, or with a !
// before them must not.
func wantAnswer(t *testing.T, got string, words ...string) {
	t.Helper()
	for _, w := range words {
		if word, not := strings.CutPrefix(w, "!"); strings.Contains(got, word) == not {
			t.Errorf("answered with %s; want in it: %s", got, w)
		}
	}
}

// wantProgress holds which reports a client received under a token.
func wantProgress(t *testing.T, c *client, token string, want ...string) {
	t.Helper()
	var got []string
	for _, r := range c.find("notifications/progress", `"progressToken":`+token+`,`) {
		m, _ := jsonrpc.Parse([]byte(r.raw))
		got = append(got, string(jsonrpc.Get(m.Raw(jsonrpc.Params), "progress")))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("reports under token %s: %v, want %v", token, got, want)
	}
}

// tooled is a setup with rules for one tool.
func tooled(f *farm, rules holdfast.Tool, timers holdfast.Timers) setup {
	s := holdfast.InProcess(f.serve)
	s.Name, s.Tools = "kid", []holdfast.Tool{rules}
	return setup{options: holdfast.Options{Servers: []holdfast.Server{s}, Timers: timers}, farm: f}
}
