package exchange

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/testkit"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

var ann = who{principal: "ann", name: "a"}

// raw returns a member of a line.
func raw(line string, f jsonrpc.Field) string {
	m, _ := jsonrpc.Parse([]byte(line))
	return string(m.Raw(f))
}

// TestDirectKeepsBytes: before a server of the stateless era nothing changes
// but ids and tokens.
func TestDirectKeepsBytes(t *testing.T) {
	on(t, troupe{Troupe: &testkit.Troupe{Stateless: true, Tools: map[string]func(*testkit.ToolCall){
		"odd": func(c *testkit.ToolCall) {
			c.Reply(c.ID, `{ "resultType":"complete","x":1.0, "big":12345678901234567890,"<":"\u0041", "ttlMs":-0}`)
		},
	}}}, func(t *testing.T, s *stage) {
		s.ask(ann, "1", "server/discover", "")
		for _, id := range []string{`7`, `"7"`, `1e3`, `"\u0041"`} {
			message := `{ "id":` + id + `,"params":{"name":"odd", "arguments":{"n":1.0,"big":98765432109876543210,"\u0061":"<&>"},"requestState":"\u0062",` +
				`"unknown":[ ],"_meta":` + ann.metaOf() + `},"method":"tools/call","jsonrpc":"2.0","extra":null}`
			got := s.done(s.send(ann, message))
			want := `{"jsonrpc":"2.0","id":` + id + `,"result":{ "resultType":"complete","x":1.0, "big":12345678901234567890,"<":"\u0041", "ttlMs":-0}}`
			if got != want {
				t.Errorf("answered\n%s, want\n%s", got, want)
			}
			lines := s.troupe.Told(`"odd"`)
			line := lines[len(lines)-1]
			up := raw(line, jsonrpc.ID)
			sent := strings.Replace(line, `"id":`+up, `"id":`+id, 1)
			sent = strings.Replace(sent, `"progressToken":`+up+`,`, "", 1) // the gateway's own: evidence of work
			if sent != message {
				t.Errorf("the server was sent\n%s for\n%s", line, message)
			}
		}
		if n := len(s.troupe.Actors()); n != 1 {
			t.Errorf("%d servers for one client of the stateless era", n)
		}
		wantError(t, "an unknown method", s.ask(ann, "9", "no/such", ""), "-32601")
		if got := s.ask(ann, "10", "acme/thing", ""); code(got) != "-32601" || len(s.troupe.Told("acme/thing")) != 1 {
			t.Errorf("an extension's method: %s", got)
		}
	})
}

// TestDirectProgress comes under the caller's own token.
func TestDirectProgress(t *testing.T) {
	on(t, troupe{Troupe: &testkit.Troupe{Stateless: true, Tools: map[string]func(*testkit.ToolCall){
		"report": func(c *testkit.ToolCall) {
			c.Progress(`"progress":1, "x":1.0`)
			c.Progress(`"progress":2`)
			c.Text("done")
			c.Progress(`"progress":3`)
		},
	}}}, func(t *testing.T, s *stage) {
		for _, token := range []string{`1`, `"1"`, `"\u0031"`, `1e0`} {
			w := ann
			w.meta = `,"progressToken":` + token
			r := s.call(w, `1`, "report", `{}`, "")
			s.done(r)
			want := []string{
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token + `,"progress":1, "x":1.0}}`,
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token + `,"progress":2}}`,
			}
			if got := r.told(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: reported %q", token, got)
			}
		}
		seen := map[string]bool{}
		for _, line := range s.troupe.Told(`"report"`) {
			token := raw(line, jsonrpc.MetaToken)
			if seen[token] {
				t.Errorf("token %s went to the server twice", token)
			}
			seen[token] = true
		}
	})
}

// cancelStory is Must show 4 below the binding: whichever era the server is of,
// it hears of the cancellation under its own id, and nothing comes any more.
func cancelStory(t *testing.T, stateless bool) {
	tools := map[string]func(*testkit.ToolCall){"stubborn": func(c *testkit.ToolCall) {
		<-c.Context.Done() // of the cancellation
		c.Progress(`"progress":9`)
		c.Log("error", "late")
		c.Text("late")
	}}
	w := ann
	w.capabilities, w.meta = `{"elicitation":{},"sampling":{},"roots":{}}`, `,"progressToken":"p","io.modelcontextprotocol/logLevel":"debug"`
	on(t, troupe{Troupe: &testkit.Troupe{Stateless: stateless, Handshake: !stateless, Tools: tools}}, func(t *testing.T, s *stage) {
		for i := range 3 { // so that ids differ on both sides
			s.ask(w, fmt.Sprint(i), "tools/list", "")
		}
		r := s.call(w, `101`, "stubborn", `{}`, "")
		s.within(time.Second, "the call at the server", func() bool { return len(s.troupe.Told(`"stubborn"`)) == 1 })
		up := raw(s.troupe.Told(`"stubborn"`)[0], jsonrpc.ID)
		if up == "101" {
			t.Fatal("the test cannot tell the ids apart")
		}
		begin := time.Now()
		r.stop()
		s.within(100*time.Millisecond, "the cancellation at the server", func() bool { return len(s.troupe.Told("notifications/cancelled")) > 0 })
		if d := time.Since(begin); d > 100*time.Millisecond {
			t.Errorf("it took %v", d)
		}
		time.Sleep(time.Minute)
		if got := s.troupe.Told("notifications/cancelled"); len(got) != 1 || raw(got[0], jsonrpc.RequestID) != up {
			t.Errorf("the server was told %q, want its own id %s", got, up)
		} else if reason := raw(got[0], jsonrpc.Params); !strings.Contains(reason, `"reason":"enough `) {
			t.Errorf("told %s", got[0])
		}
		if r.answer() != "" || len(r.told()) != 0 {
			t.Errorf("after the cancellation came %q and %q", r.told(), r.answer())
		}
		r.cancel("again")
		if got := text(t, s.done(s.call(w, `102`, "echo", `{}`, ""))); !strings.Contains(got, "no text") {
			t.Errorf("then %s", got)
		}
		if n := len(s.troupe.Actors()); stateless && n != 1 {
			t.Errorf("%d servers", n)
		}
	})
}

func TestDirectCancel(t *testing.T) { cancelStory(t, true) }

// TestDirectCancelBeforeTheVerdict: a request that is cancelled while it is
// found out what the server speaks never leaves, and is never answered.
func TestDirectCancelBeforeTheVerdict(t *testing.T) {
	tr := &testkit.Troupe{Stateless: true, On: map[string]func(*testkit.Actor, *jsonrpc.Message){
		"server/discover": func(a *testkit.Actor, m *jsonrpc.Message) {
			time.Sleep(time.Second)
			a.Reply(string(m.Raw(jsonrpc.ID)), `{"supportedVersions":["2026-07-28"],"capabilities":{}}`)
		},
	}}
	on(t, troupe{Troupe: tr}, func(t *testing.T, s *stage) {
		r := s.call(ann, `1`, "echo", `{}`, "")
		time.Sleep(100 * time.Millisecond)
		r.stop()
		time.Sleep(time.Minute)
		if got := s.troupe.Told("tools/call"); len(got) > 0 {
			t.Errorf("the server was sent %q", got)
		}
	})
}

// TestDirectLogMessages reach a caller only where it alone can be meant, and
// asked for them. A subscription is no call that could be meant.
func TestDirectLogMessages(t *testing.T) {
	tr := &testkit.Troupe{Stateless: true, Tools: map[string]func(*testkit.ToolCall){
		"say": func(c *testkit.ToolCall) { c.Log("info", c.ID); c.Pause(time.Second); c.Text("said") },
	}}
	on(t, troupe{Troupe: tr}, func(t *testing.T, s *stage) {
		loud := ann
		loud.meta = `,"io.modelcontextprotocol/logLevel":"info"`
		s.ask(ann, "0", "tools/list", "")
		count := func(what string, r *reply, want int) {
			t.Helper()
			s.done(r)
			if got := r.told(); len(got) != want {
				t.Errorf("%s: told %q, want %d", what, got, want)
			}
		}
		count("asked for", s.call(loud, "1", "say", `{}`, ""), 1)
		count("not asked for", s.call(ann, "2", "say", `{}`, ""), 0)
		first := s.call(loud, "3", "sleep", `{"ms":1500}`, "")
		count("two may be meant", s.call(loud, "4", "say", `{}`, ""), 0)
		count("two may be meant", first, 0)
		listen := s.send(loud, loud.request(`"sub"`, "subscriptions/listen", `"notifications":{}`))
		count("beside a subscription", s.call(loud, "5", "say", `{}`, ""), 1)
		listen.stop()
	})
}

// TestDirectDeath: the fate of a call that was running is unknown, and the next
// one finds a new process.
func TestDirectDeath(t *testing.T) {
	on(t, troupe{Troupe: &testkit.Troupe{Stateless: true}}, func(t *testing.T, s *stage) {
		s.ask(ann, "0", "tools/list", "")
		r := s.call(ann, "1", "sleep", `{"ms":600000}`, "")
		synctest.Wait()
		s.troupe.Latest().Die(errOver)
		wantError(t, "at once", s.done(r), "-32603", `"outcome":"unknown"`)
		if got := text(t, s.done(s.call(ann, "2", "where", `{}`, ""))); got != "1:1" {
			t.Errorf("then %s", got)
		}
		if got := s.troupe.Told("initialize"); len(got) > 0 {
			t.Errorf("a server of the stateless era was sent %q", got)
		}
	})
}

// TestDirectListen: the acknowledgement and all that follows name the
// subscription as the client does.
func TestDirectListen(t *testing.T) {
	on(t, troupe{Troupe: &testkit.Troupe{Stateless: true}}, func(t *testing.T, s *stage) {
		s.ask(ann, "0", "tools/list", "")
		var open []*reply
		ids := []string{`1`, `"1"`, `"\u0031"`}
		for i, id := range ids {
			open = append(open, s.send(ann, ann.request(id, "subscriptions/listen", fmt.Sprintf(`"notifications":{"resourceSubscriptions":["x://%d"]}`, i))))
		}
		s.within(time.Second, "subscriptions", func() bool { return len(s.troupe.Latest().Listens()) == 3 })
		if n := s.host.InFlight(); n != 0 {
			t.Errorf("%d in flight: subscriptions must not hold up a shutdown", n)
		}
		s.troupe.Latest().Tell("x://1", "notifications/resources/updated", `{"uri":"x://1", "n":1.0}`)
		synctest.Wait()
		for i, r := range open {
			got := r.told()
			want := []string{fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},`+
				`"notifications":{"resourceSubscriptions":["x://%d"]}}}`, ids[i], i)}
			if i == 1 {
				want = append(want, `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://1","n":1.0,`+
					`"_meta":{"io.modelcontextprotocol/subscriptionId":"1"}}}`)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("subscription %s was told\n%q, want\n%q", ids[i], got, want)
			}
		}
		open[0].stop()
		s.within(time.Second, "its end at the server", func() bool { return len(s.troupe.Latest().Listens()) == 2 })
		s.host.Close(errOver)
		synctest.Wait()
		for i, r := range open[1:] {
			want := `{"jsonrpc":"2.0","id":` + ids[i+1] + `,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":` + ids[i+1] + `}}}`
			if got := r.answer(); got != want {
				t.Errorf("the subscription ended with %q, want %s", got, want)
			}
		}
	})
}

// TestDirectListenEndedByTheServer, by a result or as servers on stdio must, by
// a cancellation: either way it is an end in order.
func TestDirectListenEndedByTheServer(t *testing.T) {
	on(t, troupe{Troupe: &testkit.Troupe{Stateless: true}}, func(t *testing.T, s *stage) {
		for i, how := range []string{
			`{"jsonrpc":"2.0","id":%[1]s,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":%[1]s}}}`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`,
		} {
			id := fmt.Sprintf(`"s%d"`, i)
			r := s.send(ann, ann.request(id, "subscriptions/listen", `"notifications":{"toolsListChanged":true}`))
			s.within(time.Second, "the subscription", func() bool { return len(s.troupe.Told("subscriptions/listen")) == i+1 })
			up := raw(s.troupe.Told("subscriptions/listen")[i], jsonrpc.ID)
			s.troupe.Latest().Say(how, up)
			synctest.Wait()
			want := `{"jsonrpc":"2.0","id":` + id + `,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}}}`
			if got := r.answer(); got != want {
				t.Errorf("%s: the subscription ended with %q, want %s", how, got, want)
			}
		}
	})
}

// TestDirectIsGivenUp when its place is needed, or nobody has used it for long;
// but not while a request or a subscription needs it. The next request has
// another one started.
func TestDirectIsGivenUp(t *testing.T) {
	on(t, troupe{Troupe: &testkit.Troupe{Stateless: true}, max: 1}, func(t *testing.T, s *stage) {
		s.where(ann)
		call := s.call(ann, "1", "sleep", `{"ms":10000}`, "")
		synctest.Wait()
		if s.host.Evict() {
			t.Error("given up under a call")
		}
		s.done(call)
		listen := s.send(ann, ann.request("2", "subscriptions/listen", `"notifications":{"toolsListChanged":true}`))
		s.within(time.Second, "the subscription", func() bool { return len(s.troupe.Latest().Listens()) == 1 })
		time.Sleep(3 * time.Hour)
		s.host.Sweep(time.Now())
		if s.host.Evict() || s.pool.Live() != 1 {
			t.Error("given up under a subscription")
		}
		listen.stop()
		if !s.host.Evict() || s.pool.Live() != 0 {
			t.Error("not given up")
		}
		if s.host.Evict() {
			t.Error("given up twice")
		}
		if got := s.where(ann); got != "1:1" {
			t.Errorf("then %s", got)
		}
		time.Sleep(59 * time.Minute)
		if s.host.Sweep(time.Now()); s.pool.Live() != 1 {
			t.Error("reaped before the idle time")
		}
		time.Sleep(time.Minute)
		if s.host.Sweep(time.Now()); s.pool.Live() != 0 {
			t.Error("not reaped")
		}
		conv, err := s.pool.Take() // as a session does
		if err != nil {
			t.Fatal(err)
		}
		wantError(t, "no place", s.done(s.call(ann, "3", "where", `{}`, "")), "-32603", "--max-children", `"outcome":"not_executed"`)
		conv.Close(errOver)
		if got := s.where(ann); got != "3:1" {
			t.Errorf("in the end %s", got)
		}
	})
}

// TestDirectThatIsBeingGivenUp is not handed out any more: a request waits until
// it has gone.
func TestDirectThatIsBeingGivenUp(t *testing.T) {
	on(t, troupe{Troupe: &testkit.Troupe{Stateless: true}}, func(t *testing.T, s *stage) {
		s.where(ann)
		gone := make(chan struct{})
		s.host.mu.Lock()
		d := s.host.direct
		s.host.direct, s.host.retiring = nil, gone // as retire does
		s.host.mu.Unlock()
		r := s.call(ann, "1", "where", `{}`, "")
		time.Sleep(time.Minute)
		if r.answer() != "" {
			t.Errorf("answered %s", r.answer())
		}
		d.conv.Close(errOver)
		close(gone)
		if got := text(t, s.done(r)); got != "1:1" {
			t.Errorf("came to %s", got)
		}
	})
}

// TestDirectIsNeverGivenUpUnderARequest, however close together they come.
func TestDirectIsNeverGivenUpUnderARequest(t *testing.T) {
	on(t, troupe{Troupe: &testkit.Troupe{Stateless: true}, max: 1}, func(t *testing.T, s *stage) {
		var calls, evicts sync.WaitGroup
		over := make(chan struct{})
		evicts.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					s.host.Evict()
					runtime.Gosched()
				}
			}
		})
		for range 4 {
			calls.Go(func() {
				for i := range 100 {
					answered := make(chan string, 1)
					m, _ := jsonrpc.Parse([]byte(ann.request(fmt.Sprint(i), "tools/list", "")))
					_, fail := s.host.Serve(Request{Message: m, Emit: func(msg []byte, _ bool) { answered <- string(msg) }})
					if fail != nil {
						t.Error(fail)
						return
					}
					if got := <-answered; code(got) != "" {
						t.Errorf("answered %s", got)
					}
				}
			})
		}
		calls.Wait()
		for s.host.knownDirect() != nil { // idle now, so that it is given up
			runtime.Gosched()
		}
		close(over)
		evicts.Wait()
		s.ask(ann, `"more"`, "tools/list", "")
		if n := len(s.troupe.Actors()); n < 2 {
			t.Errorf("%d servers: nothing was ever given up", n)
		}
	})
}
