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

// Cases of kind b: a ping is answered at once by whoever is asked, and its
// absence ends nothing.

// ponging is how a client answers pings. Zero: not at all.
type ponging struct {
	with  string        // a message, %s in it the id
	after time.Duration // how late
	most  int           // so many; 0: all
	least int           // pings that it is sent in 20 minutes, if it says nothing else
	limit int
}

// C06: comments keep a stream open. A ping asks a silent client for a sign of
// life; that it comes late, is an error or does not come ends and slows nothing.
// The pings of a server are the gateway's own to answer.
func TestC06NoPingEndsALongCall(t *testing.T) {
	const pong, refusal = `{"jsonrpc":"2.0","id":%s,"result":{}}`, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`
	for how, p := range map[string]ponging{
		"never":      {least: 2, limit: 3},
		"at once":    {with: pong, least: 25, limit: 40},
		"late":       {with: pong, after: 3 * time.Minute, least: 8, limit: 16},
		"at first":   {with: pong, most: 2, least: 4, limit: 5},
		"by refusal": {with: refusal, least: 1, limit: 1},
	} {
		for name, open := range bindings {
			t.Run(name+" "+how, func(t *testing.T) {
				f := &farm{tools: map[string]func(*fakeCall){"pinging": func(c *fakeCall) {
					for i := range 10 {
						c.pause(500 * time.Millisecond)
						c.k.line(fmt.Sprintf(`{"jsonrpc":"2.0","id":"p%d","method":"ping"}`, i))
					}
					c.pause(time.Millisecond)
					c.reply(fmt.Sprintf(`{"structuredContent":%d}`, len(c.k.told(`{"jsonrpc":"2.0","id":"p`, `,"result":{}}`))))
				}}}
				o := holdfast.Options{Timers: beating, Server: holdfast.Server{Warm: -1}}
				virtually(t, setup{options: o, farm: f}, func(t *testing.T, b *bench) {
					c := open(b, v06)
					reads := c.main
					if name == "streamable" {
						reads = c.listen("/mcp", "")
					}
					if got, want := c.ask(toolCall("1", "pinging", `{}`, "")), `{"jsonrpc":"2.0","id":1,"result":{"structuredContent":10}}`; got != want {
						t.Errorf("answered with %s, want %s", got, want)
					}
					if got := c.find(`"method":"ping"`); len(got) > 0 {
						t.Errorf("the client was asked %s", got[0].raw)
					}
					tenMinutes(t, c, p)
					select {
					case <-reads.ended:
						t.Error("the client's stream has ended")
					default:
					}
					if n := f.alive(); n != 1 || len(f.all()) != 1 || len(f.told("notifications/cancelled")) > 0 {
						t.Errorf("%d servers of %d live, told %q", n, len(f.all()), f.told("notifications/cancelled"))
					}
				})
			})
		}
	}
}

// tenMinutes makes a call of 10 minutes, and holds for 20 minutes what the client
// is asked meanwhile, and that nothing comes of how it answers.
func tenMinutes(t *testing.T, c *client, p ponging) {
	t.Helper()
	begin := time.Now()
	post := c.send(toolCall("2", "sleep", `{"ms":600000}`, ""))
	ids := map[string]bool{}
	for n := 0; time.Since(begin) < 20*time.Minute; {
		<-time.After(time.Second)
		pings := c.find(`"method":"ping"`)
		for ; n < len(pings) && p.with != "" && (p.most == 0 || n < p.most) && time.Since(pings[n].at) >= p.after; n++ {
			id := raw(pings[n].raw, jsonrpc.ID)
			if s := c.send(fmt.Sprintf(p.with, id)).done(); c.pipe == nil && s.status != http.StatusAccepted {
				t.Errorf("the answer to a ping was answered with %d %s", s.status, s.body)
			}
			ids[id] = true
		}
		if p.most == 0 && len(ids) != n {
			t.Fatalf("%d pings under %d ids", n, len(ids))
		}
	}
	done := c.find(`{"jsonrpc":"2.0","id":2,"result":`)
	if len(done) != 1 || done[0].at.Sub(begin).Round(time.Second) != 10*time.Minute || c.main == nil && done[0].via != post {
		t.Fatalf("the long call was answered with %v", done)
	}
	pings := c.find(`"method":"ping"`)
	if n := len(pings); n < p.least || n > p.limit {
		t.Errorf("%d pings, want %d to %d", n, p.least, p.limit)
	}
	if d := pings[0].at.Sub(begin); d < 30*time.Second || d > 45*time.Second {
		t.Errorf("the first ping came after %v", d)
	}
	for _, r := range pings {
		if want := `{"jsonrpc":"2.0","id":` + raw(r.raw, jsonrpc.ID) + `,"method":"ping"}`; r.raw != want || !strings.HasPrefix(raw(r.raw, jsonrpc.ID), `"hf-`) {
			t.Errorf("the client was asked %s", r.raw)
		}
	}
	begin = time.Now()
	c.ask(toolCall("3", "echo", `{}`, ""))
	if d := time.Since(begin); d > time.Second {
		t.Errorf("a call afterwards took %v", d)
	}
}

// pongs are the ways of a server to answer pings.
var pongs = map[string]func(k *fake, m *jsonrpc.Message){
	"answers": nil,
	"ignores": func(*fake, *jsonrpc.Message) {},
	"refuses": func(k *fake, m *jsonrpc.Message) {
		k.line(`{"jsonrpc":"2.0","id":` + string(m.Raw(jsonrpc.ID)) + `,"error":{"code":-32601,"message":"no"}}`)
	},
}

// C07: a server that is busy is alive, also one that used to answer pings and
// now does not: no ping alone restarts it.
func TestC07BusyServerIsNotRestarted(t *testing.T) {
	for how, pong := range pongs {
		for _, isolation := range []holdfast.Isolation{holdfast.PerSession, holdfast.Shared} {
			t.Run(string(isolation)+" "+how, func(t *testing.T) {
				f := &farm{methods: map[string]func(*fake, *jsonrpc.Message){"x/block": func(k *fake, m *jsonrpc.Message) {
					select { // on the goroutine that reads: it hears nothing meanwhile
					case <-time.After(2 * time.Minute):
					case <-k.ctx.Done():
					}
					k.line(`{"jsonrpc":"2.0","id":"hc-1","result":{}}`) // late answers to nobody
					k.line(`{"jsonrpc":"2.0","id":424242,"result":{}}`)
					k.reply(string(m.Raw(jsonrpc.ID)), `{"done":true}`)
				}}}
				if pong != nil {
					f.methods["ping"] = pong
				}
				o := holdfast.Options{Server: holdfast.Server{Isolation: isolation, Warm: -1}}
				virtually(t, setup{options: o, farm: f}, func(t *testing.T, b *bench) { busyServer(t, b, how) })
			})
		}
	}
}

func busyServer(t *testing.T, b *bench, how string) {
	t.Helper()
	f := b.farm
	c, other := b.streamable(v11), b.streamable(v11)
	servers := len(f.all())
	c.ask(toolCall("0", "sleep", `{"ms":100000}`, "")) // silent, but it reads
	before := len(f.told(`"method":"ping"`))
	if before == 0 {
		t.Error("a silent server was not asked for a sign of life")
	}
	c.send(body("1", "x/block", "")).open()
	for i := range 20 { // answered here, however busy the server
		begin := time.Now()
		if got, want := c.ask(body(fmt.Sprintf(`"p%d"`, i), "ping", "")), fmt.Sprintf(`{"jsonrpc":"2.0","id":"p%d","result":{}}`, i); got != want {
			t.Errorf("ping: answered with %s", got)
		}
		if d := time.Since(begin); d > 100*time.Millisecond {
			t.Errorf("a ping took %v", d)
		}
		<-time.After(5 * time.Second)
	}
	other.send(toolCall("1", "echo", `{"o":1}`, ""))
	if got := c.answer("1"); !strings.Contains(got, `"done":true`) {
		t.Errorf("answered with %s", got)
	}
	other.answer("1")
	if got := len(f.all()); got != servers || f.alive() != servers {
		t.Errorf("%d servers were started, %d live, want the %d there were", got, f.alive(), servers)
	}
	c.ask(toolCall("2", "echo", `{}`, "")) // it has read all before
	// Those that it could not read are few, and what it answers late goes nowhere.
	asked, ids := f.told(`"method":"ping"`), map[string]bool{}
	if n := len(asked) - before; n > 2 || n == 0 && how != "refuses" || n > 0 && how == "refuses" {
		t.Errorf("the server was told %d pings while it did not read", n)
	}
	for _, line := range asked {
		if id := raw(line, jsonrpc.ID); ids[id] || line != `{"jsonrpc":"2.0","id":`+id+`,"method":"ping"}` {
			t.Errorf("the server was told %s", line)
		}
		ids[raw(line, jsonrpc.ID)] = true
	}
	if stuck := b.log.lines("the server is stuck"); (len(stuck) > 0) != (how == "answers") {
		t.Errorf("logged %q", stuck)
	}
	if got := c.find("hc-1"); len(got) > 0 {
		t.Errorf("the client received %s", got[0].raw)
	}
}

func TestC09PingBeforeInitialize(t *testing.T) {
	for name, connect := range map[string]func(b *bench) *client{
		"streamable": func(b *bench) *client { return b.client() },
		"sse":        func(b *bench) *client { c := b.client(); c.listen("/sse", ""); return c },
		"stdio":      func(b *bench) *client { return b.pipe() },
	} {
		t.Run(name, func(t *testing.T) {
			f := &farm{}
			virtually(t, setup{options: holdfast.Options{Server: holdfast.Server{Warm: -1}}, farm: f}, func(t *testing.T, b *bench) {
				c := connect(b)
				for i, params := range []string{"", "null", "{}"} {
					s := c.send(body(fmt.Sprint(i), "ping", params))
					if got, want := c.answer(fmt.Sprint(i)), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, i); got != want {
						t.Errorf("params %q: answered with %s", params, got)
					}
					if s.done(); name == "streamable" && (s.status != http.StatusOK || s.header.Get("Mcp-Session-Id") != "") {
						t.Errorf("answered with %d and session %q", s.status, s.header.Get("Mcp-Session-Id"))
					}
				}
				if n := len(f.all()); n > 0 {
					t.Errorf("%d servers were started for a ping", n)
				}
				early := c.send(body(`"early"`, "tools/list", "")) // is not allowed yet, and not silently so
				if got := c.answer(`"early"`); !strings.Contains(got, "initialize first") {
					t.Errorf("answered with %s", got)
				}
				if early.done(); name == "streamable" && early.status != http.StatusBadRequest {
					t.Errorf("answered with %d", early.status)
				}
				c.handshake(v11, "{}")
				c.ask(toolCall("10", "echo", `{}`, ""))
				if n := len(f.all()); n != 1 {
					t.Errorf("%d servers", n)
				}
			})
		})
	}
}
