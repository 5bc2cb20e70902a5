package conversation

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// The words of a link that could not ask its server.
const (
	nobodyThere = `{"code":-32000,"message":"connection refused","data":{"outcome":"not_executed"}}`
	notLetIn    = `{"code":-32000,"message":"HTTP 401","data":{"outcome":"not_executed","status":401}}`
	notFound    = `{"code":-32000,"message":"HTTP 404","data":{"outcome":"not_executed","status":404}}`
)

func TestUnreached(t *testing.T) {
	for fault, want := range map[string]bool{
		nobodyThere: true, notLetIn: true, notFound: false,
		`{"code":-32000,"data":{"outcome":"unknown","status":503}}`:      true,
		`{"code":-32000,"data":{"outcome":"not_executed","status":429}}`: true,
		`{"code":-32000,"data":{"outcome":"not_executed","status":400}}`: false,
		`{"code":-32601,"message":"unknown method"}`:                     false,
		`{"code":-32000,"data":{"status":503}}`:                          false,
		`{"code":-32000,"data":[]}`:                                      false,
	} {
		m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"error":` + fault + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := unreached(m); got != want {
			t.Errorf("%s: %v", fault, got)
		}
	}
}

// A server that was not reached has not refused the handshake: nothing else is
// tried, and the client is told.
func TestInitializeThatWasNotDelivered(t *testing.T) {
	for _, fault := range []string{nobodyThere, notLetIn} {
		bubble(t, func(t *testing.T) {
			s := begin(t, false)
			defer s.end()
			c := s.join("a")
			call := c.call(clientHello, `"i"`, "2025-06-18", `{}`, "a")
			hello := s.latest().next()
			s.latest().say(`{"jsonrpc":"2.0","id":%s,"error":%s}`, hello.ID, fault)
			if got := c.answer(call); !strings.Contains(got, fault) {
				t.Errorf("answered %q", got)
			}
			if got := s.latest().heard(); len(got) > 0 {
				t.Errorf("the server was sent %q", got)
			}
		})
	}
}

// Nor does it say what the server speaks: the next client asks again.
func TestProbeThatWasNotDelivered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := probe(t, PoolOptions{Options: Options{Remote: true}})
		p.server().say(`{"jsonrpc":"2.0","id":%s,"error":%s}`, p.discover().ID, nobodyThere)
		<-p.done
		if p.err == nil || p.conv != nil {
			t.Fatalf("%v, %v", p.conv, p.err)
		}
		p.again()
		p.server().say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, p.discover().ID, discovered)
		<-p.done
		if p.err != nil || p.conv == nil {
			t.Errorf("%v, %v", p.conv, p.err)
		}
		p.pool.Close(errors.New("test ended"))
	})
}

// A server that was given a new session is told again what it is to send, and
// its questions are withdrawn.
func TestRenewed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		defer s.end()
		c := s.open("a")
		srv := s.latest()
		for _, request := range []string{
			`"method":"logging/setLevel","params":{"level":"error"}`, `"method":"resources/subscribe","params":{"uri":"x://1"}`,
		} {
			call := c.call(`{"jsonrpc":"2.0","id":1,%s}`, request)
			srv.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, srv.next().ID)
			if c.answer(call) == "" {
				t.Fatal("no answer")
			}
		}
		tool := c.tool("7")
		running := srv.next()
		srv.say(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		question := parse(t, c.told()[0])

		srv.h.(interface{ Renewed() }).Renewed()
		equal(t, "told again", methods(t, srv.heard()), []string{"logging/setLevel{level:error}", "resources/subscribe{uri:x://1}"})
		withdrawn := c.told()
		if len(withdrawn) != 1 || !strings.Contains(withdrawn[0], `"requestId":`+string(question.ID)) {
			t.Errorf("the client was told %q", withdrawn)
		}
		c.conv.Reply(c, c.message(`{"jsonrpc":"2.0","id":%s,"result":{"roots":[]}}`, question.ID))
		if got := srv.heard(); len(got) > 0 {
			t.Errorf("the new session was sent %q", got)
		}
		srv.say(`{"jsonrpc":"2.0","id":%s,"result":{"x":1}}`, running.ID)
		if !strings.Contains(c.answer(tool), `{"x":1}`) {
			t.Errorf("answered %q", c.answer(tool))
		}
	})
}

// A remote server that refuses a new session goes on to be tried: it may only
// be away.
func TestRemoteRefusesForAWhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		defer s.end()
		c := s.open("a")
		s.conv.opts.Remote = true
		s.latest().die(errors.New("it refuses a new session"))
		restarted()
		for range 3 {
			hello := s.latest().next()
			s.latest().say(`{"jsonrpc":"2.0","id":%s,"error":%s}`, hello.ID, notFound)
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		s.latest().greet(serverResult)
		if got := s.latest().next(); got.Method != "notifications/initialized" {
			t.Errorf("then came %s", got.line)
		}
		if err := c.over(); err != nil {
			t.Errorf("the session is over: %v", err)
		}
	})
}

// A remote server that wants a session all of a sudden is asked what it speaks.
func TestRemoteChangesItsEra(t *testing.T) {
	for name, tt := range map[string]struct {
		fault, then string
		over        bool
	}{
		"it still speaks it":     {notFound, `"result":` + discovered, false},
		"it is gone":             {`{"code":-32000,"message":"Bad Request: Server not initialized"}`, `"error":` + nobodyThere, false},
		"it does not any more":   {`{"code":-32000,"message":"Bad Request: Server not initialized"}`, `"error":{"code":-32000,"message":"no"}`, true},
		"nothing is there":       {notFound, `"error":` + notFound, true},
		"an error like any":      {`{"code":-32602,"message":"no such tool"}`, "", false},
		"an error of its time":   {`{"code":-32022,"message":"version","data":{"supported":["2026-07-28"]}}`, "", false},
		"it was not reached now": {nobodyThere, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := probe(t, PoolOptions{Options: Options{Remote: true}})
				p.server().say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, p.discover().ID, discovered)
				<-p.done
				if p.err != nil || p.conv == nil {
					t.Fatalf("%v, %v", p.conv, p.err)
				}
				c := &client{t: t, name: "a", conv: p.conv, answers: map[*Call]string{}}
				if err := p.conv.Join(c); err != nil {
					t.Fatal(err)
				}
				srv := p.server()
				for range 2 { // it is asked once at a time
					call := c.tool("7")
					asked := srv.one("tools/call")
					srv.say(`{"jsonrpc":"2.0","id":%s,"error":%s}`, asked.ID, tt.fault)
					if !strings.Contains(c.answer(call), tt.fault) {
						t.Errorf("answered %q", c.answer(call))
					}
					if tt.then != "" {
						srv.say(`{"jsonrpc":"2.0","id":%s,%s}`, srv.one("server/discover").ID, tt.then)
					}
					synctest.Wait()
					if (c.over() != nil) != tt.over {
						t.Fatalf("over: %v", c.over())
					}
					if tt.over {
						break
					}
				}
				p.pool.Close(errors.New("test ended"))
			})
		})
	}
}
