package holdfast_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// way is how a call gets to a server: by a binding, in the era of the client,
// to a server of either era.
type way struct {
	name      string
	open      func(b *bench, capabilities string) *client
	modern    bool // the client's era
	stateless bool // the server's
}

// ways are all of them.
func ways() (all []way) {
	legacy := map[string]func(b *bench, capabilities string) *client{}
	for _, v := range []string{v03, v11} {
		legacy["streamable "+v] = func(b *bench, capabilities string) *client {
			c := b.client()
			c.handshake(v, capabilities)
			return c
		}
	}
	legacy["sse"] = func(b *bench, capabilities string) *client {
		c := b.client()
		c.listen("/sse", "")
		c.handshake(v2024, capabilities)
		return c
	}
	legacy["stdio"] = func(b *bench, capabilities string) *client {
		c := b.pipe()
		c.handshake(v06, capabilities)
		return c
	}
	for _, stateless := range []bool{false, true} {
		server := map[bool]string{false: "", true: ", stateless server"}[stateless]
		for name, open := range legacy {
			all = append(all, way{name + server, open, false, stateless})
		}
		for name, open := range newcomers {
			all = append(all, way{"stateless " + name + server, func(b *bench, _ string) *client { return open(b) }, true, stateless})
		}
	}
	return all
}

// call sends a call of a tool. token is raw JSON, "" for none.
func (w way) call(c *client, id, tool, arguments, token string) *stream {
	meta := ""
	if token != "" {
		meta = `"progressToken":` + token
	}
	if w.modern {
		return c.sendModern(modernCall(id, tool, arguments, meta))
	}
	if meta != "" {
		meta = `{` + meta + `}`
	}
	return c.send(toolCall(id, tool, arguments, meta))
}

// ask is call, and the answer.
func (w way) ask(c *client, id, tool, arguments, token string) string {
	c.t.Helper()
	w.call(c, id, tool, arguments, token)
	return c.answer(id)
}

// everyWay runs a test in every way. The farm's methods are the test's own to
// add to.
func everyWay(t *testing.T, timers holdfast.Timers, farmOf func() *farm, f func(t *testing.T, b *bench, w way)) {
	t.Helper()
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			farm := farmOf()
			if w.stateless {
				own := farm.methods
				farm.methods = modernOnly()
				for method, handle := range own {
					if method != "ping" {
						farm.methods[method] = handle
					}
				}
			}
			virtually(t, setup{farm: farm, options: holdfast.Options{Timers: timers}}, func(t *testing.T, b *bench) { f(t, b, w) })
		})
	}
}

// within is how close to its time a clock must run out.
const within = 100 * time.Millisecond

// wantExpired holds an answer against what must be said of a clock that ran out
// so long after it began.
func wantExpired(t *testing.T, got string, took time.Duration, clock, limit string) {
	t.Helper()
	d, _ := time.ParseDuration(limit)
	if took < d || took > d+within {
		t.Errorf("it took %v, want %v", took, d)
	}
	flag := map[string]string{"request-timeout": "--request-timeout", "request-max": "--request-max"}[clock]
	wantAnswer(t, got, `"error":{"code":-32001`, flag, limit, `"outcome":"unknown"`, fmt.Sprintf(`"clock":%q`, clock), fmt.Sprintf(`"limit":%q`, limit))
}

// wantCancelledWith holds that the one cancellation tells why, and comes with
// the id of the call of the tool.
func wantCancelledWith(t *testing.T, f *farm, tool, why string) {
	t.Helper()
	wantCancels(t, f, `"name":"`+tool+`"`)
	for _, got := range f.told("notifications/cancelled") {
		m, _ := jsonrpc.Parse([]byte(got))
		wantAnswer(t, string(jsonrpc.Get(m.Raw(jsonrpc.Params), "reason")), why)
	}
}
