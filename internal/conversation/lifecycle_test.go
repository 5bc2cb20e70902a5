package conversation

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/stdio"
)

var killed = &stdio.ExitError{Name: "kid", PID: 7, Code: -1, Signal: "killed", Stderr: "last \"words\"\n"}

// TestStartTimeout: C18. The time runs from the initialize of the client, and
// ends a server that does not answer it.
func TestStartTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		time.Sleep(time.Hour) // a spare server may wait for its client
		c := s.join("a")
		call := c.call(clientHello, `1`, "2025-06-18", `{}`, "a")
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if c.answer(call) != "" || c.over() != nil {
			t.Fatalf("given up early: %s", c.answer(call))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		got := parse(t, c.answer(call))
		if got.Error == nil || got.Error.Code != -32603 || !strings.Contains(got.Error.Message, "--start-timeout") || string(got.Error.Data) != `{"outcome":"unknown"}` {
			t.Errorf("answered %s", got.line)
		}
		if c.over() == nil || s.started() != 1 {
			t.Errorf("over: %v, %d servers", c.over(), s.started())
		}
		s.end()
	})
}

// TestStartTimeoutIsOver once initialize is answered.
func TestStartTimeoutIsOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, shared := range []bool{false, true} {
			s := begin(t, shared)
			if shared {
				time.Sleep(59 * time.Second)
				s.latest().greet(serverResult)
			} else {
				s.open("a")
			}
			time.Sleep(24 * time.Hour)
			if err := s.conv.Err(); err != nil || s.started() != 1 {
				t.Errorf("shared %v: %v, %d servers", shared, err, s.started())
			}
			s.end()
		}
	})
}

// TestDeathAnswersEachCall: C35. At once, each once, saying how it ended.
func TestDeathAnswersEachCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c := s.open("a")
		srv := s.latest()
		var calls []*Call
		for id := range 100 {
			calls = append(calls, c.tool(fmt.Sprint(id)))
		}
		ups := srv.heard()
		srv.say(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		minted := parse(t, c.told()[0]).ID
		srv.die(killed)
		for _, call := range calls {
			want := `{"jsonrpc":"2.0","id":` + string(call.ID) + `,"error":{"code":-32603,"message":"MCP server \"kid\" ended: killed by signal: killed",` +
				`"data":{"outcome":"unknown","exit":"killed by signal: killed","stderr":"last \"words\"\n"}}}`
			if got := c.answer(call); got != want {
				t.Fatalf("answered %s", got)
			}
		}
		equal(t, "the open question", c.told(), []string{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` +
			string(minted) + `,"reason":"the server that asked has ended"}}`})
		// What the dead one still says, and what is said to it, goes nowhere.
		srv.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, parse(t, ups[0]).ID)
		srv.say(`{"jsonrpc":"2.0","method":"notifications/x"}`)
		srv.say(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
		srv.say(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		srv.h.Oversize(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":"`, parse(t, ups[1]).ID), 5000)
		s.conv.Reply(c, c.message(`{"jsonrpc":"2.0","id":%s,"result":{}}`, minted))
		equal(t, "from the dead", c.told(), nil)
		equal(t, "to the dead", srv.heard(), nil)
		s.end()
	})
}

// tellAll tells a server, by a client, what a restart must repeat and what not.
func tellAll(t *testing.T, c *client, srv *server) {
	t.Helper()
	settle := func(ok bool, format string, args ...any) {
		t.Helper()
		c.call(format, args...)
		if up := srv.next(); ok {
			srv.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, up.ID)
		} else {
			srv.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no"}}`, up.ID)
		}
	}
	settle(true, `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}`)
	settle(true, `{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"error", "x":1.0}}`)
	settle(false, `{"jsonrpc":"2.0","id":3,"method":"logging/setLevel","params":{"level":"loud"}}`)
	for id, uri := range []string{"a://1", "a://2", "a://3"} {
		settle(true, `{"jsonrpc":"2.0","id":%d,"method":"resources/subscribe","params":{"uri":%q}}`, 10+id, uri)
	}
	settle(true, `{"jsonrpc":"2.0","id":20,"method":"resources/unsubscribe","params":{"uri":"a://2"}}`)
	settle(false, `{"jsonrpc":"2.0","id":21,"method":"resources/subscribe","params":{"uri":"a://4"}}`)
	settle(false, `{"jsonrpc":"2.0","id":22,"method":"resources/unsubscribe","params":{"uri":"a://3"}}`)
}

// TestRestartRetells: the new server is told what the old one had been told,
// then what was held meanwhile, in order.
func TestRestartRetells(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c := s.open("a")
		srv := s.latest()
		tellAll(t, c, srv)
		srv.die(killed)
		during := c.tool(`"held"`) // while there is no server
		dropped := c.tool(`"dropped"`)
		s.conv.Cancel(dropped, c.message(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"dropped"}}`))
		c.notify(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
		restarted()
		if s.started() != 2 {
			t.Fatalf("%d servers were started", s.started())
		}
		srv = s.latest()
		hello := srv.next()
		if want := fmt.Sprintf(clientHello, hello.ID, "2025-06-18", `{"elicitation":{}}`, "a"); hello.line != want {
			t.Errorf("the handshake is\n%s\nwant\n%s", hello.line, want)
		}
		later := c.tool(`"later"`) // while the handshake is under way
		equal(t, "before its answer", srv.heard(), nil)
		srv.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, hello.ID, serverResult)
		again := srv.heard()
		got := methods(t, again)
		if len(got) == 7 { // subscriptions are in no order
			slices.Sort(got[2:4])
		}
		equal(t, "retold", got[:min(4, len(got))], []string{
			"notifications/initialized", "logging/setLevel{level:error, x:1.0}", "resources/subscribe{uri:a://1}", "resources/subscribe{uri:a://3}",
		})
		if len(again) != 7 || parse(t, again[4]).Method != "tools/call" || got[5] != "notifications/roots/list_changed" || parse(t, again[6]).Method != "tools/call" {
			t.Fatalf("told %q", again)
		}
		for i, call := range map[int]*Call{4: during, 6: later} {
			srv.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, parse(t, again[i]).ID)
			if c.answer(call) == "" {
				t.Errorf("call %s was not answered", call.ID)
			}
		}
		for _, i := range []int{1, 2, 3} { // nobody waits for these answers
			srv.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, parse(t, again[i]).ID)
		}
		equal(t, "the client heard", c.told(), nil)
		if c.answer(dropped) != "" || c.over() != nil {
			t.Errorf("the cancelled call: %s, over: %v", c.answer(dropped), c.over())
		}
		s.end()
	})
}

// TestRestartedServerIsAnother: the session must end when the server is not the
// one that the client knows.
func TestRestartedServerIsAnother(t *testing.T) {
	for _, tc := range []struct {
		name, result string
		same         bool
	}{
		{"the same", serverResult, true},
		{"spelled otherwise", `{"serverInfo":{"name":"other"},"capabilities":{"logging":{},"tools":{}},"protocolVersion":"2025-06-18","instructions":"x"}`, true},
		{"a capability less", `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{}}`, false},
		{"a capability more", `{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"logging":{},"prompts":{}},"serverInfo":{}}`, true},
		{"a detail more", `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{}}`, true},
		{"another version", `{"protocolVersion":"2025-03-26","capabilities":{"tools":{},"logging":{}},"serverInfo":{}}`, false},
		{"nonsense", `7`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := begin(t, false)
				c := s.open("a")
				s.latest().die(killed)
				restarted()
				held := c.tool(`1`)
				s.latest().greet(tc.result)
				if tc.same {
					if c.over() != nil || c.answer(held) != "" {
						t.Errorf("over: %v, answered %s", c.over(), c.answer(held))
					}
				} else if got := c.answer(held); !errors.Is(c.over(), ErrChanged) || !strings.Contains(got, `{"outcome":"not_executed"}`) {
					t.Errorf("over: %v, answered %s", c.over(), got)
				}
				s.end()
			})
		})
	}
	t.Run("refused", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := begin(t, false)
			c := s.open("a")
			s.latest().die(killed)
			restarted()
			s.latest().say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no"}}`, s.latest().next().ID)
			if !errors.Is(c.over(), ErrClosed) {
				t.Errorf("over: %v", c.over())
			}
			s.end()
		})
	})
}

// TestPromiseOfARestartedServer: a client goes by what it was told, so that a
// server may take back what it has added since; of a shared one, what the latest
// handshake promised, since somebody may have been told that.
func TestPromiseOfARestartedServer(t *testing.T) {
	const more = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"logging":{},"prompts":{}},"serverInfo":{}}`
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c := s.open("a")
		for _, result := range []string{more, serverResult} {
			s.latest().die(killed)
			time.Sleep(time.Minute)
			s.latest().greet(result)
		}
		if c.over() != nil {
			t.Errorf("over: %v", c.over())
		}
		s.end()
	})
	bubble(t, func(t *testing.T) {
		s, srv := sharedStage(t)
		old := s.introduce("old", `{}`)
		srv.die(killed)
		restarted()
		s.latest().greet(more)
		young := s.join("young")
		call := young.call(clientHello, `"i"`, "2025-06-18", `{}`, "young")
		if got := young.answer(call); !strings.Contains(got, `"prompts":{}`) {
			t.Errorf("who joins then is told %s", got)
		}
		s.latest().die(killed)
		time.Sleep(time.Minute)
		s.latest().greet(serverResult)
		if !errors.Is(young.over(), ErrChanged) || !errors.Is(old.over(), ErrChanged) {
			t.Errorf("over: %v, %v", young.over(), old.over())
		}
		s.end()
	})
}

// TestBackoff: the first restart is at once, the next ones are not; a life of
// ten seconds starts it over. What comes while the wait is long is refused.
func TestBackoff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c := s.open("a")
		var waits []time.Duration
		die := func() {
			t.Helper()
			died, n := time.Now(), s.started()
			s.latest().die(killed)
			for s.started() == n {
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
				if time.Since(died) > time.Minute {
					t.Fatal("it is not started again")
				}
			}
			synctest.Wait() // until it has been greeted
			s.mu.Lock()
			waits = append(waits, s.when[n].Sub(died))
			s.mu.Unlock()
			s.latest().greet(serverResult)
			s.latest().heard()
		}
		for range 8 {
			die()
		}
		time.Sleep(11 * time.Second)
		die()
		ms := time.Millisecond
		if want := []time.Duration{0, 500 * ms, 1000 * ms, 2000 * ms, 4000 * ms, 8000 * ms, 16000 * ms, 30000 * ms, 0}; !slices.Equal(waits, want) {
			t.Errorf("waited %v, want %v", waits, want)
		}
		for range 2 { // 500 ms, then 1 s: a call can wait for that
			s.latest().die(killed)
			time.Sleep(1100 * time.Millisecond)
			synctest.Wait()
			s.latest().greet(serverResult)
		}
		s.latest().die(killed) // 2 s
		if _, err := c.try(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`); err == nil || !strings.Contains(err.Error(), "keeps ending") {
			t.Errorf("a call meanwhile: %v", err)
		}
		time.Sleep(1500 * time.Millisecond) // not long now
		call := c.tool(`2`)
		time.Sleep(time.Second)
		synctest.Wait()
		s.latest().greet(serverResult)
		told := s.latest().heard()
		s.latest().say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, parse(t, told[len(told)-1]).ID)
		if c.answer(call) == "" {
			t.Error("the call was lost")
		}
		s.end()
	})
}

// TestRestartThatFails is tried again, and what waits for it is not kept
// waiting.
func TestRestartThatFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c := s.open("a")
		s.farm.mu.Lock()
		s.farm.fail = fmt.Errorf("%w: not found", stdio.ErrStart)
		s.farm.mu.Unlock()
		s.latest().die(killed)
		call := c.tool(`1`)
		time.Sleep(time.Second) // the restart at once, or the next one, has failed
		synctest.Wait()
		if got := parse(t, c.answer(call)); got.Error == nil || string(got.Error.Data) != `{"outcome":"not_executed"}` || !strings.Contains(got.Error.Message, "not found") {
			t.Errorf("answered %s", got.line)
		}
		if !errors.Is(s.conv.Err(), stdio.ErrStart) || c.over() != nil {
			t.Errorf("Err %v, over %v", s.conv.Err(), c.over())
		}
		time.Sleep(9 * time.Second) // after 0, 0.5, 1.5, 3.5, 7.5 s
		synctest.Wait()
		if n := s.started(); n != 6 {
			t.Errorf("%d starts in 10 s, the first one too, want 6", n)
		}
		s.farm.mu.Lock()
		s.farm.fail = nil
		s.farm.mu.Unlock()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		s.latest().greet(serverResult)
		if err := s.conv.Err(); err != nil {
			t.Errorf("Err %v", err)
		}
		s.end()
	})
}

// TestRestartThatHangs: a restarted server has its start time-out too, and what
// was held for it is answered.
func TestRestartThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c := s.open("a")
		s.latest().die(killed)
		restarted()
		call := c.tool(`1`)
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if got := c.answer(call); !strings.Contains(got, "--start-timeout") || !strings.Contains(got, `{"outcome":"not_executed"}`) {
			t.Errorf("answered %s", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s.started() < 3 || c.over() != nil {
			t.Errorf("%d servers, over: %v", s.started(), c.over())
		}
		s.latest().greet(serverResult)
		s.latest().heard()
		ok := c.tool(`2`)
		s.latest().say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, s.latest().next().ID)
		if c.answer(ok) == "" {
			t.Error("the server that answers is not used")
		}
		s.end()
	})
}

// TestHeldIsBounded: what waits for a server may not take all memory.
func TestHeldIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		c := s.open("a")
		s.latest().die(killed)
		restarted()
		big := strings.Repeat("x", 10<<20)
		var last error
		for id := range 4 {
			_, last = c.try(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"a":"%s"}}`, id, big)
		}
		if !errors.Is(last, stdio.ErrBusy) || s.conv.InFlight() != 3 {
			t.Errorf("40 MiB are held: %v, %d calls", last, s.conv.InFlight())
		}
		s.latest().die(killed)
		c.mu.Lock()
		if len(c.answers) != 4 { // initialize among them
			t.Errorf("%d answers", len(c.answers))
		}
		c.mu.Unlock()
		s.end()
	})
}

// TestDeathWithoutClients: a server that nobody uses is not started again.
func TestDeathWithoutClients(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := begin(t, false)
		s.latest().die(killed)
		time.Sleep(time.Minute)
		select {
		case <-s.conv.Ready():
		default:
			t.Error("nobody was told")
		}
		if err := s.conv.Err(); err != error(killed) || s.started() != 1 {
			t.Errorf("Err %v, %d servers", err, s.started())
		}
		s.end()
	})
	bubble(t, func(t *testing.T) { // before initialize was answered: how would it go on?
		s := begin(t, false)
		c := s.join("a")
		call := c.call(clientHello, `1`, "2025-06-18", `{}`, "a")
		s.latest().die(killed)
		if got := c.answer(call); !strings.Contains(got, "killed by signal") || c.over() == nil {
			t.Errorf("answered %s, over: %v", got, c.over())
		}
		time.Sleep(time.Minute)
		if s.started() != 1 {
			t.Errorf("%d servers", s.started())
		}
		s.end()
	})
}

func TestStartFails(t *testing.T) {
	f := &farm{t: t, fail: stdio.ErrStart}
	if _, err := Start(Options{Dial: f.dial}); !errors.Is(err, stdio.ErrStart) {
		t.Errorf("got %v", err)
	}
}

func TestDeathAnswer(t *testing.T) {
	for _, tc := range []struct {
		err  error
		sent bool
		want string
	}{
		{errors.New("x"), true, `{"outcome":"unknown"}`},
		{errors.New("x"), false, `{"outcome":"not_executed"}`},
		{fmt.Errorf("y: %w", &stdio.ExitError{Code: 17}), true, `{"outcome":"unknown","exit":"exited with status 17"}`},
	} {
		got := parse(t, string(DeathAnswer([]byte(`"i"`), "kid", tc.err, tc.sent)))
		if string(got.ID) != `"i"` || got.Error == nil || got.Error.Code != -32603 || string(got.Error.Data) != tc.want {
			t.Errorf("%v: %s", tc.err, got.line)
		}
	}
}
