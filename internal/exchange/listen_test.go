package exchange

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/testkit"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// subscribe opens a subscription; filter is JSON.
func (s *stage) subscribe(w who, id, filter string) *reply {
	s.t.Helper()
	r := s.send(w, w.request(id, "subscriptions/listen", `"notifications":`+filter))
	s.within(time.Minute, "an acknowledgement", func() bool { return len(r.told()) > 0 })
	return r
}

// ack is what an acknowledgement must be.
func ack(id, filter string) string {
	return `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":` + filter +
		`,"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}}}`
}

// TestListenFilter: what the server supports of what was asked for, and no more.
func TestListenFilter(t *testing.T) {
	const all = `{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["x://1","x://2"]}`
	tests := []struct{ capabilities, filter, honoured string }{
		{testkit.DefaultCapabilities, all, all},
		{testkit.DefaultCapabilities, `{"toolsListChanged":true,"promptsListChanged":false,"future":true}`, `{"toolsListChanged":true}`},
		{testkit.DefaultCapabilities, `{}`, `{}`},
		{testkit.DefaultCapabilities, `null`, `{}`},
		{`{}`, all, `{}`},
		{`{"tools":{},"prompts":{"listChanged":false},"resources":{"listChanged":true}}`, all, `{"resourcesListChanged":true}`},
		{`{"resources":{"subscribe":true}}`, all, `{"resourceSubscriptions":["x://1","x://2"]}`},
	}
	for _, tt := range tests {
		tr := actors(nil)
		tr.Capabilities = tt.capabilities
		on(t, troupe{Troupe: tr}, func(t *testing.T, s *stage) {
			r := s.subscribe(ann, `"\u0041"`, tt.filter)
			if got := r.told(); len(got) != 1 || got[0] != ack(`"\u0041"`, tt.honoured) {
				t.Errorf("%s of %s: told %q", tt.filter, tt.capabilities, got)
			}
			r.stop()
		})
	}
}

// TestListenNotifications: each subscription gets what it asked for, under its
// own id, and nothing is sent before the acknowledgement.
func TestListenNotifications(t *testing.T) {
	on(t, troupe{Troupe: actors(nil)}, func(t *testing.T, s *stage) {
		filters := []string{`{"toolsListChanged":true}`, `{"promptsListChanged":true,"resourcesListChanged":true}`, `{"resourceSubscriptions":["x://1"]}`, `{}`}
		ids := []string{`1`, `"1"`, `1e0`, `"four"`}
		var subs []*reply
		for i, f := range filters {
			subs = append(subs, s.subscribe(ann, ids[i], f))
		}
		a := s.troupe.Actors()[0]
		for _, method := range []string{"tools/list_changed", "prompts/list_changed", "resources/list_changed", "message", "elicitation/complete", "x/y"} {
			a.Say(`{"jsonrpc":"2.0","method":"notifications/%s"}`, method)
		}
		a.Say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://1","title":"<1.0>","_meta":{"n":1.0}}}`)
		a.Say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://2"}}`)
		a.Say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`)
		synctest.Wait()
		tag := func(id string) string { return `"io.modelcontextprotocol/subscriptionId":` + id }
		want := [][]string{
			{`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{` + tag(`1`) + `}}}`},
			{`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"_meta":{` + tag(`"1"`) + `}}}`,
				`{"jsonrpc":"2.0","method":"notifications/resources/list_changed","params":{"_meta":{` + tag(`"1"`) + `}}}`},
			{`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://1","title":"<1.0>","_meta":{"n":1.0,` + tag(`1e0`) + `}}}`},
			nil,
		}
		for i, r := range subs {
			if got := r.told()[1:]; !slices.Equal(got, want[i]) {
				t.Errorf("%s was told\n%q, want\n%q", filters[i], got, want[i])
			}
			if r.answer() != "" {
				t.Errorf("%s was answered %s", filters[i], r.answer())
			}
		}
		if n := s.host.InFlight(); n != 0 {
			t.Errorf("%d in flight: subscriptions must not hold up a shutdown", n)
		}
		subs[0].stop()
		a.Say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		s.host.Close(errOver)
		synctest.Wait()
		for i, r := range subs[1:] {
			want := `{"jsonrpc":"2.0","id":` + ids[i+1] + `,"result":{"resultType":"complete","_meta":{` + tag(ids[i+1]) + `}}}`
			if got := r.answer(); got != want {
				t.Errorf("the subscription ended with %q, want %s", got, want)
			}
		}
		if late := s.subscribeLate(); code(late) != "-32603" {
			t.Errorf("too late: %s", late)
		}
	})
}

func (s *stage) subscribeLate() string {
	return s.done(s.send(ann, ann.request(`"late"`, "subscriptions/listen", `"notifications":{}`)))
}

// TestListenCountsByReference: the server is asked once for each resource, and
// told once that nobody is left.
func TestListenCountsByReference(t *testing.T) {
	on(t, troupe{Troupe: actors(nil)}, func(t *testing.T, s *stage) {
		told := func() (out []string) {
			for _, line := range s.troupe.Told(`"method":"resources/`, "subscribe") {
				m, _ := jsonrpc.Parse([]byte(line))
				out = append(out, fmt.Sprintf("%s %s", m.Text(jsonrpc.Method)[10:], m.Text(jsonrpc.URI)))
			}
			slices.Sort(out)
			return out
		}
		expect := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			if got := told(); !slices.Equal(got, want) {
				t.Errorf("%s: the server was told %q, want %q", what, got, want)
			}
		}
		one := s.subscribe(ann, "1", `{"resourceSubscriptions":["x://a","x://b","x://a"]}`)
		expect("one", "subscribe x://a", "subscribe x://b")
		two := s.subscribe(ann, "2", `{"resourceSubscriptions":["x://b","x://c"]}`)
		expect("two", "subscribe x://a", "subscribe x://b", "subscribe x://c")
		one.stop()
		one.cancel("again")
		expect("one left", "subscribe x://a", "subscribe x://b", "subscribe x://c", "unsubscribe x://a")
		two.stop()
		expect("both left", "subscribe x://a", "subscribe x://b", "subscribe x://c", "unsubscribe x://a", "unsubscribe x://b", "unsubscribe x://c")
	})
}

// TestListenOnEveryLane: a conversation that is opened later hears of what is
// subscribed to, and one that is ended takes no subscription with it.
func TestListenOnEveryLane(t *testing.T) {
	on(t, troupe{Troupe: actors(nil), idle: time.Hour}, func(t *testing.T, s *stage) {
		w := asking("ada")
		sub := s.subscribe(w, `"s"`, `{"resourceSubscriptions":["x://a"]}`)
		long := s.call(w, "1", "sleep", `{"ms":60000}`, "")
		s.within(time.Minute, "the call", func() bool { return len(s.troupe.Told(`"sleep"`)) == 1 })
		other := s.call(w, "2", "echo", `{}`, "")
		s.done(other)
		s.within(time.Minute, "both are told", func() bool { return len(s.troupe.Told(`"resources/subscribe"`)) == 2 })
		s.done(long)
		time.Sleep(3 * time.Hour)
		s.host.Sweep(time.Now())
		synctest.Wait()
		if n := s.pool.Live(); n != 1 {
			t.Errorf("%d servers run, want the one that the subscription needs", n)
		}
		for _, a := range s.troupe.Actors() {
			a.Say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://a"}}`)
		}
		synctest.Wait()
		if got := sub.told(); len(got) != 2 {
			t.Errorf("told %q", got)
		}
		sub.stop()
	})
}

// TestListenOutlivesTheServer: a new process is subscribed again; a server that
// does not come back ends the subscription, so that its client notices.
func TestListenOutlivesTheServer(t *testing.T) {
	dead := false
	tr := actors(nil)
	tr.On = map[string]func(*testkit.Actor, *jsonrpc.Message){"initialize": func(a *testkit.Actor, m *jsonrpc.Message) {
		if dead {
			a.Refuse(string(m.Raw(jsonrpc.ID)), -32000, "no more")
			return
		}
		a.Reply(string(m.Raw(jsonrpc.ID)), `{"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true}},"serverInfo":{"name":"x","version":"1"}}`)
	}}
	on(t, troupe{Troupe: tr}, func(t *testing.T, s *stage) {
		sub := s.subscribe(ann, `"s"`, `{"resourceSubscriptions":["x://a"]}`)
		die := func() {
			for _, a := range s.troupe.Actors() {
				a.Die(errors.New("died"))
			}
			time.Sleep(time.Minute)
		}
		s.within(time.Second, "the subscription", func() bool { return len(s.troupe.Told(`"resources/subscribe"`)) == 1 })
		die()
		if n := len(s.troupe.Latest().Told(`"resources/subscribe"`, "x://a")); n != 1 {
			t.Errorf("the new process was told %d times", n)
		}
		s.troupe.Latest().Say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://a"}}`)
		synctest.Wait()
		if got := sub.told(); len(got) != 2 || sub.answer() != "" {
			t.Errorf("told %q, answered %q", got, sub.answer())
		}
		dead = true
		die()
		has(t, "the end", sub.answer(), `"id":"s"`, `"resultType":"complete"`, `"io.modelcontextprotocol/subscriptionId":"s"`)
	})
}

// TestListenIsCancelledEarly, before it is acknowledged.
func TestListenIsCancelledEarly(t *testing.T) {
	tr := actors(nil)
	tr.On = map[string]func(*testkit.Actor, *jsonrpc.Message){"initialize": func(a *testkit.Actor, m *jsonrpc.Message) {
		time.Sleep(5 * time.Second)
		a.Reply(string(m.Raw(jsonrpc.ID)), `{"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true}},"serverInfo":{"name":"x","version":"1"}}`)
	}}
	on(t, troupe{Troupe: tr, idle: time.Minute}, func(t *testing.T, s *stage) {
		r := s.send(ann, ann.request(`"s"`, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["x://a"]}`))
		time.Sleep(time.Second)
		r.stop()
		time.Sleep(time.Hour)
		s.host.Sweep(time.Now())
		synctest.Wait()
		if n := s.pool.Live(); n != 0 {
			t.Errorf("%d servers are kept for nobody", n)
		}
	})
}

// TestListenLeavesLogMessagesAlone: a subscription that ends makes the gateway
// unsubscribe. While the server takes its time with that, what it logs is still
// the one call's of a client.
func TestListenLeavesLogMessagesAlone(t *testing.T) {
	tr := actors(map[string]func(*testkit.ToolCall){"say": func(c *testkit.ToolCall) {
		c.Log("info", "x")
		c.Text("said")
	}})
	tr.On = map[string]func(*testkit.Actor, *jsonrpc.Message){"resources/unsubscribe": func(*testkit.Actor, *jsonrpc.Message) {}}
	on(t, troupe{Troupe: tr}, func(t *testing.T, s *stage) {
		w := ann
		w.meta = `,"io.modelcontextprotocol/logLevel":"info"`
		s.subscribe(w, "1", `{"resourceSubscriptions":["x://1"]}`).stop()
		s.within(time.Second, "the unsubscription", func() bool { return len(s.troupe.Told("resources/unsubscribe")) == 1 })
		r := s.call(w, "2", "say", `{}`, "")
		s.done(r)
		if got := r.told(); len(got) != 1 || raw(got[0], jsonrpc.Level) != `"info"` {
			t.Errorf("heard %q", got)
		}
	})
}
