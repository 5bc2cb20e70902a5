package conversation

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Cases C65 to C67 on stdio, in virtual time. The tests at the root look at the
// same from outside.

const discovered = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private",` +
	`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"new","version":"2"}},"instructions":"<do>"}`

// probing is a probe that is under way.
type probing struct {
	t    *testing.T
	pool *Pool
	farm *farm
	done chan struct{}
	conv *Conversation
	err  error
	took time.Duration
}

const patience = 2 * time.Second

// probe lets a pool find out what its server speaks, and returns once a server
// was asked.
func probe(t *testing.T, o PoolOptions) *probing {
	t.Helper()
	if o.Max == 0 {
		o.Max = 3
	}
	p := &probing{t: t, done: make(chan struct{})}
	p.pool, p.farm = pool(t, o)
	p.again()
	return p
}

func (p *probing) again() {
	begin := time.Now()
	p.done = make(chan struct{})
	go func() { // ends with the verdict
		defer close(p.done)
		p.conv, p.err = p.pool.Stateless(patience)
		p.took = time.Since(begin)
	}()
	synctest.Wait()
}

func (p *probing) server() *server { return p.farm.latest() }

// discover demands that the server was asked, and returns the request.
func (p *probing) discover() parsed {
	p.t.Helper()
	got := p.server().next()
	if got.Method != "server/discover" {
		p.t.Fatalf("the server was sent %s", got.line)
	}
	return got
}

// verdict waits until the probe is over.
func (p *probing) verdict(want string) {
	p.t.Helper()
	synctest.Wait()
	select {
	case <-p.done:
	default:
		p.t.Fatal("no verdict yet")
	}
	got := "stateless"
	switch {
	case p.err != nil:
		got = "error"
	case p.conv == nil:
		got = "handshake"
	}
	if got != want {
		p.t.Errorf("the verdict is %s (%v), want %s", got, p.err, want)
	}
}

// kept demands that the verdict is known from now on, without another server.
func (p *probing) kept(want string) {
	p.t.Helper()
	before := p.farm.started()
	p.again()
	p.verdict(want)
	if p.took != 0 || p.farm.started() != before {
		p.t.Errorf("it took %v and %d servers to find out again", p.took, p.farm.started()-before)
	}
}

// end holds that no process is left.
func (p *probing) end() {
	p.t.Helper()
	p.pool.Close(errors.New("test ended"))
	synctest.Wait()
	for i, s := range p.farm.all {
		if s.stopped == 0 {
			p.t.Errorf("server %d was never stopped", i+1)
		}
	}
}

// TestProbeRequest says all that a request must say.
func TestProbeRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := probe(t, PoolOptions{})
		want := `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{},"io.modelcontextprotocol/clientCapabilities":{}}}`
		got := p.discover()
		if string(got.Params) != want {
			t.Errorf("asked with %s", got.Params)
		}
		p.server().say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, got.ID, discovered)
		p.verdict("stateless")
		p.kept("stateless")
		p.end()
	})
}

func result(s string) string { return `"result":` + s }

func refusal(code int, data string) string {
	return fmt.Sprintf(`"error":{"code":%d,"message":"<no>"%s}`, code, data)
}

// probeAnswers are answers to the probe, and what they show.
var probeAnswers = []struct {
	name, answer, want string
	reused             bool // the process goes on as one of the handshake era
}{
	{"discovered", result(discovered), "stateless", true},
	{"several versions", result(`{"supportedVersions":["2025-11-25","2026-07-28","2099-01-01"],"capabilities":{}}`), "stateless", true},
	{"spelled oddly", result(`{"supported\u0056ersions":[ "2026\u002d07-28" ]}`), "stateless", true},
	{"without resultType", result(`{"supportedVersions":["2026-07-28"]}`), "stateless", true},
	{"a weird resultType", result(`{"resultType":"weird","supportedVersions":["2026-07-28"]}`), "handshake", false},
	{"input_required", result(`{"resultType":"input_required","supportedVersions":["2026-07-28"]}`), "handshake", false},
	{"no version", result(`{"supportedVersions":[]}`), "handshake", false},
	{"another version", result(`{"supportedVersions":["2026-07-29"]}`), "handshake", false},
	{"no array", result(`{"supportedVersions":"2026-07-28"}`), "handshake", false},
	{"an object", result(`{"supportedVersions":{"2026-07-28":1}}`), "handshake", false},
	{"not strings", result(`{"supportedVersions":[["2026-07-28"]]}`), "handshake", false},
	{"empty", result(`{}`), "handshake", false},
	{"null", result(`null`), "handshake", false},
	{"a number", result(`7`), "handshake", false},
	{"-32601", refusal(-32601, ""), "handshake", true},
	{"-32602", refusal(-32602, ""), "handshake", true},
	{"-32600", refusal(-32600, ""), "handshake", true},
	{"-32603", refusal(-32603, ""), "handshake", true},
	{"-32700", refusal(-32700, ""), "handshake", true},
	{"-32000", refusal(-32000, ""), "handshake", true},
	{"-32002", refusal(-32002, ""), "handshake", true},
	{"0", refusal(0, ""), "handshake", true},
	{"401 in disguise", refusal(401, ""), "handshake", true},
	{"a string for a code", `"error":{"code":"-32022","message":""}`, "handshake", true},
	{"header mismatch", refusal(-32020, ""), "stateless", true},
	{"a capability is missing", refusal(-32021, `,"data":{"requiredCapabilities":{}}`), "stateless", true},
	{"our version, after all", refusal(-32022, `,"data":{"supported":["2026-07-28"],"requested":"2026-07-28"}`), "stateless", true},
	{"the handshake's versions", refusal(-32022, `,"data":{"supported":["2025-11-25"],"requested":"2026-07-28"}`), "handshake", true},
	{"versions that nobody knows", refusal(-32022, `,"data":{"supported":["2099-01-01"],"requested":"2026-07-28"}`), "error", false},
	{"no versions", refusal(-32022, ""), "error", false},
}

// TestProbeAnswers: C66 and C67. Any answer but a good one, or a recognized
// modern error, is one of the handshake era.
func TestProbeAnswers(t *testing.T) {
	for _, tt := range probeAnswers {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := probe(t, PoolOptions{})
				asked := p.discover()
				time.Sleep(time.Second)
				p.server().say(`{"jsonrpc":"2.0","id":%s,%s}`, asked.ID, tt.answer)
				p.verdict(tt.want)
				if tt.want != "error" {
					p.kept(tt.want)
				}
				if p.farm.started() != 1 {
					t.Errorf("%d servers were started", p.farm.started())
				}
				if n := p.pool.Live(); (n == 1) != tt.reused {
					t.Errorf("%d servers run, reused: %v", n, tt.reused)
				}
				equal(t, "the server was told", p.server().heard(), nil)
				p.end()
			})
		})
	}
}

// TestProbeReuse: a server that refused the probe serves the next session.
func TestProbeReuse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := probe(t, PoolOptions{})
		p.server().say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":""}}`, p.discover().ID)
		p.verdict("handshake")
		conv := take(t, p.pool)
		c := &client{t: t, name: "a", conv: conv, answers: map[*Call]string{}}
		if err := conv.Join(c); err != nil {
			t.Fatal(err)
		}
		call := c.call(clientHello, `1`, "2025-06-18", `{}`, "a")
		p.server().greet(serverResult)
		if got := parse(t, c.answer(call)); string(got.Result) != serverResult || p.farm.started() != 1 {
			t.Errorf("answered %s by server %d", got.line, p.farm.started())
		}
		p.end()
	})
}

// TestProbeNullID: C66. An answer that names no request is none; the server is
// greeted, and answers that.
func TestProbeNullID(t *testing.T) {
	for _, id := range []string{`"id":null,`, ``} {
		bubble(t, func(t *testing.T) {
			p := probe(t, PoolOptions{})
			p.discover()
			p.server().say(`{"jsonrpc":"2.0",%s"error":{"code":-32600,"message":"not initialized"}}`, id)
			time.Sleep(patience)
			synctest.Wait()
			p.server().greet(serverResult)
			p.verdict("handshake")
			p.kept("handshake")
			p.end()
		})
	}
}

// TestProbeSilence: C65 (i) and (iv). After the probe's time the same process
// is greeted; what it says later of the probe is dropped.
func TestProbeSilence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := probe(t, PoolOptions{})
		asked := p.discover()
		time.Sleep(patience - time.Millisecond)
		synctest.Wait()
		equal(t, "before the time is over it was told", p.server().heard(), nil)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		srv := p.server()
		srv.greet(serverResult)
		p.verdict("handshake")
		if p.took != patience || p.farm.started() != 1 {
			t.Errorf("it took %v and %d servers", p.took, p.farm.started())
		}
		srv.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, asked.ID, discovered)
		p.kept("handshake")
		// What was greeted under the gateway's name serves no client.
		if take(t, p.pool); p.farm.started() != 2 {
			t.Error("a session got the process that was probed")
		}
		p.end()
	})
}

// TestProbeExit: C65 (ii). The server ends on the probe; another one is not
// probed.
func TestProbeExit(t *testing.T) {
	for _, after := range []string{"the probe", "the greeting"} {
		bubble(t, func(t *testing.T) {
			p := probe(t, PoolOptions{})
			p.discover()
			if after == "the greeting" {
				time.Sleep(patience)
				synctest.Wait()
				p.server().next()
			}
			p.server().die(killed)
			p.verdict("handshake")
			p.kept("handshake")
			take(t, p.pool)
			equal(t, "the next server was told", p.server().heard(), nil)
			if p.farm.started() != 2 {
				t.Errorf("%d servers were started", p.farm.started())
			}
			p.end()
		})
	}
}

// TestProbeSlowStart: C65 (iii). The time that a server takes to start is no
// probe time: the first byte after 7 s still shows the stateless era.
func TestProbeSlowStart(t *testing.T) {
	for _, refusal := range []string{"first", "last", "never"} {
		t.Run(refusal, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := probe(t, PoolOptions{})
				asked := p.discover()
				time.Sleep(7 * time.Second)
				greeting := p.server().next()
				refuse := func() {
					p.server().say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"_meta is missing"}}`, greeting.ID)
				}
				if refusal == "first" { // it answers each request when it is done with it
					refuse()
					time.Sleep(time.Second)
				}
				p.server().say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, asked.ID, discovered)
				if refusal == "last" {
					refuse()
				}
				p.verdict("stateless")
				p.kept("stateless")
				if p.conv.Err() != nil || p.farm.started() != 1 {
					t.Errorf("%v, %d servers", p.conv.Err(), p.farm.started())
				}
				p.end()
			})
		})
	}
}

// TestProbeNothing: a server that answers neither is not judged for good.
func TestProbeNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := probe(t, PoolOptions{})
		time.Sleep(time.Minute)
		p.verdict("error")
		if p.took != time.Minute || !strings.Contains(p.err.Error(), "--start-timeout") {
			t.Errorf("after %v: %v", p.took, p.err)
		}
		p.again()
		p.server().say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, p.discover().ID, discovered)
		p.verdict("stateless")
		p.end()
	})
}

// TestProbeRefusesBoth: a server that refuses initialize, and says nothing to
// the probe, is left to tell its clients why.
func TestProbeRefusesBoth(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := probe(t, PoolOptions{})
		p.discover()
		time.Sleep(patience)
		synctest.Wait()
		p.server().say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"no token"}}`, p.server().next().ID)
		time.Sleep(30 * time.Second)
		p.verdict("handshake")
		if p.took > 15*time.Second {
			t.Errorf("it took %v", p.took)
		}
		p.end()
	})
}

// TestProbeOnce: all who ask meanwhile wait for the same probe.
func TestProbeOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := probe(t, PoolOptions{Warm: 1})
		const others = 20
		verdicts := make(chan *Conversation, others)
		for range others {
			go func() {
				conv, err := p.pool.Stateless(patience)
				if err != nil {
					t.Error(err)
				}
				verdicts <- conv
			}()
		}
		synctest.Wait()
		if len(verdicts) != 0 {
			t.Error("a verdict before there is one")
		}
		first := p.farm.all[0]
		asked := first.next()
		first.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, asked.ID, discovered)
		p.verdict("stateless")
		for range others {
			if conv := <-verdicts; conv != p.conv {
				t.Error("not all came to the same server")
			}
		}
		p.end()
	})
}

// TestProbeFull: where no server may be started, the caller is told, and the
// next one finds out.
func TestProbeFull(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, f := pool(t, PoolOptions{Max: 1})
		taken := take(t, p)
		if conv, err := p.Stateless(patience); !errors.Is(err, ErrFull) || conv != nil {
			t.Errorf("got %v, %v", conv, err)
		}
		taken.Close(ErrClosed)
		synctest.Wait()
		next := &probing{t: t, pool: p, farm: f}
		next.again()
		next.server().say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, next.discover().ID, discovered)
		next.verdict("stateless")
		next.end()
	})
}

// TestProbeShared: what is found out of a server that all share serves those of
// the stateless era alone; without a place to ask, the shared one serves them.
func TestProbeShared(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, places := range []int{1, 2} {
			p, f := pool(t, PoolOptions{Options: Options{Shared: true}, Max: places})
			go func() {
				synctest.Wait()
				f.latest().greet(serverResult)
			}()
			if err := p.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.latest().heard()
			next := &probing{t: t, pool: p, farm: f}
			next.again()
			want := "handshake"
			if places == 2 {
				next.server().say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, next.discover().ID, discovered)
				want = "stateless"
			}
			next.verdict(want)
			if p.Check() != nil || p.Live() != places {
				t.Errorf("%d places: Check %v, %d run", places, p.Check(), p.Live())
			}
			next.end()
		}
	})
}

// TestProbeAfterDeath: a server of the stateless era is started again, without
// a probe and without a handshake, and told what was held meanwhile.
func TestProbeAfterDeath(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := probe(t, PoolOptions{})
		p.server().say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, p.discover().ID, discovered)
		p.verdict("stateless")
		c := &client{t: t, name: "a", conv: p.conv, answers: map[*Call]string{}}
		if err := p.conv.Join(c); err != nil {
			t.Fatal(err)
		}
		lost := c.tool("1")
		p.server().heard()
		p.server().die(killed)
		held := c.tool("2")
		if got := c.answer(lost); !strings.Contains(got, `"outcome":"unknown"`) {
			t.Errorf("answered %s", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if p.farm.started() != 2 {
			t.Fatalf("%d servers", p.farm.started())
		}
		got := p.server().next()
		if got.Method != "tools/call" {
			t.Errorf("the new server was told %s", got.line)
		}
		p.server().say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, got.ID)
		if c.answer(held) == "" || c.over() != nil {
			t.Errorf("answered %q, over: %v", c.answer(held), c.over())
		}
		p.kept("stateless")
		p.end()
	})
}

// TestStatelessAsksNothing: a request of a server of that era is refused, and
// its notifications go where they belong.
func TestStatelessAsksNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := probe(t, PoolOptions{})
		p.server().say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, p.discover().ID, discovered)
		p.verdict("stateless")
		c := &client{t: t, name: "a", conv: p.conv, answers: map[*Call]string{}}
		if err := p.conv.Join(c); err != nil {
			t.Fatal(err)
		}
		c.tool("1")
		p.server().heard()
		p.server().say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`)
		if got := p.server().next(); got.Error == nil || string(got.ID) != `"q"` {
			t.Errorf("told %s", got.line)
		}
		p.server().say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":4711}}}`)
		equal(t, "of a subscription that nobody has", c.told(), nil)
		p.end()
	})
}
