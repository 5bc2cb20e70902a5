package holdfast_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// The clocks of a request: idle, which its own progress resets, and maximum,
// which nothing resets.

var brisk = holdfast.Timers{RequestTimeout: time.Second, RequestMax: 3 * time.Second}

// stepping makes servers with a tool that reports four times, and one that does
// so for ever.
func stepping() *farm {
	return &farm{tools: map[string]func(*fakeCall){
		"steps": func(c *fakeCall) {
			for i := range 4 {
				c.pause(600 * time.Millisecond)
				c.progress(fmt.Sprintf(`"progress":%d`, i+1))
			}
			c.reply(`{"structuredContent":"done"}`)
		},
		"endless": func(c *fakeCall) {
			for i := 0; c.pause(700*time.Millisecond) && i < 20; i++ { // cancelled or not
				c.progress(fmt.Sprintf(`"progress":%d`, i+1))
			}
			c.reply(`{"structuredContent":"late"}`)
		},
	}}
}

// C11 (i) and (iii): progress resets the idle clock, asked for by the client or
// not; who did not ask for it gets none.
func TestC11ProgressResetsTheIdleClock(t *testing.T) {
	everyWay(t, brisk, stepping, func(t *testing.T, b *bench, w way) {
		c := w.open(b, "{}")
		wantAnswer(t, w.ask(c, "1", "steps", `{}`, `"mine"`), done)
		wantAnswer(t, w.ask(c, "2", "steps", `{}`, ""), done)
		wantAnswer(t, w.ask(c, "3", "steps", `{}`, `7`), done)
		wantProgress(t, c, `"mine"`, "1", "2", "3", "4")
		wantProgress(t, c, `7`, "1", "2", "3", "4")
		if got := c.find("notifications/progress"); len(got) != 8 {
			t.Errorf("%d reports, want those of two calls: %v", len(got), got)
		}
		wantExecuted(t, b.farm, "steps", 3)
		wantCancels(t, b.farm)
	})
}

// C11 (ii): progress for ever ends at the maximum.
func TestC11MaximumIsNotReset(t *testing.T) {
	for _, token := range []string{`1`, ""} {
		t.Run("token "+token, func(t *testing.T) {
			everyWay(t, brisk, stepping, func(t *testing.T, b *bench, w way) {
				c := w.open(b, "{}")
				w.ask(c, "0", "echo", `{}`, "") // its server is there
				begin := time.Now()
				got := w.ask(c, "1", "endless", `{}`, token)
				wantExpired(t, got, time.Since(begin), "request-max", "3s")
				<-time.After(15 * time.Second) // it reports on, and answers
				want := []string{"1", "2", "3", "4"}
				if token == "" {
					want = nil
				}
				wantProgress(t, c, `1`, want...)
				wantCancelledWith(t, b.farm, "endless", "request maximum")
				wantExecuted(t, b.farm, "endless", 1)
				wantAnswer(t, w.ask(c, "2", "echo", `{"n":2}`, ""), `{"n":2}`)
				wantSameServers(t, b.farm)
			})
		})
	}
}

// wantSameServers holds that none has ended.
func wantSameServers(t *testing.T, f *farm) {
	t.Helper()
	if all := len(f.all()); f.alive() != all {
		t.Errorf("%d of %d servers are left", f.alive(), all)
	}
}

// silentFor makes servers with a tool that says nothing of its own for a time;
// meanwhile the server logs, and reports on what nobody called.
func silentFor(d time.Duration) func() *farm {
	return func() *farm {
		return &farm{tools: map[string]func(*fakeCall){"silent": func(c *fakeCall) {
			for end := time.Now().Add(d); time.Now().Before(end) && c.pause(200*time.Millisecond); {
				c.k.line(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"still here"}}`)
				c.k.line(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":424242,"progress":1}}`)
			}
			c.reply(`{"structuredContent":"late"}`)
		}}}
	}
}

// C13: a call without progress of its own is given up, and the server is told;
// what it answers late goes nowhere, and it serves on.
func TestC13SilentCallsAreCancelled(t *testing.T) {
	everyWay(t, brisk, silentFor(10*time.Second), func(t *testing.T, b *bench, w way) {
		c := w.open(b, "{}")
		w.ask(c, "0", "echo", `{}`, "")
		begin := time.Now()
		s := w.call(c, "1", "silent", `{}`, `1`)
		<-time.After(500 * time.Millisecond)
		w.call(c, `"beside"`, "silent", `{"b":1}`, "")
		wantExpired(t, c.answer("1"), time.Since(begin), "request-timeout", "1s")
		wantExpired(t, c.answer(`"beside"`), time.Since(begin)-500*time.Millisecond, "request-timeout", "1s")
		if c.endpoint == "" && c.pipe == nil {
			s.done() // and its stream has ended
		}
		<-time.After(20 * time.Second)
		wantCancels(t, b.farm, `"silent","arguments":{}`, `{"b":1}`)
		wantAnswer(t, w.ask(c, "2", "echo", `{"n":2}`, ""), `{"n":2}`)
		wantSameServers(t, b.farm)
		wantExecuted(t, b.farm, "silent", 2)
	})
}

// The pings that a server answers, and those that it sends, are no progress.
func TestC13PingsAreNoProgress(t *testing.T) {
	timers := holdfast.Timers{RequestTimeout: 20 * time.Second, PingInterval: time.Second, PingTimeout: 500 * time.Millisecond}
	f := func() *farm {
		return &farm{tools: map[string]func(*fakeCall){"silent": func(c *fakeCall) {
			for i := 0; i < 60 && c.pause(time.Second); i++ {
				c.k.line(fmt.Sprintf(`{"jsonrpc":"2.0","id":"p%d","method":"ping"}`, i))
			}
			c.reply(`{}`)
		}, "mute": func(c *fakeCall) {
			c.pause(time.Minute)
			c.reply(`{}`)
		}}}
	}
	for _, tool := range []string{"silent", "mute"} {
		t.Run(tool, func(t *testing.T) {
			everyWay(t, timers, f, func(t *testing.T, b *bench, w way) {
				if w.stateless {
					return // there is no ping
				}
				c := w.open(b, "{}")
				w.ask(c, "0", "echo", `{}`, "")
				begin := time.Now()
				got := w.ask(c, "1", tool, `{}`, "")
				wantExpired(t, got, time.Since(begin), "request-timeout", "20s")
				if n := len(b.farm.told(`"method":"ping"`)); tool == "mute" && n < 10 {
					t.Errorf("the server was sent %d pings", n)
				}
				wantCancels(t, b.farm, `"`+tool+`"`)
				<-time.After(time.Minute)
				wantSameServers(t, b.farm)
			})
		})
	}
}

// C13: initialize is never cancelled, and subscriptions have no clock.
func TestC13InitializeIsNeverCancelled(t *testing.T) {
	for name, open := range map[string]func(b *bench) *client{
		"streamable": newcomers["mcp"], "sse": newcomers["sse"], "stdio": newcomers["stdio"],
	} {
		t.Run(name, func(t *testing.T) {
			f := &farm{born: func(k *fake) {
				select {
				case <-time.After(20 * time.Second):
				case <-k.ctx.Done():
				}
			}}
			o := holdfast.Options{Timers: brisk, Server: holdfast.Server{Warm: -1}}
			virtually(t, setup{farm: f, options: o}, func(t *testing.T, b *bench) {
				c := open(b)
				c.handshake(v06, "{}")
				wantCancels(t, f)
				wantAnswer(t, c.ask(toolCall("1", "echo", `{"n":1}`, "")), `{"n":1}`)
			})
		})
	}
}

func TestSubscriptionsHaveNoClock(t *testing.T) {
	for name, farmOf := range eras {
		for binding, connect := range newcomers {
			t.Run(name+", "+binding, func(t *testing.T) {
				f := farmOf()
				virtually(t, setup{farm: f, options: holdfast.Options{Timers: brisk}}, func(t *testing.T, b *bench) {
					c := connect(b)
					c.sendModern(modern(`"s"`, "subscriptions/listen", `"notifications":{"toolsListChanged":true}`, ""))
					c.await("notifications/subscriptions/acknowledged")
					<-time.After(3 * time.Minute)
					if got := c.find(`"id":"s"`); len(got) > 0 {
						t.Errorf("the subscription ended with %v", got)
					}
					wantCancels(t, f)
					_ = b.g.Stop(t.Context())
					c.answer(`"s"`)
				})
			})
		}
	}
}

// While a client is being asked, neither clock of its call runs.
func TestClocksStopWhileTheClientIsAsked(t *testing.T) {
	f := func() *farm {
		return &farm{tools: map[string]func(*fakeCall){"ask": func(c *fakeCall) {
			c.pause(500 * time.Millisecond)
			c.k.line(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"who?","requestedSchema":{"type":"object"}}}`)
			for len(c.k.told(`"id":"q"`)) == 0 && c.pause(10*time.Millisecond) {
			}
			c.pause(time.Minute)
			c.reply(`{"structuredContent":"late"}`)
		}}}
	}
	everyWay(t, brisk, f, func(t *testing.T, b *bench, w way) {
		if w.modern || w.stateless {
			return // there a question ends the request
		}
		c := w.open(b, `{"elicitation":{}}`)
		w.call(c, "1", "ask", `{}`, "")
		q := c.await("elicitation/create")
		<-time.After(30 * time.Second)
		if got := c.find(`"id":1,`); len(got) > 0 {
			t.Errorf("answered with %v", got)
		}
		begin := time.Now()
		c.send(`{"jsonrpc":"2.0","id":` + raw(q.raw, jsonrpc.ID) + `,"result":{"action":"accept","content":{}}}`).done()
		got := c.answer("1")
		if d := time.Since(begin); d < 400*time.Millisecond || d > 1200*time.Millisecond {
			t.Errorf("given up %v after the answer", d)
		}
		wantAnswer(t, got, "--request-timeout")
		wantCancels(t, b.farm, `"ask"`)
		wantExecuted(t, b.farm, "ask", 1)
	})
}

// A tool's own times count for it alone.
func TestClocksOfATool(t *testing.T) {
	f := silentFor(30 * time.Second)()
	s := tooled(f, holdfast.Tool{Name: "sil*", RequestTimeout: 4 * time.Second, RequestMax: -1}, brisk)
	virtually(t, s, func(t *testing.T, b *bench) {
		c := b.streamable(v11)
		begin := time.Now()
		c.send(toolCall("1", "silent", `{}`, ""))
		got := c.ask(toolCall("2", "sleep", `{"ms":60000}`, ""))
		wantExpired(t, got, time.Since(begin), "request-timeout", "1s")
		wantExpired(t, c.answer("1"), time.Since(begin), "request-timeout", "4s")
		wantAnswer(t, c.answer("1"), "tools/call silent")
		if got := b.log.lines("request idle", "tools/call silent"); len(got) != 1 {
			t.Errorf("logged %q", got)
		}
	})
}

// Both clocks of one call may run out at once: it has one answer all the same.
func TestClocksTogether(t *testing.T) {
	timers := holdfast.Timers{RequestTimeout: 2 * time.Second, RequestMax: 2 * time.Second}
	everyWay(t, timers, silentFor(5*time.Second), func(t *testing.T, b *bench, w way) {
		c := w.open(b, "{}")
		wantAnswer(t, w.ask(c, "1", "silent", `{}`, ""), `"code":-32001`)
		<-time.After(10 * time.Second)
		wantCancels(t, b.farm, `"silent"`)
	})
}

// A negative time is none.
func TestClocksThatAreOff(t *testing.T) {
	timers := holdfast.Timers{RequestTimeout: -1, RequestMax: -1}
	f := &farm{tools: map[string]func(*fakeCall){"forever": func(c *fakeCall) {
		c.pause(30 * time.Hour)
		c.reply(`{"structuredContent":"done"}`)
	}}}
	virtually(t, setup{farm: f, options: holdfast.Options{Timers: timers}}, func(t *testing.T, b *bench) {
		c := b.streamable(v11)
		c.send(toolCall("1", "forever", `{}`, ""))
		<-time.After(30*time.Hour + time.Second)
		if got := c.find(done); len(got) != 1 || !strings.Contains(got[0].raw, `"id":1`) {
			t.Errorf("answered with %v", got)
		}
		wantCancels(t, f)
	})
}
