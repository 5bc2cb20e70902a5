package exchange

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/testkit"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// letters is what an inbox's client gets.
type letters struct {
	mu  sync.Mutex // guards the field below
	all []string
}

func (l *letters) emit(msg []byte, _ bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(msg))
}

// find returns those that hold all the words.
func (l *letters) find(words ...string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
next:
	for _, m := range l.all {
		for _, w := range words {
			if !strings.Contains(m, w) {
				continue next
			}
		}
		out = append(out, m)
	}
	return out
}

func (b *Inbox) take(t testing.TB, format string, args ...any) {
	t.Helper()
	m, err := jsonrpc.Parse(fmt.Appendf(nil, format, args...))
	if err != nil {
		t.Fatal(err)
	}
	b.Take(m)
}

// inboxes runs a test before servers of both eras.
func inboxes(t *testing.T, f func(t *testing.T, s *stage, b *Inbox, got *letters)) {
	t.Helper()
	for _, stateless := range []bool{false, true} {
		t.Run(fmt.Sprintf("stateless=%v", stateless), func(t *testing.T) {
			on(t, troupe{Troupe: &testkit.Troupe{Handshake: !stateless, Stateless: stateless}}, func(t *testing.T, s *stage) {
				got := &letters{}
				f(t, s, &Inbox{Host: s.host, Principal: "stdio", Emit: got.emit}, got)
			})
		})
	}
}

const cancelNote = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`

// TestInboxCancel: by notifications/cancelled, of the one request that it names.
func TestInboxCancel(t *testing.T) {
	inboxes(t, func(t *testing.T, s *stage, b *Inbox, got *letters) {
		for _, id := range []string{`1`, `"1"`, `2`} {
			b.take(t, "%s", ann.request(id, "tools/call", `"name":"sleep","arguments":{"ms":10000}`))
		}
		s.within(time.Second, "three calls", func() bool { return len(s.troupe.Told(`"sleep"`)) == 3 })
		for _, wrong := range []string{`3`, `1.0`, `null`, `{}`} {
			b.take(t, cancelNote, wrong)
		}
		b.take(t, `{"jsonrpc":"2.0","method":"notifications/cancelled"}`)
		b.take(t, cancelNote, `"1"`)
		b.take(t, cancelNote, `"1"`)
		s.within(100*time.Millisecond, "the cancellation", func() bool { return len(s.troupe.Told("notifications/cancelled")) == 1 })
		time.Sleep(time.Minute)
		if len(got.find(`"id":1,`, "slept")) != 1 || len(got.find(`"id":2,`, "slept")) != 1 || len(got.find()) != 2 {
			t.Errorf("the client got %q", got.find())
		}
		if n := len(s.troupe.Told("notifications/cancelled")); n != 1 {
			t.Errorf("%d cancellations", n)
		}
		if b.InFlight() != 0 {
			t.Errorf("%d in flight", b.InFlight())
		}
	})
}

// TestInboxCancelEarly: before it is known what the server speaks.
func TestInboxCancelEarly(t *testing.T) {
	on(t, troupe{Troupe: actors(nil), max: 1}, func(t *testing.T, s *stage) {
		got := &letters{}
		b := &Inbox{Host: s.host, Principal: "stdio", Emit: got.emit}
		hold := s.call(asking("other"), "1", "sleep", `{"ms":30000}`, "")
		s.within(time.Second, "the place is taken", func() bool { return len(s.troupe.Told(`"sleep"`)) == 1 })
		b.take(t, "%s", ann.request(`1`, "tools/call", `"name":"echo"`))
		time.Sleep(5 * time.Second)
		b.take(t, cancelNote, `1`)
		s.done(hold)
		time.Sleep(time.Minute)
		if all := got.find(); len(all) > 0 {
			t.Errorf("after the cancellation came %q", all)
		}
	})
}

// TestInboxFailures come as answers, and what is no request is let go.
func TestInboxFailures(t *testing.T) {
	inboxes(t, func(t *testing.T, s *stage, b *Inbox, got *letters) {
		b.take(t, "%s", ann.request(`"a"`, "initialize", ""))
		b.take(t, `{"jsonrpc":"2.0","id":"b","method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2099-01-01"}}}`)
		b.take(t, `{"jsonrpc":"2.0","method":"notifications/x","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`)
		b.take(t, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		synctest.Wait()
		if len(got.find(`"id":"a"`, "-32601")) != 1 || len(got.find(`"id":"b"`, "-32022")) != 1 || len(got.find()) != 2 {
			t.Errorf("the client got %q", got.find())
		}
	})
}

// TestInboxSameID: an id that is in flight cannot be used again.
func TestInboxSameID(t *testing.T) {
	inboxes(t, func(t *testing.T, s *stage, b *Inbox, got *letters) {
		b.take(t, "%s", ann.request(`7`, "tools/call", `"name":"sleep","arguments":{"ms":5000}`))
		b.take(t, "%s", ann.request(`7`, "tools/call", `"name":"echo"`))
		synctest.Wait()
		if len(got.find(`"id":7`, "-32600")) != 1 {
			t.Errorf("the client got %q", got.find())
		}
		time.Sleep(time.Minute)
		b.take(t, "%s", ann.request(`7`, "tools/call", `"name":"sleep","arguments":{"ms":1}`))
		time.Sleep(time.Minute)
		if len(got.find(`"id":7`, "slept")) != 2 || len(s.troupe.Told(`"echo"`)) != 0 {
			t.Errorf("the client got %q", got.find())
		}
	})
}

// TestInboxListen: subscriptions share the channel; each is told by its id. One
// that the gateway ends is ended by a result and, as the transport wants, by a
// cancellation (2026-07-28 basic/patterns/cancellation); one that the client
// ends by neither.
func TestInboxListen(t *testing.T) {
	inboxes(t, func(t *testing.T, s *stage, b *Inbox, got *letters) {
		for _, id := range []string{`1`, `"one"`, `2`} {
			b.take(t, "%s", ann.request(id, "subscriptions/listen", `"notifications":{"toolsListChanged":true}`))
			s.within(time.Second, "the acknowledgement", func() bool {
				return len(got.find("acknowledged", `"io.modelcontextprotocol/subscriptionId":`+id+`}`)) == 1
			})
		}
		a := s.troupe.Latest()
		if s.troupe.Stateless {
			a.Tell("toolsListChanged", "notifications/tools/list_changed", `{}`)
		} else {
			for _, a := range s.troupe.Actors() {
				a.Say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			}
		}
		synctest.Wait()
		if n := len(got.find("tools/list_changed")); n != 3 {
			t.Errorf("told %q", got.find("tools/list_changed"))
		}
		b.take(t, cancelNote, `2`)
		s.host.Close(errOver)
		synctest.Wait()
		for _, id := range []string{`1`, `"one"`} {
			if len(got.find(`{"jsonrpc":"2.0","id":`+id+`,"result":{"resultType":"complete"`)) != 1 || len(got.find(fmt.Sprintf(cancelNote, id))) != 1 {
				t.Errorf("subscription %s: the client got %q", id, got.find())
			}
		}
		if len(got.find(`"id":2`)) != 0 || len(got.find(fmt.Sprintf(cancelNote, `2`))) != 0 {
			t.Errorf("after it was cancelled came %q", got.find())
		}
	})
}

// TestInboxClose: the client has gone; all that it asked for is cancelled.
func TestInboxClose(t *testing.T) {
	inboxes(t, func(t *testing.T, s *stage, b *Inbox, got *letters) {
		b.take(t, "%s", ann.request(`1`, "tools/call", `"name":"sleep","arguments":{"ms":10000}`))
		s.within(time.Second, "the call", func() bool { return len(s.troupe.Told(`"sleep"`)) == 1 })
		b.Close()
		b.Close()
		s.within(100*time.Millisecond, "the cancellation", func() bool { return len(s.troupe.Told("notifications/cancelled")) == 1 })
		b.take(t, "%s", ann.request(`2`, "tools/call", `"name":"sleep","arguments":{"ms":10000}`))
		time.Sleep(time.Minute)
		if len(got.find()) != 0 || s.host.InFlight() != 0 {
			t.Errorf("the client got %q, %d in flight", got.find(), s.host.InFlight())
		}
	})
}

// TestInboxQuestions: they travel as results here, too.
func TestInboxQuestions(t *testing.T) {
	on(t, troupe{Troupe: actors(quiz())}, func(t *testing.T, s *stage) {
		got := &letters{}
		b := &Inbox{Host: s.host, Principal: "stdio", Emit: got.emit}
		w := asking("ada")
		b.take(t, "%s", w.request(`1`, "tools/call", `"name":"once","arguments":{}`))
		s.within(time.Second, "a question", func() bool { return len(got.find(`"id":1,`)) == 1 })
		q := s.questions(got.find(`"id":1,`)[0])
		b.take(t, "%s", w.request(`2`, "tools/call", `"name":"once","arguments":{}`+q.all(`{"action":"accept"}`)))
		s.within(time.Second, "the answer", func() bool { return len(got.find(`"id":2,`)) == 1 })
		if answer := text(t, got.find(`"id":2,`)[0]); answer != `got {"action":"accept"}` {
			t.Errorf("answered %s", answer)
		}
	})
}

// TestAsk: a request of the gateway's own in a client's name.
func TestAsk(t *testing.T) {
	inboxes(t, func(t *testing.T, s *stage, _ *Inbox, _ *letters) {
		like, err := jsonrpc.Parse([]byte(who{name: "ada", meta: `,"progressToken":1,"io.modelcontextprotocol/logLevel":"debug"`}.request("1", "tools/call", "")))
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.host.Ask(t.Context(), "p", like, "tools/list", []byte(`{"cursor":"\u0041"}`))
		if err != nil || string(jsonrpc.Get(got, "tools")) != `[{"name":"echo","inputSchema":{"type":"object"}}]` {
			t.Errorf("got %s, %v", got, err)
		}
		line := s.troupe.Told(`"tools/list"`)[0]
		if strings.Contains(line, "progressToken") || strings.Contains(line, "logLevel") || !strings.Contains(line, `"cursor":"\u0041"`) {
			t.Errorf("the server was sent %s", line)
		}
		if _, err := s.host.Ask(t.Context(), "p", like, "no/such", []byte(`{}`)); err == nil || !strings.Contains(err.Error(), "-32601") {
			t.Errorf("an error answer: %v", err)
		}
		if _, err := s.host.Ask(t.Context(), "p", like, "initialize", []byte(`{}`)); err == nil {
			t.Error("a method that is not there was asked")
		}
	})
}
