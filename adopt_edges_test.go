package holdfast_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Adoption where more than one thing happens at once.

// A call of 20 s behind a path that cuts every 3 s, for a client that knows
// nothing of resuming.
func TestAdoptAgainAndAgain(t *testing.T) {
	f := &farm{tools: map[string]func(*fakeCall){"job": func(c *fakeCall) {
		for i := range 20 {
			c.pause(time.Second)
			c.progress(fmt.Sprintf(`"progress":%d`, i+1))
		}
		c.reply(`{"structuredContent":"done"}`)
	}}}
	for _, isolation := range []holdfast.Isolation{holdfast.PerSession, holdfast.Shared} {
		t.Run(string(isolation), func(t *testing.T) {
			o := holdfast.Options{Server: holdfast.Server{Isolation: isolation}}
			overHTTP(t, setup{farm: f, options: o}, func(t *testing.T, b *bench, open func() *client) {
				var c *client
				for i := range 7 {
					if c = open(); i == 0 {
						c.ask(body("0", "tools/list", ""))
					}
					s := c.send(job("1", args))
					if i < 6 {
						<-time.After(2900 * time.Millisecond)
						c.lose(s, "1")
						<-time.After(100 * time.Millisecond)
					}
				}
				wantAnswer(t, c.answer("1"), done, adopted)
				var all []string
				for i := range 20 {
					all = append(all, fmt.Sprint(i+1))
				}
				wantProgress(t, c, `"t1"`, all...)
				wantExecuted(t, f, "job", 1)
				wantCancels(t, f)
			})
		})
	}
}

// Two equal calls that are lost both are two, and so are those that join them.
func TestAdoptTwoEqualCalls(t *testing.T) {
	overHTTP(t, setup{farm: jobs()}, func(t *testing.T, b *bench, open func() *client) {
		old := open()
		one, two := old.send(job("1", args)), old.send(job("2", args))
		b.within(bound, "both", func() bool { return b.farm.executed()["job"] == 2 })
		old.lose(one, "1")
		old.lose(two, "2")
		<-time.After(100 * time.Millisecond)
		c := open()
		for _, id := range []string{"3", "4", "5"} {
			c.send(job(id, args))
			<-time.After(10 * time.Millisecond)
		}
		for id, mark := range map[string]string{"3": adopted, "4": adopted, "5": "!adopted"} {
			wantAnswer(t, c.answer(id), done, mark)
			wantProgress(t, c, `"t`+id+`"`, "1", "2")
		}
		wantExecuted(t, b.farm, "job", 3)
	})
}

// The server dies, or takes too long, while a call is with its second client:
// that one is told, once.
func TestAdoptedCallsThatFail(t *testing.T) {
	for how, want := range map[string][]string{
		"it dies": {`"code":-32603`, `"outcome":"unknown"`}, "it is late": {`"code":-32001`, "--request-timeout", `"outcome":"unknown"`},
		"it refuses": {`"code":-32000`, "no luck", "!adopted"},
	} {
		t.Run(how, func(t *testing.T) {
			f := &farm{tools: map[string]func(*fakeCall){"job": func(c *fakeCall) {
				switch c.pause(5 * time.Second); how {
				case "it dies":
					_ = c.k.w.(io.Closer).Close()
				case "it refuses":
					c.k.line(`{"jsonrpc":"2.0","id":` + c.id + `,"error":{"code":-32000,"message":"no luck"}}`)
				case "it is late":
					c.pause(time.Minute)
					c.reply(`{}`)
				}
			}}}
			o := holdfast.Options{Timers: holdfast.Timers{RequestTimeout: 10 * time.Second}}
			overHTTP(t, setup{farm: f, options: o}, func(t *testing.T, b *bench, open func() *client) {
				old := open()
				old.lose(old.send(job("1", args)), "1")
				<-time.After(100 * time.Millisecond)
				c := open()
				wantAnswer(t, c.ask(job("2", args)), want...)
				wantExecuted(t, f, "job", 1)
				<-time.After(2 * time.Minute)
				if n := len(f.told("notifications/cancelled")); n > 1 || n == 1 && how != "it is late" {
					t.Errorf("%d cancellations", n)
				}
			})
		})
	}
}

// What reads a resource or gets a prompt is joined like a tool's call; lists are
// asked for anew.
func TestAdoptOfOtherMethods(t *testing.T) {
	for _, tt := range []struct {
		method, params string
		runs           int
	}{
		{"resources/read", `{"uri":"x://1"}`, 1}, {"prompts/get", `{"name":"p","arguments":{"a":"b"}}`, 1}, {"tools/list", `{}`, 2}, {"x/any", `{}`, 2},
	} {
		t.Run(tt.method, func(t *testing.T) {
			f := &farm{methods: map[string]func(*fake, *jsonrpc.Message){tt.method: func(k *fake, m *jsonrpc.Message) {
				id := string(m.Raw(jsonrpc.ID))
				k.wg.Go(func() { // ends with the server
					select {
					case <-time.After(3 * time.Second):
						k.reply(id, `{"structuredContent":"done","_meta":{"a":1}}`)
					case <-k.ctx.Done():
					}
				})
			}}}
			overHTTP(t, setup{farm: f}, func(t *testing.T, b *bench, open func() *client) {
				old := open()
				old.lose(old.send(body("1", tt.method, tt.params)), "1")
				<-time.After(100 * time.Millisecond)
				got := open().ask(body("2", tt.method, tt.params))
				wantAnswer(t, got, done, `"a":1`)
				if strings.Contains(got, adopted) != (tt.runs == 1) {
					t.Errorf("answered with %s", got)
				}
				if n := len(f.told(`"method":"` + tt.method + `"`)); n != tt.runs {
					t.Errorf("asked %d times, want %d", n, tt.runs)
				}
			})
		})
	}
}

// A client over HTTP+SSE that posts while its stream is broken, and does not
// come back, has not taken the call away from who does.
func TestAdoptByWhoIsGone(t *testing.T) {
	for name, wait := range map[string]time.Duration{"running": 0, "ended": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			virtually(t, setup{farm: jobs()}, func(t *testing.T, b *bench) {
				old, middle := b.legacy(v11), b.legacy(v11)
				old.lose(old.send(job("1", args)), "1")
				<-time.After(wait)
				middle.main.cut()
				middle.main.done()
				<-time.After(100 * time.Millisecond)
				middle.send(job("2", args)).done()
				middle.waive("2")
				<-time.After(time.Second)
				c := b.legacy(v11)
				wantAnswer(t, c.ask(job("3", args)), done, adopted)
				wantExecuted(t, b.farm, "job", 1)
			})
		})
	}
}

// One of two who wait under a key is silent; who comes third does not push the
// other one out.
func TestKeySilentFollower(t *testing.T) {
	f := &farm{tools: map[string]func(*fakeCall){"job": func(c *fakeCall) {
		c.pause(time.Minute)
		c.reply(`{"structuredContent":"done"}`)
	}}}
	timers := holdfast.Timers{PingInterval: 2 * time.Second, PingTimeout: time.Second}
	overHTTP(t, setup{farm: f, options: holdfast.Options{Timers: timers}}, func(t *testing.T, b *bench, open func() *client) {
		first, second, third := open(), open(), open()
		first.send(job("1", args), "Idempotency-Key", "k")
		<-time.After(100 * time.Millisecond)
		second.send(job("2", args), "Idempotency-Key", "k")
		stop := first.answerPings(`"result":{}`)
		defer stop()
		quiet := second.answerPings(`"result":{}`)
		<-time.After(10 * time.Second)
		quiet()
		<-time.After(10 * time.Second)
		third.send(job("3", args), "Idempotency-Key", "k")
		wantAnswer(t, first.answer("1"), done, "!adopted")
		wantAnswer(t, third.answer("3"), done, adopted)
		wantAnswer(t, second.answer("2"), done, adopted)
		wantExecuted(t, f, "job", 1)
	})
}

// A question that names no call, of a server whose calls were all taken over by
// one client, reaches that one.
func TestAdoptWithAQuestionOfNoCall(t *testing.T) {
	f := &farm{tools: map[string]func(*fakeCall){"job": func(c *fakeCall) {
		c.pause(3 * time.Second)
		id := `"q` + c.id + `"`
		c.k.line(`{"jsonrpc":"2.0","id":` + id + `,"method":"elicitation/create","params":{"message":"who?","requestedSchema":{"type":"object"}}}`)
		for len(c.k.told(`"id":`+id)) == 0 && c.pause(10*time.Millisecond) {
		}
		c.reply(`{"structuredContent":"done"}`)
	}}}
	virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
		open := func() *client {
			c := b.client()
			c.listen("/sse", "")
			c.handshake(v11, `{"elicitation":{}}`)
			return c
		}
		old := open()
		old.send(job("1", args)).done()
		old.lose(old.send(job("2", otherArgs)).done(), "2")
		old.waive("1")
		<-time.After(100 * time.Millisecond)
		c := open()
		c.send(job("3", otherArgs))
		c.send(job("4", args))
		b.within(bound, "both questions", func() bool { return len(c.find("elicitation/create")) == 2 })
		for _, q := range c.find("elicitation/create") {
			c.send(`{"jsonrpc":"2.0","id":` + raw(q.raw, jsonrpc.ID) + `,"result":{"action":"decline"}}`).done()
		}
		for _, id := range []string{"3", "4"} {
			wantAnswer(t, c.answer(id), done, adopted)
		}
		wantExecuted(t, f, "job", 2)
	})
}
