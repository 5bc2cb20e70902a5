package holdfast_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// A client calls, loses its stream, and comes back as a new session that calls
// the same: one execution, reported and answered to the second call.
func TestAdoptByAnEqualCall(t *testing.T) {
	for _, how := range []string{"nothing more", "the old session is deleted", "it times out"} {
		t.Run(how, func(t *testing.T) {
			s := setup{farm: jobs()}
			if how == "it times out" {
				s.options.Timers = holdfast.Timers{SessionTimeout: 500 * time.Millisecond, ReconnectGrace: 500 * time.Millisecond}
			}
			overHTTP(t, s, func(t *testing.T, b *bench, open func() *client) {
				old := open()
				old.ask(body("0", "tools/list", "")) // so that ids differ on both sides
				old.lose(old.send(job("1", args)), "1")
				<-time.After(100 * time.Millisecond)
				c := open()
				if old.endpoint == "" {
					c.listen("/mcp", "") // holds the session
				}
				again := c.send(job(`"again"`, sameArgs))
				<-time.After(time.Second)
				if how == "the old session is deleted" && old.endpoint == "" {
					old.do(http.MethodDelete, "/mcp", "").done()
				}
				got := c.answer(`"again"`)
				wantAnswer(t, got, done, adopted)
				wantProgress(t, c, `"tagain"`, "1", "2")
				for _, r := range c.find("notifications/progress") {
					if c.endpoint == "" && r.via != again {
						t.Error("a report came on another stream than the call's")
					}
				}
				wantExecuted(t, b.farm, "job", 1)
				wantCancels(t, b.farm)
				if how == "it times out" || how == "the old session is deleted" && old.endpoint == "" {
					b.within(bound, "the end of the server that nobody needs any more", b.farm.kid("job").gone)
				}
				wantAnswer(t, c.ask(job(`"more"`, sameArgs)), done, "!adopted")
				wantExecuted(t, b.farm, "job", 2)
			})
		})
	}
}

// Reports that came before the second call are told to it, too.
func TestAdoptHearsFromTheStart(t *testing.T) {
	overHTTP(t, setup{farm: jobs()}, func(t *testing.T, b *bench, open func() *client) {
		old := open()
		s := old.send(job("1", args))
		<-time.After(time.Second)
		old.lose(s, "1")
		<-time.After(500 * time.Millisecond)
		c := open()
		begin := time.Now()
		c.send(job("1", sameArgs))
		if d := c.await("notifications/progress").at.Sub(begin); d > 100*time.Millisecond {
			t.Errorf("the report that there was came after %v", d)
		}
		wantAnswer(t, c.answer("1"), done, adopted)
		wantProgress(t, c, `"t1"`, "1", "2")
		wantExecuted(t, b.farm, "job", 1)
	})
}

// The one that came first of those that come back has it; the next one is a call
// of its own, until the first is lost again.
func TestAdoptOnlyOnce(t *testing.T) {
	overHTTP(t, setup{farm: jobs()}, func(t *testing.T, b *bench, open func() *client) {
		old := open()
		old.lose(old.send(job("1", args)), "1")
		<-time.After(100 * time.Millisecond)
		first, second := open(), open()
		s := first.send(job("2", args))
		<-time.After(500 * time.Millisecond)
		second.send(job("3", args))
		<-time.After(500 * time.Millisecond)
		first.lose(s, "2")
		<-time.After(100 * time.Millisecond)
		third := open()
		third.send(job("4", args))
		wantAnswer(t, third.answer("4"), done, adopted)
		wantAnswer(t, second.answer("3"), done, "!adopted")
		wantProgress(t, third, `"t4"`, "1", "2")
		wantExecuted(t, b.farm, "job", 2)
	})
}

// An orphan that has ended is handed over, once, within the window.
func TestAdoptAfterTheEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		timers holdfast.Timers
		back   time.Duration // after the loss
		want   int           // executions, at the first call afterwards
	}{
		"within the window":        {holdfast.Timers{}, 119 * time.Second, 1},
		"after the window":         {holdfast.Timers{}, 121 * time.Second, 2},
		"within a short window":    {holdfast.Timers{AdoptWindow: 10 * time.Second}, 9 * time.Second, 1},
		"after a short window":     {holdfast.Timers{AdoptWindow: 10 * time.Second}, 11 * time.Second, 2},
		"no window":                {holdfast.Timers{AdoptWindow: -1}, 5 * time.Second, 2},
		"no window, still running": {holdfast.Timers{AdoptWindow: -1}, 2 * time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			tt.timers.ReconnectGrace = time.Hour
			overHTTP(t, setup{farm: jobs(), options: holdfast.Options{Timers: tt.timers}}, func(t *testing.T, b *bench, open func() *client) {
				old := open()
				old.lose(old.send(job("1", args)), "1")
				<-time.After(tt.back)
				c := open()
				got := c.ask(job("2", sameArgs))
				wantAnswer(t, got, done)
				if strings.Contains(got, adopted) != (tt.want == 1) {
					t.Errorf("answered with %s", got)
				}
				wantExecuted(t, b.farm, "job", tt.want)
				wantAnswer(t, c.ask(job("3", sameArgs)), done, "!adopted")
				wantExecuted(t, b.farm, "job", tt.want+1)
				wantCancels(t, b.farm)
			})
		})
	}
}

// An answer that was delivered is nobody's any more: a later wish is for fresh data.
func TestAdoptNothingDelivered(t *testing.T) {
	overHTTP(t, setup{farm: jobs()}, func(t *testing.T, b *bench, open func() *client) {
		old := open()
		wantAnswer(t, old.ask(job("1", args)), done, "!adopted")
		s := old.send(toolCall("2", "sleep", `{"ms":60000}`, "")).open()
		old.lose(s, "2")
		<-time.After(time.Second)
		c := open()
		wantAnswer(t, c.ask(job("1", args)), done, "!adopted")
		wantExecuted(t, b.farm, "job", 2)
		old.waive("2")
	})
}

// Equal calls whose callers are there are two calls, across sessions and within.
func TestHealthyTwinsAreTwo(t *testing.T) {
	overHTTP(t, setup{farm: jobs()}, func(t *testing.T, b *bench, open func() *client) {
		one, two := open(), open()
		for _, c := range []*client{one, two} {
			for i := range 2 {
				c.send(job(fmt.Sprint(i), args))
			}
		}
		for _, c := range []*client{one, two} {
			for i := range 2 {
				wantAnswer(t, c.answer(fmt.Sprint(i)), done, "!adopted")
				wantProgress(t, c, fmt.Sprintf(`"t%d"`, i), "1", "2")
			}
		}
		wantExecuted(t, b.farm, "job", 4)
	})
}

// A question that is open when the call is taken over is put to the new client,
// as is one that comes later; each answer reaches the server once.
func TestAdoptWithAnOpenQuestion(t *testing.T) {
	ask := func(c *fakeCall, id string) {
		c.k.line(`{"jsonrpc":"2.0","id":"` + id + `","method":"elicitation/create","params":{"message":"who?","requestedSchema":{"type":"object"}}}`)
		for len(c.k.told(`"id":"`+id+`"`)) == 0 && c.pause(10*time.Millisecond) {
		}
	}
	f := &farm{tools: map[string]func(*fakeCall){"job": func(c *fakeCall) {
		ask(c, "q1")
		c.progress(`"progress":1`)
		ask(c, "q2")
		c.reply(`{"structuredContent":"done"}`)
	}}}
	for _, binding := range []string{"streamable", "sse"} {
		t.Run(binding, func(t *testing.T) {
			virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
				open := func() *client {
					c := b.client()
					if binding == "sse" {
						c.listen("/sse", "")
					}
					c.handshake(v11, `{"elicitation":{}}`)
					return c
				}
				old := open()
				s := old.send(job("1", args))
				q := old.await("elicitation/create")
				old.lose(s, "1")
				<-time.After(time.Second)
				c := open()
				c.send(job("2", sameArgs))
				if again := c.await("elicitation/create"); again.raw != q.raw {
					t.Errorf("asked %s, before %s", again.raw, q.raw)
				}
				c.send(`{"jsonrpc":"2.0","id":` + raw(q.raw, jsonrpc.ID) + `,"result":{"action":"accept","content":{"by":"new"}}}`).done()
				old.send(`{"jsonrpc":"2.0","id":` + raw(q.raw, jsonrpc.ID) + `,"result":{"action":"accept","content":{"by":"old"}}}`).done()
				b.within(bound, "another question", func() bool { return len(c.find("elicitation/create")) == 2 })
				second := c.find("elicitation/create")[1]
				for range 2 {
					c.send(`{"jsonrpc":"2.0","id":` + raw(second.raw, jsonrpc.ID) + `,"result":{"action":"decline"}}`).done()
				}
				wantAnswer(t, c.answer("2"), done, adopted)
				wantProgress(t, c, `"t2"`, "1")
				for id, want := range map[string]string{"q1": `{"by":"new"}`, "q2": `decline`} {
					if got := f.told(`"id":"` + id + `"`); len(got) != 1 || !strings.Contains(got[0], want) {
						t.Errorf("the server was told %q", got)
					}
				}
				if got := old.find("elicitation/create"); len(got) != 1 {
					t.Errorf("the old client was asked %v", got)
				}
				wantExecuted(t, f, "job", 1)
			})
		})
	}
}

// Who took a call over can cancel it; who lost it, no longer.
func TestAdoptedCallsAreCancelledByTheirNewClient(t *testing.T) {
	overHTTP(t, setup{farm: jobs()}, func(t *testing.T, b *bench, open func() *client) {
		old := open()
		old.ask(body("0", "tools/list", ""))
		old.lose(old.send(job("1", args)), "1")
		<-time.After(100 * time.Millisecond)
		c, other := open(), open()
		c.send(job("7", sameArgs))
		other.send(toolCall("1", "sleep", `{"ms":3000}`, ""))
		<-time.After(time.Second)
		old.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`).done()
		<-time.After(100 * time.Millisecond)
		wantCancels(t, b.farm)
		for range 2 {
			c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"<stop>"}}`).done()
		}
		b.within(100*time.Millisecond, "the cancellation at the server", func() bool { return len(b.farm.told("notifications/cancelled", "<stop>")) == 1 })
		if c.endpoint == "" {
			wantAnswer(t, c.answer("7"), `"code":-32800`)
		} else {
			c.waive("7")
		}
		wantAnswer(t, other.answer("1"), "slept")
		<-time.After(5 * time.Second) // its answer comes late, and goes nowhere
		wantCancels(t, b.farm, `"job"`)
		wantExecuted(t, b.farm, "job", 1)
		wantAnswer(t, c.ask(job("8", sameArgs)), done, "!adopted") // a cancelled call is not joined
	})
}

// kid returns the first server that was sent a line with the words.
func (f *farm) kid(words ...string) *fake {
	for _, k := range f.all() {
		if len(k.told(words...)) > 0 {
			return k
		}
	}
	return nil
}
