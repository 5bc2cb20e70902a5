package holdfast_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Cases of kind l, and the others that the stateless binding touches. How a
// remote server over HTTP is probed (C66 and C67: bare statuses, 401, 5xx) waits
// for remote servers; here they are processes.

// modernOnly are the methods of a server that speaks the stateless era only.
func modernOnly() map[string]func(*fake, *jsonrpc.Message) {
	refuse := func(k *fake, m *jsonrpc.Message) {
		k.line(`{"jsonrpc":"2.0","id":` + string(m.Raw(jsonrpc.ID)) + `,"error":{"code":-32602,"message":"params._meta names no version"}}`)
	}
	methods := map[string]func(*fake, *jsonrpc.Message){
		"initialize": refuse, "ping": refuse, "logging/setLevel": refuse, "resources/subscribe": refuse,
		"server/discover": func(k *fake, m *jsonrpc.Message) { k.reply(string(m.Raw(jsonrpc.ID)), discoverResult) },
		"tools/list": func(k *fake, m *jsonrpc.Message) {
			k.reply(string(m.Raw(jsonrpc.ID)), `{"resultType":"complete","tools":[],"ttlMs":60000,"cacheScope":"public"}`)
		},
		"subscriptions/listen": func(k *fake, m *jsonrpc.Message) {
			k.line(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":` +
				string(jsonrpc.Get(m.Raw(jsonrpc.Params), "notifications")) + `,"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(m.Raw(jsonrpc.ID)) + `}}}`)
		},
	}
	return methods
}

const discoverResult = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}},` +
	`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"new-kid","version":"2"}},"ttlMs":60000,"cacheScope":"public"}`

// eras are servers of either era.
var eras = map[string]func() *farm{
	"handshake": func() *farm { return &farm{} },
	"stateless": func() *farm { return &farm{methods: modernOnly()} },
}

// C16 (ii), and Must show 4: closing the stream of a stateless request cancels
// it at the server, within 100 ms and under the server's own id; nothing is sent
// for it any more. A session's call on the same endpoint goes on (C16 (i)).
func TestC16ClosingAStatelessStreamCancels(t *testing.T) {
	for name, farmOf := range eras {
		for what, how := range map[string][]string{"stream": nil, "JSON": {"Accept", "application/json"}} {
			t.Run(name+", "+what, func(t *testing.T) {
				f := farmOf()
				f.tools = map[string]func(*fakeCall){"work": func(c *fakeCall) {
					for range 4 {
						if !c.pause(time.Second) {
							return
						}
						c.progress(`"progress":1`) // cancelled or not
					}
					c.reply(`{"content":[]}`)
				}}
				virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
					old, c := b.streamable(v11), b.client()
					c.askModern(modern("1", "tools/list", "", ""))
					kept := old.send(toolCall("101", "work", `{"who":"old"}`, `{"progressToken":1}`))
					s := c.sendModern(modernCall("101", "work", `{"who":"young"}`, `"progressToken":"tok"`), how...)
					c.waive("101")
					b.within(bound, "both calls", func() bool { return len(f.told(`"work"`)) == 2 })
					<-time.After(1500 * time.Millisecond)
					up := raw(f.told(`"young"`)[0], jsonrpc.ID)
					s.cut()
					kept.cut()
					b.within(100*time.Millisecond, "the cancellation at the server", func() bool { return len(f.told("notifications/cancelled")) > 0 })
					<-time.After(10 * time.Second)
					got := f.told("notifications/cancelled")
					if len(got) != 1 || raw(got[0], jsonrpc.RequestID) != up {
						t.Errorf("the servers were told %q, want one for %s", got, up)
					}
					if n := len(c.find("notifications/progress")); n > 1 {
						t.Errorf("%d reports", n)
					}
					old.listen("/mcp", kept.lastEvent()).done() // the session's call went on
					if got := old.answer("101"); !strings.Contains(got, `"result":`) {
						t.Errorf("the session's call was answered %s", got)
					}
				})
			})
		}
	}
}

// lastEvent is the id of the last event that came.
func (s *stream) lastEvent() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastID
}

// judged asks what a server speaks, by a call of the stateless era, and holds
// that it is answered and that the verdict is kept.
func judged(t *testing.T, b *bench, f *farm, stateless bool) {
	t.Helper()
	c := b.client()
	for i := range 3 {
		got := c.askModern(modernCall(fmt.Sprint(i), "echo", `{"n":1.0}`, ""))
		if !strings.Contains(got, `"structuredContent":{"n":1.0}`) {
			t.Fatalf("call %d was answered %s", i, got)
		}
	}
	if n := len(f.told("server/discover")); n != 1 {
		t.Errorf("the servers were probed %d times", n)
	}
	calls := f.told("tools/call")
	if len(calls) != 3 {
		t.Fatalf("%d calls", len(calls))
	}
	for _, line := range calls {
		if strings.Contains(line, "io.modelcontextprotocol/protocolVersion") != stateless {
			t.Errorf("stateless: %v, yet the server was sent %s", stateless, line)
		}
	}
}

// silent ignores a method.
func silent(*fake, *jsonrpc.Message) {}

// C65. The probe meets silence, an exit, a slow start, and a late answer.
func TestC65Probe(t *testing.T) {
	type methods = map[string]func(*fake, *jsonrpc.Message)
	late := func(after time.Duration) func(*fake, *jsonrpc.Message) {
		return func(k *fake, m *jsonrpc.Message) {
			id := string(m.Raw(jsonrpc.ID))
			k.wg.Go(func() {
				select {
				case <-time.After(after):
					k.reply(id, discoverResult)
				case <-k.ctx.Done():
				}
			})
		}
	}
	exit := func(k *fake, _ *jsonrpc.Message) { _ = k.w.(io.Closer).Close() }
	slow := func(k *fake) { <-time.After(7 * time.Second) }
	for name, tt := range map[string]struct {
		methods   methods
		born      func(*fake)
		stateless bool
	}{
		"(i) it ignores the probe":         {methods{"server/discover": silent}, nil, false},
		"(ii) it exits on it":              {methods{"server/discover": exit}, nil, false},
		"(iii) it starts slowly":           {modernOnly(), slow, true},
		"(iii) it starts slowly, and old":  {nil, slow, false},
		"(iv) it answers late":             {methods{"server/discover": late(3 * time.Second)}, nil, false},
		"it refuses":                       {nil, nil, false},
		"it refuses initialize, too late":  {modernOnly(), nil, true},
		"it answers, though not very soon": {methods{"server/discover": late(1500 * time.Millisecond)}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := &farm{methods: tt.methods, born: tt.born}
			virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
				judged(t, b, f, tt.stateless)
				// Whatever the verdict, the older era is served by processes that
				// nobody has talked to.
				old := b.streamable(v11)
				if got := old.ask(toolCall("9", "echo", `{"old":1}`, "")); !strings.Contains(got, `{"old":1}`) {
					t.Errorf("a session's call was answered %s", got)
				}
				for _, k := range f.all() {
					if len(k.told(`"old":1`)) > 0 && len(k.told(`"method":"initialize"`)) > 1 {
						t.Errorf("server %d was greeted twice", k.number)
					}
				}
			})
		})
	}
}

// C66. Whatever an old server answers the probe with, the gateway shakes hands.
func TestC66FallBackOnAnyError(t *testing.T) {
	for _, answer := range []string{
		`"id":ID,"error":{"code":-32601,"message":"no"}`, `"id":ID,"error":{"code":-32602,"message":"no"}`, `"id":ID,"error":{"code":-32600,"message":"no"}`,
		`"id":null,"error":{"code":-32600,"message":"not initialized"}`, `"error":{"code":-32600,"message":"not initialized"}`,
		`"id":ID,"error":{"code":-32000,"message":"no"}`, `"id":ID,"error":{"code":-32603,"message":"no"}`, `"id":ID,"error":{"code":0,"message":""}`,
		`"id":ID,"error":{"code":404,"message":"<html>"}`, `"id":ID,"result":{}`, `"id":ID,"result":null`, `"id":"ID","error":{"code":-32601,"message":"no"}`,
	} {
		t.Run(answer, func(t *testing.T) {
			f := &farm{methods: map[string]func(*fake, *jsonrpc.Message){"server/discover": func(k *fake, m *jsonrpc.Message) {
				k.line(`{"jsonrpc":"2.0",` + strings.ReplaceAll(answer, "ID", string(m.Raw(jsonrpc.ID))) + `}`)
			}}}
			virtually(t, setup{farm: f}, func(t *testing.T, b *bench) { judged(t, b, f, false) })
		})
	}
}

// C67. A verdict that is too hasty makes a new server useless.
func TestC67Verdict(t *testing.T) {
	for answer, stateless := range map[string]bool{
		`"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}`:                                          true, // no resultType means complete
		`"result":{"resultType":"weird","supportedVersions":["2026-07-28"],"capabilities":{}}`:                     false,
		`"error":{"code":-32022,"message":"no","data":{"supported":["2025-11-25"],"requested":"2026-07-28"}}`:      false,
		`"error":{"code":-32021,"message":"no","data":{"requiredCapabilities":{"roots":{}}}}`:                      true,
		`"error":{"code":-32020,"message":"no"}`:                                                                   true,
		`"result":{"supportedVersions":["2025-11-25"],"capabilities":{}}`:                                          false,
		`"result":{"supportedVersions":["2099-01-01","2026-07-28"],"capabilities":{},"resultType":"complete"}`:     true,
		`"error":{"code":401,"message":"unauthorized","data":{"code":-32601,"message":"what is server/discover"}}`: false,
	} {
		t.Run(answer, func(t *testing.T) {
			f := &farm{methods: map[string]func(*fake, *jsonrpc.Message){"server/discover": func(k *fake, m *jsonrpc.Message) {
				k.line(`{"jsonrpc":"2.0","id":` + string(m.Raw(jsonrpc.ID)) + `,` + answer + `}`)
			}}}
			virtually(t, setup{farm: f}, func(t *testing.T, b *bench) { judged(t, b, f, stateless) })
		})
	}
	// It speaks neither what the gateway speaks, nor the handshake: each call
	// says so, and the next one asks again.
	f := &farm{methods: modernOnly()}
	f.methods["server/discover"] = func(k *fake, m *jsonrpc.Message) {
		k.line(`{"jsonrpc":"2.0","id":` + string(m.Raw(jsonrpc.ID)) + `,"error":{"code":-32022,"message":"no","data":{"supported":["2099-01-01"],"requested":"2026-07-28"}}}`)
	}
	virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
		c := b.client()
		for i := range 2 {
			got := c.askModern(modernCall(fmt.Sprint(i), "echo", `{}`, ""))
			if !strings.Contains(got, `"code":-32603`) || !strings.Contains(got, "2099-01-01") || !strings.Contains(got, `"outcome":"not_executed"`) {
				t.Errorf("answered %s", got)
			}
		}
		if n := len(f.told("server/discover")); n < 2 {
			t.Errorf("probed %d times", n)
		}
	})
}

// Stateless traffic over HTTP+SSE and stdio (conformance.md 5.2): everything
// shares one channel, and notifications/cancelled cancels.
func TestStatelessOverSharedChannels(t *testing.T) {
	for name, farmOf := range eras {
		for binding, connect := range newcomers {
			if binding == "mcp" {
				continue
			}
			t.Run(name+", "+binding, func(t *testing.T) {
				f := farmOf()
				f.tools = map[string]func(*fakeCall){"report": func(c *fakeCall) {
					c.progress(`"progress":1`)
					c.reply(`{"content":[]}`)
				}}
				virtually(t, setup{farm: f}, func(t *testing.T, b *bench) { sharedChannel(t, b, f, connect(b)) })
			})
		}
	}
}

func sharedChannel(t *testing.T, b *bench, f *farm, c *client) {
	t.Helper()
	if got := c.askModern(modern(`"d"`, "server/discover", "", "")); !strings.Contains(got, `"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]`) {
		t.Errorf("discover was answered %s", got)
	}
	if got := c.askModern(modern(`"u"`, "no/such", "", "")); !strings.Contains(got, "-32601") {
		t.Errorf("an unknown method was answered %s", got)
	}
	c.askModern(modernCall(`"r"`, "report", `{}`, `"progressToken":"\u0041"`))
	if got := c.find("notifications/progress"); len(got) != 1 || !strings.Contains(got[0].raw, `"progressToken":"\u0041"`) {
		t.Errorf("reported %v", got)
	}
	c.sendModern(modernCall(`7`, "sleep", `{"ms":5000,"n":"first"}`, ""))
	c.sendModern(modernCall(`"7"`, "sleep", `{"ms":5000,"n":"second"}`, ""))
	b.within(bound, "both calls", func() bool { return len(f.told(`"sleep"`)) == 2 })
	c.waive(`7`)
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"enough"}}`).done()
	b.within(100*time.Millisecond, "the cancellation at the server", func() bool { return len(f.told("notifications/cancelled")) == 1 })
	if up := raw(f.told(`"first"`)[0], jsonrpc.ID); raw(f.told("notifications/cancelled")[0], jsonrpc.RequestID) != up {
		t.Errorf("the server was told %q, want %s", f.told("notifications/cancelled"), up)
	}
	if got := c.answer(`"7"`); !strings.Contains(got, "slept") {
		t.Errorf("the other one was answered %s", got)
	}
	// A subscription: told by its id, and cancelled like a call.
	const listens = `"notifications":{"toolsListChanged":true,"resourceSubscriptions":["x://1"]}`
	c.sendModern(modern(`"s"`, "subscriptions/listen", listens, ""))
	c.await("notifications/subscriptions/acknowledged", `"io.modelcontextprotocol/subscriptionId":"s"`)
	c.waive(`"s"`)
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s"}}`).done()
	<-time.After(time.Second)
	if got := c.find(`"id":"s"`); len(got) > 0 {
		t.Errorf("a subscription that was cancelled ended with %v", got)
	}
}

// A subscription ends in order when the gateway stops, on every binding.
func TestStatelessSubscriptionsEndInOrder(t *testing.T) {
	for name, farmOf := range eras {
		for binding, connect := range newcomers {
			t.Run(name+", "+binding, func(t *testing.T) {
				f := farmOf()
				virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
					c := connect(b)
					c.sendModern(modern(`"s"`, "subscriptions/listen", `"notifications":{"toolsListChanged":true}`, ""))
					c.await("notifications/subscriptions/acknowledged")
					begin := time.Now()
					_ = b.g.Stop(t.Context())
					if d := time.Since(begin); d > 5*time.Second {
						t.Errorf("the gateway took %v to stop", d)
					}
					b.within(bound, "the end", func() bool { return len(c.find(`"id":"s"`)) > 0 })
					want := `{"jsonrpc":"2.0","id":"s","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"s"}}}`
					if got := c.find(`"id":"s"`); len(got) != 1 || got[0].raw != want {
						t.Errorf("it ended with %v", got)
					}
				})
			})
		}
	}
}

// A question of an old server to a new client, through all of the gateway.
func TestQuestionsCrossTheEras(t *testing.T) {
	for binding, connect := range newcomers {
		t.Run(binding, func(t *testing.T) {
			f := &farm{tools: map[string]func(*fakeCall){"ask": func(c *fakeCall) {
				c.k.line(`{"jsonrpc":"2.0","id":"q<1>","method":"elicitation/create","params":{"message":"who?","requestedSchema":{"type":"object"}}}`)
				for len(c.k.told(`"id":"q<1>"`)) == 0 {
					if !c.pause(10 * time.Millisecond) {
						return
					}
				}
				answer, _ := jsonrpc.Parse([]byte(c.k.told(`"id":"q<1>"`)[0]))
				c.reply(`{"structuredContent":` + string(answer.Raw(jsonrpc.Result)) + `}`)
			}}}
			virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
				c := connect(b)
				const can = `"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}`
				got := c.askModern(modernCall("1", "ask", `{}`, can))
				m, _ := jsonrpc.Parse([]byte(got))
				requests := jsonrpc.Members(jsonrpc.Get(m.Raw(jsonrpc.Result), "inputRequests"))
				if string(jsonrpc.Get(m.Raw(jsonrpc.Result), "resultType")) != `"input_required"` || len(requests) != 1 || !strings.Contains(got, `"message":"who?"`) {
					t.Fatalf("answered %s", got)
				}
				retry := fmt.Sprintf(`"name":"ask","arguments":{},"inputResponses":{%q:{"action":"accept","content":{"n":1.0}}},"requestState":%s`,
					requests[0].Key, jsonrpc.Get(m.Raw(jsonrpc.Result), "requestState"))
				if got := c.askModern(modern("2", "tools/call", retry, can)); !strings.Contains(got, `"structuredContent":{"action":"accept","content":{"n":1.0}}`) {
					t.Errorf("answered %s", got)
				}
				if got := c.askModern(modern("3", "tools/call", retry, can)); !strings.Contains(got, `"code":-32602`) {
					t.Errorf("the same once more was answered %s", got)
				}
				if n := f.executed()["ask"]; n != 1 {
					t.Errorf("the tool ran %d times", n)
				}
			})
		})
	}
}

// Two clients at one address are two principals if their credentials are, and
// with them nothing is shared: neither a server nor what one was asked.
func TestPrincipalsAreKeptApart(t *testing.T) {
	f := &farm{}
	virtually(t, setup{options: holdfast.Options{Server: holdfast.Server{MaxChildren: 8}}, farm: f}, func(t *testing.T, b *bench) {
		c := b.client()
		for i, who := range []string{"Bearer a", "Bearer b", "Bearer a"} {
			c.askModern(modernCall(fmt.Sprint(i), "echo", fmt.Sprintf(`{"who":%q}`, who), ""), "Authorization", who)
		}
		var served []int
		for _, k := range f.all() {
			if n := len(k.told("tools/call")); n > 0 {
				served = append(served, n)
			}
		}
		if slices.Sort(served); fmt.Sprint(served) != "[1 2]" {
			t.Errorf("the servers got %v calls", served)
		}
	})
}

// While the gateway drains, what is running goes on, and nothing new begins.
func TestStatelessRequestsWhileDraining(t *testing.T) {
	for name, farmOf := range eras {
		for _, binding := range []string{"mcp", "sse"} {
			t.Run(name+", "+binding, func(t *testing.T) {
				f := farmOf()
				virtually(t, setup{farm: f}, func(t *testing.T, b *bench) {
					c := newcomers[binding](b)
					c.sendModern(modernCall("1", "sleep", `{"ms":3000}`, ""))
					b.within(bound, "the call", func() bool { return len(f.told(`"sleep"`)) == 1 })
					ended := make(chan struct{})
					go func() { defer close(ended); _ = b.g.Stop(context.Background()) }()
					<-time.After(time.Second)
					s := c.sendModern(modernCall("2", "echo", `{}`, "")).done()
					if s.status != http.StatusServiceUnavailable || s.header.Get("Retry-After") == "" {
						t.Errorf("a new call was answered %d %s", s.status, s.body)
					}
					if got := c.answer("1"); !strings.Contains(got, "slept") {
						t.Errorf("the call that was running was answered %s", got)
					}
					<-ended
				})
			})
		}
	}
}
