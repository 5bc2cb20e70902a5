package holdfast_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Cases of kind c: progress, cancellation, and what a closed connection means.

// raw returns a member of a line.
func raw(line string, f jsonrpc.Field) string {
	m, _ := jsonrpc.Parse([]byte(line))
	return string(m.Raw(f))
}

// reporting is a tool whose reports of progress are its arguments' who. They go
// under the token that it was given, be that the gateway's own.
func reporting() *farm {
	return &farm{tools: map[string]func(*fakeCall){"report": func(c *fakeCall) {
		for range 3 {
			c.pause(100 * time.Millisecond)
			c.progress(`"progress":1,"message":` + c.args)
		}
		c.k.line(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":424242,"progress":1,"message":"unknown"}}`)
		c.reply(`{"structuredContent":` + c.args + `}`)
		c.progress(`"progress":2,"message":"late"`)
	}}}
}

// C12, and (iii) of C11: a call is reported to who asked for it, and one whose
// client did not ask to the gateway alone.
func TestC12ProgressTokens(t *testing.T) {
	for _, isolation := range []holdfast.Isolation{holdfast.PerSession, holdfast.Shared} {
		t.Run(string(isolation), func(t *testing.T) {
			f := reporting()
			o := holdfast.Options{Server: holdfast.Server{Isolation: isolation}}
			virtually(t, setup{options: o, farm: f}, func(t *testing.T, b *bench) {
				type caller struct {
					c     *client
					token string
				}
				callers := map[string]caller{
					"A": {b.streamable(v11), `1`}, "B": {b.streamable(v06), `1`}, "C": {b.legacy(v2024), `"1"`}, "D": {b.piped(v03), `1e0`},
					"E": {b.streamable(v11), ""}, "F": {b.streamable(v11), `"\u0031"`}, "G": {b.legacy(v06), ""}, "H": {b.piped(v11), ""},
				}
				posts := map[string]*stream{}
				for who, p := range callers {
					if who == "A" || who == "E" {
						p.c.listen("/mcp", "") // must not draw the reports away
					}
					meta := ""
					if p.token != "" {
						meta = `{"progressToken":` + p.token + `}`
					}
					posts[who] = p.c.send(toolCall(`7`, "report", `"`+who+`"`, meta))
				}
				for who, p := range callers {
					if got := p.c.answer(`7`); !strings.Contains(got, `"`+who+`"`) {
						t.Errorf("%s was answered with %s", who, got)
					}
					if p.c.endpoint == "" && p.c.pipe == nil {
						posts[who].done()
					}
				}
				<-time.After(time.Second)
				for who, p := range callers {
					want := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1,"message":%q}}`, p.token, who)
					got := p.c.find("notifications/progress")
					if n := len(got); n != 3 && p.token != "" || n != 0 && p.token == "" {
						t.Errorf("%s: %d reports", who, n)
					}
					for _, r := range got {
						if r.raw != want || p.c.main == nil && r.via != posts[who] {
							t.Errorf("%s received %s, on its call's stream: %v", who, r.raw, r.via == posts[who])
						}
					}
				}
				wantDistinctTokens(t, f, len(callers))
				for who, p := range callers {
					if p.token == "" {
						wantParams(t, f.told(`"` + who + `"`)[0], `{"name":"report","arguments":"`+who+`"}`, "")
					}
				}
			})
		})
	}
}

// wantDistinctTokens holds that each of so many calls has a token, and that no
// server was given one twice.
func wantDistinctTokens(t *testing.T, f *farm, calls int) {
	t.Helper()
	for _, k := range f.all() {
		seen := map[string]bool{}
		for _, line := range k.told("tools/call") {
			token := raw(line, jsonrpc.MetaToken)
			if seen[token] || token == "" {
				t.Errorf("a server was given token %s: %s", token, line)
			}
			seen[token] = true
			calls--
		}
	}
	if calls != 0 {
		t.Errorf("%d calls less than were made", calls)
	}
}

// The same for the stateless era, whose calls may outlive their client's stream
// by a key: then, too, the server is asked, and the client not told.
func TestC12ProgressNobodyAskedForStateless(t *testing.T) {
	for name, farmOf := range eras {
		for binding, connect := range newcomers {
			for _, key := range []string{"", `"dev.holdfast/idempotencyKey":"k"`} {
				t.Run(fmt.Sprint(name, ", ", binding, " ", key), func(t *testing.T) {
					f := farmOf()
					f.tools = reporting().tools
					virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
						c := connect(b)
						if got := c.askModern(modernCall("7", "report", `"E"`, key)); !strings.Contains(got, `"structuredContent":"E"`) {
							t.Errorf("answered with %s", got)
						}
						<-time.After(time.Second)
						if got := c.find("notifications/progress"); len(got) > 0 {
							t.Errorf("the client received %s", got[0].raw)
						}
						wantDistinctTokens(t, f, 1)
					})
				})
			}
		}
	}
}

func TestC14CancelReachesTheCallAndNothingElse(t *testing.T) {
	for name, open := range bindings {
		t.Run(name, func(t *testing.T) {
			f := &farm{}
			virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
				c, other := open(b, v06), b.streamable(v11)
				for i := range 3 { // so that ids differ on both sides
					c.ask(body(fmt.Sprint(i), "tools/list", ""))
				}
				other.send(toolCall("101", "sleep", `{"ms":3000,"n":"other"}`, "")).open()
				c.send(toolCall("101", "sleep", `{"ms":3000,"n":"first"}`, ""))
				c.send(toolCall("102", "sleep", `{"ms":3000,"n":"second"}`, ""))
				b.within(bound, "both calls", func() bool { return len(f.told("tools/call")) == 3 })
				cancel := func(id string) {
					s := c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":"<stop>"}}`)
					if s.done(); name != "stdio" && (s.status != http.StatusAccepted || len(s.body) > 0) {
						t.Errorf("the cancellation was answered with %d %s", s.status, s.body)
					}
				}
				begin := time.Now()
				for _, wrong := range []string{`"101"`, `1`, `999`, `1.01e2`, `"hello"`, `null`} {
					cancel(wrong) // names no call that runs
				}
				cancel(`101`)
				up := raw(f.told(`"first"`)[0], jsonrpc.ID)
				b.within(100*time.Millisecond, "the cancellation at the server", func() bool { return len(f.told("notifications/cancelled")) > 0 })
				if d := time.Since(begin); d > 100*time.Millisecond {
					t.Errorf("it took %v", d)
				}
				want := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + up + `,"reason":"<stop>"}}`
				if got := f.told("notifications/cancelled"); len(got) != 1 || got[0] != want {
					t.Errorf("the servers were told %q, want %s", got, want)
				}
				if up == raw(f.told(`"other"`)[0], jsonrpc.ID) {
					t.Fatal("the test cannot tell the servers apart")
				}
				wantCancelled(t, c, name)
				for who, got := range map[string]string{"102": c.answer("102"), "other": other.answer("101")} {
					if !strings.Contains(got, "slept") {
						t.Errorf("%s was answered with %s", who, got)
					}
				}
				cancel(`102`) // too late: it is answered, and the server hears nothing
				c.ask(toolCall("103", "echo", `{}`, ""))
				if got := f.told("notifications/cancelled"); len(got) != 1 || f.alive() != 3 {
					t.Errorf("the servers were told %q; %d live", got, f.alive())
				}
			})
		})
	}
}

// wantCancelled holds what becomes of the cancelled call 101: a POST must end
// with an answer, anywhere else none is due. The server answers late (C15 is
// the same seen from our own client); that goes nowhere.
func wantCancelled(t *testing.T, c *client, binding string) {
	t.Helper()
	if binding != "streamable" {
		c.waive("101")
		return
	}
	if got := c.answer("101"); !strings.Contains(got, `"code":-32800`) {
		t.Errorf("the cancelled call was answered with %s", got)
	}
}

// A server that does not read: the cancellation waits for it, not the client.
func TestC14CancelDoesNotWaitForTheServer(t *testing.T) {
	f := &farm{methods: map[string]func(*fake, *jsonrpc.Message){"x/stuck": func(k *fake, _ *jsonrpc.Message) {
		select {
		case <-time.After(5 * time.Second):
		case <-k.ctx.Done():
		}
	}}}
	virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
		c := b.streamable(v11)
		c.send(toolCall("1", "sleep", `{"ms":10000}`, "")).open()
		c.send(`{"jsonrpc":"2.0","method":"x/stuck"}`).done()
		begin := time.Now()
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`).done()
		c.answer("1")
		c.ask(body("2", "ping", ""))
		if d := time.Since(begin); d > 100*time.Millisecond {
			t.Errorf("it took %v", d)
		}
		b.within(bound, "the cancellation at the server", func() bool { return len(f.told("notifications/cancelled")) == 1 })
	})
}

// C16 (i), the sessions of Streamable HTTP: a drop is no cancel. The stateless
// requests of (ii), where it is one, are with the other stateless cases.
func TestC16DropIsNoCancel(t *testing.T) {
	for _, version := range []string{v03, v06, v11} {
		t.Run(version, func(t *testing.T) {
			f := &farm{tools: map[string]func(*fakeCall){"job": func(c *fakeCall) {
				c.pause(500 * time.Millisecond)
				c.progress(`"progress":1`) // gives the older revisions an id to come back with
				c.pause(2500 * time.Millisecond)
				c.progress(`"progress":2`)
				c.reply(`{"structuredContent":"done"}`)
			}}}
			virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
				c := b.streamable(version)
				s := c.send(toolCall("1", "job", `{}`, `{"progressToken":1}`)).open()
				<-time.After(time.Second)
				s.cut()
				s.done()
				<-time.After(10 * time.Second) // it ends meanwhile
				if got := f.told("notifications/cancelled"); len(got) > 0 {
					t.Errorf("the server was told %q", got)
				}
				again := c.listen("/mcp", s.position())
				if got := c.answer("1"); !strings.Contains(got, "done") {
					t.Errorf("answered with %s", got)
				}
				again.done() // a POST's stream ends with its answer, whoever reads it
				if got := c.find("notifications/progress"); len(got) != 2 || got[1].via != again {
					t.Errorf("%d reports", len(got))
				}
				empty := c.listen("/mcp", again.position()) // nothing twice
				empty.done()
				if len(empty.events) > 1 || f.executed()["job"] != 1 {
					t.Errorf("replayed again: %v; ran %d times", empty.events, f.executed()["job"])
				}
			})
		})
	}
}

// C16 (iii), HTTP+SSE: the same within the grace, and a cancel after it.
func TestC16DropOverSSE(t *testing.T) {
	o := holdfast.Options{Timers: holdfast.Timers{ReconnectGrace: 5 * time.Second, SessionTimeout: time.Hour}}
	for name, back := range map[string]bool{"comes back": true, "stays away": false} {
		t.Run(name, func(t *testing.T) {
			f := &farm{}
			virtually(t, setup{options: o, farm: f}, func(t *testing.T, b *bench) {
				c := b.legacy(v2024)
				c.ask(body("0", "tools/list", ""))
				c.send(toolCall("1", "sleep", `{"ms":3000}`, ""))
				c.send(toolCall("2", "sleep", `{"ms":60000}`, ""))
				<-time.After(time.Second)
				first := c.main
				first.cut()
				<-time.After(3500 * time.Millisecond)
				if got := f.told("notifications/cancelled"); len(got) > 0 {
					t.Errorf("within the grace, the server was told %q", got)
				}
				if back {
					c.listen("/sse", first.position())
					for _, id := range []string{"1", "2"} {
						if got := c.answer(id); !strings.Contains(got, "slept") {
							t.Errorf("answered with %s", got)
						}
					}
					return
				}
				<-time.After(6 * time.Second)
				want := raw(f.told(`60000`)[0], jsonrpc.ID)
				got := f.told("notifications/cancelled")
				if len(got) != 1 || raw(got[0], jsonrpc.RequestID) != want {
					t.Errorf("after the grace, the servers were told %q, want a cancellation of %s", got, want)
				}
				c.waive("1")
				c.waive("2")
			})
		})
	}
}

// C18: a server that starts slower than its client waits. One start is shared
// by the tries; that it is "starting" shows once there is a dashboard.
func TestC18ColdStartIsWaitedForOnce(t *testing.T) {
	for _, binding := range []string{"/mcp", "/sse"} {
		for _, warm := range []int{-1, 1} {
			for _, pause := range []time.Duration{0, 100 * time.Millisecond} {
				t.Run(fmt.Sprint(binding, " warm ", warm, " pause ", pause), func(t *testing.T) {
					f := &farm{born: func(k *fake) {
						select {
						case <-time.After(4 * time.Second):
						case <-k.ctx.Done():
						}
					}}
					o := holdfast.Options{Server: holdfast.Server{Warm: warm}}
					virtually(t, setup{options: o, farm: f}, func(t *testing.T, b *bench) { testColdStart(t, b, binding, pause) })
				})
			}
		}
	}
}

// testColdStart gives up after 1.5 s, and tries three more times.
func testColdStart(t *testing.T, b *bench, binding string, pause time.Duration) {
	c := b.client()
	answered := ""
	for try := 0; try < 4 && answered == ""; try++ {
		id := fmt.Sprintf(`"try %d"`, try)
		var s *stream
		if binding == "/sse" {
			s = c.listen("/sse", "")
			c.send(hello(id, v06, "{}"))
		} else {
			s = c.send(hello(id, v06, "{}"))
		}
		<-time.After(1500 * time.Millisecond)
		if len(c.find(id, `"result"`)) > 0 {
			answered = id
			if id := s.open().header.Get("Mcp-Session-Id"); id != "" {
				c.header.Set("Mcp-Session-Id", id)
			}
			break
		}
		c.waive(id)
		s.cut()
		<-time.After(pause)
	}
	if answered == "" {
		t.Fatal("no try was answered by a server that needs 4 s")
	}
	c.send(initialized)
	c.ask(toolCall("1", "echo", `{}`, ""))
	if got := b.farm.told("notifications/initialized"); len(got) != 1 {
		t.Errorf("the server was told %q", got)
	}
	if n := len(b.farm.told(`"initialize"`)); n != 1 && pause > 0 { // without a pause it may look like two clients
		t.Errorf("%d servers were initialized", n)
	}
	if got := b.farm.told("notifications/cancelled"); len(got) > 0 {
		t.Errorf("the server was told %q", got)
	}
	if slices.ContainsFunc(b.farm.all(), (*fake).gone) {
		t.Error("a starting server was ended")
	}
}

// Two clients that look alike and both wait have a server each.
func TestC18ClientsThatWaitAreNotMixed(t *testing.T) {
	for _, binding := range []string{"/mcp", "/sse"} {
		t.Run(binding, func(t *testing.T) {
			f := &farm{born: func(*fake) { <-time.After(4 * time.Second) }}
			virtually(t, setup{options: holdfast.Options{Server: holdfast.Server{Warm: -1}}, farm: f}, func(t *testing.T, b *bench) {
				clients, streams := []*client{b.client(), b.client()}, []*stream{}
				for _, c := range clients {
					if binding == "/sse" {
						c.listen("/sse", "")
					}
					streams = append(streams, c.send(hello("0", v06, "{}")))
					<-time.After(time.Second)
				}
				for i, c := range clients {
					c.answer("0")
					if binding == "/mcp" {
						c.header.Set("Mcp-Session-Id", streams[i].open().header.Get("Mcp-Session-Id"))
					}
					c.ask(toolCall("1", "echo", fmt.Sprintf(`{"of":%d}`, i), ""))
				}
				for i, k := range f.all() {
					if got := k.told("tools/call"); len(got) != 1 || !strings.Contains(got[0], fmt.Sprintf(`{"of":%d}`, i)) {
						t.Errorf("server %d was told %q", i, k.told())
					}
				}
				if n := len(f.all()); n != 2 {
					t.Errorf("%d servers", n)
				}
			})
		})
	}
}
