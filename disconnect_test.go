package holdfast_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// What becomes of a call that nobody reads: on_disconnect and the orphan grace.

// long makes servers with a tool of 100 s that reports at once.
func long() *farm {
	return &farm{tools: map[string]func(*fakeCall){"job": func(c *fakeCall) {
		c.pause(500 * time.Millisecond)
		c.progress(`"progress":1`)
		c.pause(100 * time.Second)
		c.reply(`{"structuredContent":"done"}`)
	}}}
}

const grace = 30 * time.Second

// ruled are the rules of that tool, and when its call is cancelled in each era;
// 0 for at once, negative for never.
var ruled = map[string]struct {
	rule           holdfast.OnDisconnect
	legacy, modern time.Duration
}{
	"by era": {"", grace, 0},
	"cancel": {holdfast.DisconnectCancel, 0, 0},
	"linger": {holdfast.DisconnectLinger, grace, grace},
	"keep":   {holdfast.DisconnectKeep, -1, -1},
}

// wantCancelledAt holds when the servers are told that the call is over: in so
// long from now, once.
func wantCancelledAt(t *testing.T, f *farm, in time.Duration) {
	t.Helper()
	if in < 0 {
		<-time.After(99 * time.Second)
		wantCancels(t, f)
		return
	}
	if in > 0 {
		<-time.After(in - 100*time.Millisecond)
		wantCancels(t, f)
	}
	<-time.After(200 * time.Millisecond)
	wantCancels(t, f, `"job"`)
	<-time.After(100 * time.Second) // its answer goes nowhere
	wantCancels(t, f, `"job"`)
}

func TestOnDisconnectInTheHandshakeEra(t *testing.T) {
	for name, tt := range ruled {
		t.Run(name, func(t *testing.T) {
			timers := holdfast.Timers{ReconnectGrace: time.Minute, SessionTimeout: time.Hour}
			s := tooled(long(), holdfast.Tool{Name: "job", OnDisconnect: tt.rule, OrphanGrace: grace}, timers)
			overHTTP(t, s, func(t *testing.T, b *bench, open func() *client) {
				c := open()
				c.ask(body("0", "tools/list", ""))
				s := c.send(job("1", args))
				c.await("notifications/progress")
				if c.endpoint != "" {
					s = c.main
				}
				s.cut()
				s.done()
				wantCancelledAt(t, b.farm, tt.legacy)
				if c.endpoint != "" && tt.legacy >= 0 { // its session has ended with its stream
					c.waive("1")
					return
				}
				<-time.After(10 * time.Second)
				path := "/mcp"
				if c.endpoint != "" {
					path = "/sse"
				}
				back := c.listen(path, s.position())
				if tt.legacy < 0 {
					wantAnswer(t, c.answer("1"), done, "!adopted")
				} else {
					wantAnswer(t, c.answer("1"), `"code":-32800`, "nobody read", `"outcome":"unknown"`)
				}
				if c.endpoint == "" {
					back.done()
				}
				wantExecuted(t, b.farm, "job", 1)
			})
		})
	}
}

// Who comes back within the grace stops its clock, as often as it likes.
func TestOrphanGraceBeginsAnew(t *testing.T) {
	s := tooled(long(), holdfast.Tool{Name: "job", OrphanGrace: grace}, holdfast.Timers{})
	overHTTP(t, s, func(t *testing.T, b *bench, open func() *client) {
		c := open()
		s, path := c.send(job("1", args)), "/mcp"
		c.await("notifications/progress")
		if c.endpoint != "" {
			s, path = c.main, "/sse"
		}
		at := s.position()
		for range 3 {
			s.cut()
			s.done()
			<-time.After(grace - time.Second)
			s = c.listen(path, at)
			<-time.After(time.Second)
		}
		wantAnswer(t, c.answer("1"), done)
		wantExecuted(t, b.farm, "job", 1)
		wantCancels(t, b.farm)
	})
}

func TestOnDisconnectInTheStatelessEra(t *testing.T) {
	for name, tt := range ruled {
		for server, methods := range map[string]func() map[string]func(*fake, *jsonrpc.Message){"handshake": func() map[string]func(*fake, *jsonrpc.Message) { return nil }, "stateless": modernOnly} {
			t.Run(name+", "+server, func(t *testing.T) {
				f := long()
				f.methods = methods()
				s := tooled(f, holdfast.Tool{Name: "job", OnDisconnect: tt.rule, OrphanGrace: grace}, holdfast.Timers{})
				virtually(t, s, func(t *testing.T, b *bench) {
					c := b.client()
					c.askModern(modern("0", "tools/list", "", ""))
					s := c.sendModern(modernCall("1", "job", args, `"progressToken":"t1"`))
					c.await("notifications/progress")
					c.lose(s, "1")
					wantCancelledAt(t, f, tt.modern)
					wantExecuted(t, f, "job", 1)
				})
			})
		}
	}
}

// What lingers is joined by an equal call of the same client, on this machine.
func TestLingeringCallsAreJoined(t *testing.T) {
	for name, tt := range map[string]struct {
		meta   string // of the second call
		header []string
		joins  bool
	}{
		"the same":        {`,"io.modelcontextprotocol/clientInfo":{"version":"1","name":"x"}`, nil, true},
		"another client":  {`,"io.modelcontextprotocol/clientInfo":{"version":"1","name":"y"}`, nil, false},
		"through a proxy": {`,"io.modelcontextprotocol/clientInfo":{"version":"1","name":"x"}`, []string{"X-Forwarded-For", "127.0.0.1"}, false},
	} {
		for _, rule := range []holdfast.OnDisconnect{holdfast.DisconnectLinger, holdfast.DisconnectKeep} {
			t.Run(name+", "+string(rule), func(t *testing.T) {
				s := tooled(long(), holdfast.Tool{Name: "*", OnDisconnect: rule}, holdfast.Timers{})
				virtually(t, s, func(t *testing.T, b *bench) {
					c := b.client()
					const info = `,"io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"}`
					first := c.sendModern(modernCall("1", "job", args, `"progressToken":"t1"`+info))
					c.await("notifications/progress")
					c.sendModern(modernCall(`"twin"`, "job", args, `"progressToken":"ttwin"`+info)) // its caller is there
					b.within(bound, "both calls", func() bool { return b.farm.executed()["job"] == 2 })
					c.lose(first, "1")
					<-time.After(10 * time.Second)
					c.sendModern(modernCall("2", "job", sameArgs, `"progressToken":"t2"`+tt.meta), tt.header...)
					mark, runs := "!adopted", 3
					if tt.joins {
						mark, runs = adopted, 2
					}
					wantAnswer(t, c.answer("2"), done, mark)
					wantAnswer(t, c.answer(`"twin"`), done, "!adopted")
					wantProgress(t, c, `"t2"`, "1")
					wantExecuted(t, b.farm, "job", runs)
				})
			})
		}
	}
}

// The end of a session ends its calls at once, once, whatever the rule.
func TestDeleteCancels(t *testing.T) {
	for name, tt := range ruled {
		t.Run(name, func(t *testing.T) {
			s := tooled(long(), holdfast.Tool{Name: "job", OnDisconnect: tt.rule}, holdfast.Timers{})
			s.options.Servers[0].Isolation = holdfast.Shared // so that the server lives on to be told
			virtually(t, s, func(t *testing.T, b *bench) {
				c, other := b.streamable(v11), b.streamable(v06)
				c.ask(body("0", "tools/list", ""))
				read := c.send(job("1", args))
				c.await("notifications/progress")
				if s := c.do(http.MethodDelete, "/mcp", "").done(); s.status != http.StatusNoContent {
					t.Errorf("answered with %d", s.status)
				}
				wantAnswer(t, c.answer("1"), `"code":-32000`, `"outcome":"unknown"`)
				read.done()
				<-time.After(100 * time.Millisecond)
				wantCancels(t, b.farm, `"job"`)
				<-time.After(2 * time.Minute)
				wantCancels(t, b.farm, `"job"`)
				wantAnswer(t, other.ask(job("1", args)), done, "!adopted")
				wantExecuted(t, b.farm, "job", 2)
				if n := len(b.farm.all()); n != 1 || b.farm.alive() != 1 {
					t.Errorf("%d servers were started", n)
				}
			})
		})
	}
}

// An answer that nobody has read is kept for its time, from its end on.
func TestUnreadAnswersAreKeptForAWhile(t *testing.T) {
	for name, tt := range map[string]struct {
		back time.Duration
		kept bool
	}{"in time": {4*time.Minute + 55*time.Second, true}, "too late": {5*time.Minute + 5*time.Second, false}} {
		for _, version := range []string{v03, v06, v11} {
			t.Run(name+" "+version, func(t *testing.T) {
				o := holdfast.Options{Timers: holdfast.Timers{ResultTTL: 5 * time.Minute, SessionTimeout: time.Hour}}
				virtually(t, setup{farm: jobs(), options: o}, func(t *testing.T, b *bench) {
					c := b.streamable(version)
					s := c.send(job("1", args))
					c.await("notifications/progress")
					s.cut()
					s.done()
					<-time.After(2500*time.Millisecond + tt.back)
					back := c.listen("/mcp", s.position()).done()
					if !tt.kept { // it is told that there was something, and that it is no longer there
						c.waive("1")
						if back.status != http.StatusOK || len(c.find("no longer retained")) != 1 {
							t.Errorf("answered with %d %s", back.status, back.bytes())
						}
						return
					}
					wantAnswer(t, c.answer("1"), done, "!adopted")
					wantProgress(t, c, `"t1"`, "1", "2")
					wantExecuted(t, b.farm, "job", 1)
				})
			})
		}
	}
}
