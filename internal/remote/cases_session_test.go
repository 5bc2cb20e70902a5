package remote

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// forgetful is a server with sessions that loses them all at once.
type forgetful struct {
	mu      sync.Mutex
	current int
	status  int    // for unknown sessions; 0: 404
	body    string // likewise
	refuse  int    // status for another initialize; 0: none
}

func (f *forgetful) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current++
}

func (f *forgetful) serve(_ *stage, w http.ResponseWriter, _ *http.Request, got seen) {
	f.mu.Lock()
	current, again := fmt.Sprint("s", f.current), f.current > 0
	f.mu.Unlock()
	session := got.header.Get("Mcp-Session-Id")
	switch {
	case got.is("initialize") && again && f.refuse != 0:
		w.WriteHeader(f.refuse)
	case got.is("initialize") && session == "":
		w.Header().Set("Mcp-Session-Id", current)
		writeJSON(w, got.id(), greeting)
	case session != current:
		time.Sleep(100 * time.Millisecond) // so that all calls are on their way
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(cmp.Or(f.status, http.StatusNotFound))
		_, _ = w.Write([]byte(f.body))
	}
}

func TestCase40SessionIsRenewedInOneFlight(t *testing.T) {
	for name, tt := range map[string]*forgetful{
		"404":                 {},
		"404 with an error":   {body: `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`},
		"400 of the TS SDK":   {status: 400, body: `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`},
		"404 with plain text": {body: "Invalid or expired session"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Options{}, legacy(tt.serve), func(s *stage) {
				s.handshake()
				time.Sleep(time.Second)
				tt.forget()
				for id := 5; id < 8; id++ {
					s.send(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x"}}`, id)
				}
				for _, id := range []string{"5", "6", "7"} {
					if got := s.await(id, 5*time.Second); !strings.Contains(got, `"result"`) {
						s.Errorf("%s: %s", id, got)
					}
				}
				time.Sleep(5 * time.Second)
				if n := len(s.posts("initialize")); n != 2 {
					s.Errorf("%d initialize", n)
				}
				if n := len(s.posts("notifications/initialized")); n != 2 {
					s.Errorf("%d initialized", n)
				}
				if again := s.posts("initialize")[1]; string(again.m.Bytes()) == hello || !strings.Contains(string(again.m.Bytes()), `"name":"t"`) {
					s.Errorf("initialized again with %s", again.m.Bytes())
				}
				if n := len(s.posts("tools/call")); n != 6 && n != 4 && n != 5 {
					s.Errorf("%d posts for 3 calls", n)
				}
				gets := s.gets()
				if last := gets[len(gets)-1]; last.header.Get("Mcp-Session-Id") != "s1" || last.header.Get("Last-Event-Id") != "" {
					s.Errorf("the standing stream was not opened for the new session: %v", last.header)
				}
				if s.renewals != 1 {
					s.Errorf("%d times Renewed", s.renewals)
				}
			})
		})
	}
}

func TestCase40TheStandingStreamFindsOut(t *testing.T) {
	f := &forgetful{}
	first := true
	play(t, Options{}, legacy(func(s *stage, w http.ResponseWriter, r *http.Request, got seen) {
		f.serve(s, w, r, got)
		if got.verb == http.MethodGet && first {
			first = false
			say(w, ": hi\n\n")
			time.Sleep(3 * time.Second)
		}
	}), func(s *stage) {
		s.handshake()
		f.forget()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s.renewals != 1 || len(s.posts("initialize")) != 2 {
			s.Errorf("%d renewals, %d initialize", s.renewals, len(s.posts("initialize")))
		}
	})
}

func TestCase28NoStreamIsNotAskedForAgain(t *testing.T) {
	f := &forgetful{}
	play(t, Options{}, legacy(func(s *stage, w http.ResponseWriter, r *http.Request, got seen) {
		if got.verb == http.MethodGet {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		f.serve(s, w, r, got)
	}), func(s *stage) {
		s.handshake()
		f.forget()
		s.send(call5)
		s.await("5", time.Second)
		time.Sleep(time.Minute)
		if n := len(s.gets()); n != 1 {
			s.Errorf("%d GETs after a 405", n)
		}
	})
}

func TestCase40SecondRefusal(t *testing.T) {
	play(t, Options{}, legacy(func(_ *stage, w http.ResponseWriter, _ *http.Request, got seen) {
		if got.is("tools/call") {
			w.WriteHeader(http.StatusNotFound)
		}
	}), func(s *stage) {
		s.handshake()
		s.send(call5)
		got := s.await("5", 5*time.Second)
		s.must(got, notExecuted)
		if _, _, status, _ := s.outcome(got); status != 404 {
			s.Errorf("status %d", status)
		}
		if n := len(s.posts("tools/call")); n != 2 {
			s.Errorf("sent %d times", n)
		}
		if n := len(s.posts("initialize")); n != 2 {
			s.Errorf("%d initialize", n)
		}
		if len(s.closed) != 0 {
			s.Errorf("given up: %v", s.closed)
		}
	})
}

func TestCase40InitializeRefused(t *testing.T) {
	f := &forgetful{refuse: http.StatusBadRequest}
	play(t, Options{}, legacy(f.serve), func(s *stage) {
		s.handshake()
		f.forget()
		for id := 5; id < 8; id++ {
			s.send(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x"}}`, id)
		}
		for _, id := range []string{"5", "6", "7"} {
			s.must(s.await(id, 5*time.Second), notExecuted)
		}
		time.Sleep(time.Minute)
		if n := len(s.posts("initialize")); n != 2 {
			s.Errorf("%d initialize: a loop", n)
		}
		if len(s.closed) != 1 {
			s.Errorf("Closed %d times: whoever is above must know", len(s.closed))
		}
		if err := s.link.SendRaw([]byte(call5)); err == nil {
			s.Error("a message was taken after that")
		}
	})
}

func TestCase40ServerIsAnotherOne(t *testing.T) {
	var lost atomic.Bool
	play(t, Options{}, legacy(func(_ *stage, w http.ResponseWriter, _ *http.Request, got seen) {
		switch {
		case got.is("initialize") && lost.Load():
			w.Header().Set("Mcp-Session-Id", "s2")
			writeJSON(w, got.id(), strings.Replace(greeting, `"tools":{}`, `"prompts":{}`, 1))
		case got.is("tools/call"):
			lost.Store(true)
			w.WriteHeader(http.StatusNotFound)
		}
	}), func(s *stage) {
		s.handshake()
		s.send(call5)
		s.must(s.await("5", 5*time.Second), notExecuted)
		synctest.Wait()
		if len(s.closed) != 1 {
			s.Error("not given up")
		}
	})
}

// A new version of the server may do more: clients go on with what they know.
func TestCase40ServerHasGrown(t *testing.T) {
	var lost atomic.Bool
	play(t, Options{}, legacy(func(_ *stage, w http.ResponseWriter, _ *http.Request, got seen) {
		switch {
		case got.is("initialize") && lost.Load():
			w.Header().Set("Mcp-Session-Id", "s2")
			writeJSON(w, got.id(), strings.Replace(greeting, `"tools":{}`, `"tools":{"listChanged":true},"prompts":{}`, 1))
		case got.is("tools/call") && got.header.Get("Mcp-Session-Id") == "s1":
			lost.Store(true)
			w.WriteHeader(http.StatusNotFound)
		}
	}), func(s *stage) {
		s.handshake()
		s.send(call5)
		if got := s.await("5", 5*time.Second); !strings.Contains(got, `"result"`) || len(s.closed) != 0 {
			s.Errorf("answered %s, given up %v", got, s.closed)
		}
	})
}

func TestCase39UnknownMethodIsNoLostSession(t *testing.T) {
	play(t, Options{}, legacy(func(_ *stage, w http.ResponseWriter, _ *http.Request, got seen) {
		if got.is("tools/call") {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":5,"error":{"code":-32601,"message":"no such method"}}`))
		}
	}), func(s *stage) {
		s.handshake()
		s.send(call5)
		if got := s.await("5", time.Second); !strings.Contains(got, "-32601") {
			s.Error(got)
		}
		if n := len(s.posts("initialize")); n != 1 {
			s.Errorf("%d initialize", n)
		}
	})
}

func TestCase60HeadersAfterInitialize(t *testing.T) {
	play(t, Options{}, legacy(func(_ *stage, w http.ResponseWriter, _ *http.Request, got seen) {
		if got.is("initialize") {
			w.Header().Set("mcp-session-id", "s1")
			writeJSON(w, got.id(), strings.Replace(greeting, "2025-11-25", "2025-06-18", 1))
		}
	}), func(s *stage) {
		s.handshake()
		s.send(call5)
		s.await("5", time.Second)
		s.link.Stop()
		verbs := map[string]bool{}
		for _, r := range s.requests(func(seen) bool { return true }) {
			verbs[r.verb] = true
			session, version := r.header.Get("Mcp-Session-Id"), r.header.Get("Mcp-Protocol-Version")
			if r.is("initialize") {
				if session != "" || version != "" {
					s.Errorf("initialize with %v", r.header)
				}
			} else if session != "s1" || version != "2025-06-18" {
				s.Errorf("%s with session %q, version %q", r.verb, session, version)
			}
			if r.verb == http.MethodPost && (r.header.Get("Content-Type") != "application/json" || r.header.Get("Accept") != "application/json, text/event-stream") {
				s.Errorf("POST with %v", r.header)
			}
		}
		if !verbs[http.MethodDelete] || !verbs[http.MethodGet] {
			s.Errorf("verbs: %v", verbs)
		}
	})
}

func TestStopIsBounded(t *testing.T) {
	play(t, Options{}, legacy(func(_ *stage, w http.ResponseWriter, r *http.Request, got seen) {
		if got.verb == http.MethodDelete || got.is("tools/call") || got.is("notifications/x") {
			<-r.Context().Done()
			cut(w)
		}
	}), func(s *stage) {
		s.handshake()
		s.send(call5)
		s.send(`{"jsonrpc":"2.0","method":"notifications/x"}`)
		synctest.Wait()
		began := time.Now()
		s.link.Stop()
		if took := time.Since(began); took > 3*time.Second {
			s.Errorf("took %s", took)
		}
		s.must(s.await("5", 0), unknown)
	})
}

// A probe ends while the server still opens a session for it: that server would
// keep the session, and what it started for it.
func TestStopEndsASessionThatIsBeingOpened(t *testing.T) {
	for name, tt := range map[string]struct {
		begins time.Duration // until the response does
		ends   time.Duration // until the answer is there
		ended  int
	}{
		"the response has begun": {0, time.Minute, 1},
		"it begins soon":         {time.Second, time.Second, 1},
		"it does not begin":      {time.Minute, time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Options{}, legacy(func(_ *stage, w http.ResponseWriter, _ *http.Request, got seen) {
				if got.is("initialize") {
					w.Header().Set("Mcp-Session-Id", "s1")
					time.Sleep(tt.begins)
					say(w, ": soon\n\n")
					time.Sleep(tt.ends - tt.begins)
					say(w, fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", got.id(), greeting))
				}
			}), func(s *stage) {
				s.send(hello)
				synctest.Wait()
				began := time.Now()
				s.link.Stop()
				if took := time.Since(began); took > 5*time.Second {
					s.Errorf("took %s", took)
				}
				ended := s.requests(func(r seen) bool { return r.verb == http.MethodDelete && r.header.Get("Mcp-Session-Id") == "s1" })
				if len(ended) != tt.ended {
					s.Errorf("%d requests to end the session, want %d", len(ended), tt.ended)
				}
			})
		})
	}
}

func TestNothingOvertakesTheHandshake(t *testing.T) {
	play(t, Options{}, legacy(func(_ *stage, _ http.ResponseWriter, _ *http.Request, got seen) {
		if got.is("initialize") || got.is("notifications/initialized") {
			time.Sleep(2 * time.Second)
		}
	}), func(s *stage) {
		s.send(hello)
		s.send(greeted)
		s.send(call5)
		s.send(`{"jsonrpc":"2.0","method":"notifications/a"}`)
		s.send(`{"jsonrpc":"2.0","method":"notifications/b"}`)
		s.await("5", 10*time.Second)
		synctest.Wait()
		all := s.requests(func(r seen) bool { return r.verb == http.MethodPost })
		began := all[0].at
		for _, r := range all {
			want := map[string]time.Duration{"initialize": 0, "notifications/initialized": 2 * time.Second}
			at, ok := want[string(r.m.Text(3))]
			if !ok {
				at = 4 * time.Second
			}
			if got := r.at.Sub(began); got < at {
				s.Errorf("%s after %s, want %s", r.m.Bytes(), got, at)
			}
		}
		var notes []string
		for _, r := range all {
			if r.is("notifications/a") || r.is("notifications/b") {
				notes = append(notes, string(r.m.Text(3)))
			}
		}
		if strings.Join(notes, " ") != "notifications/a notifications/b" {
			s.Errorf("order of notifications: %v", notes)
		}
	})
}
