package remote

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// C42, the link's part: whatever it had at the server is given back, and nothing
// is kept of sessions that are gone.
func TestCase42NothingIsLeftOfSessions(t *testing.T) {
	f := &forgetful{}
	var mu sync.Mutex
	open := 0 // streams at the server
	play(t, Options{}, func(s *stage, w http.ResponseWriter, r *http.Request, got seen) {
		if got.verb == http.MethodGet {
			mu.Lock()
			open++
			mu.Unlock()
			defer func() {
				mu.Lock()
				open--
				mu.Unlock()
			}()
		}
		legacy(f.serve)(s, w, r, got)
	}, func(s *stage) {
		s.handshake()
		time.Sleep(time.Second)
		for n := range 5 { // it is lost five times
			f.forget()
			s.send(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x"}}`, 10+n)
			s.await(fmt.Sprint(10+n), 5*time.Second)
			time.Sleep(time.Second)
		}
		mu.Lock()
		if open != 1 {
			s.Errorf("%d streams are open", open)
		}
		mu.Unlock()
		s.link.mu.Lock()
		if len(s.link.pending) != 0 || len(s.link.queue) != 0 || s.link.waiting != 0 || s.link.errands != 0 {
			s.Errorf("%d requests, %d messages, %d bytes, %d errands are left", len(s.link.pending), len(s.link.queue), s.link.waiting, s.link.errands)
		}
		s.link.mu.Unlock()
		s.link.Stop()
		synctest.Wait()
		ended := s.requests(func(r seen) bool { return r.verb == http.MethodDelete })
		if len(ended) != 1 || ended[0].header.Get("Mcp-Session-Id") != "s5" {
			s.Errorf("the sessions that were ended: %v", ended)
		}
		if open != 0 {
			s.Errorf("%d streams are open after the end", open)
		}
	})
}

// C43 (ii): a new token goes on with the session, which belongs to its user; the
// session goes with no request that has no token.
func TestCase43ANewTokenKeepsTheSession(t *testing.T) {
	token := "one"
	o := Options{Header: func() http.Header { return http.Header{"Authorization": {"Bearer " + token}} }}
	play(t, o, legacy(nil), func(s *stage) {
		s.handshake()
		token = "two"
		s.send(call5)
		if got := s.await("5", time.Second); !strings.Contains(got, `"result"`) {
			s.Error(got)
		}
		calls := s.posts("tools/call")
		if len(calls) != 1 || calls[0].header.Get("Mcp-Session-Id") != "s1" || calls[0].header.Get("Authorization") != "Bearer two" {
			s.Errorf("called with %v", calls)
		}
		if n := len(s.posts("initialize")); n != 1 {
			s.Errorf("%d initialize", n)
		}
		for _, r := range s.requests(func(r seen) bool { return r.header.Get("Mcp-Session-Id") != "" }) {
			if r.header.Get("Authorization") == "" {
				s.Errorf("%s with a session and without a token", r.verb)
			}
		}
	})
}

// C51: members in another case are unknown ones, and what has one of them twice is
// no answer; each answer that was meant well comes through as it is spelled.
func TestCase51CaseAndDuplicates(t *testing.T) {
	const fine = `{"jsonrpc":"2.0","ID":6,"Result":{"x":1},"id":5,"result":{"a":1,"A":2,"a":3},"Error":{"code":1}}`
	for name, tt := range map[string]struct{ body, want string }{
		"another case":            {fine, fine},
		"the id twice":            {`{"jsonrpc":"2.0","id":5,"id":6,"result":{}}`, unknown},
		"the result twice":        {`{"jsonrpc":"2.0","id":5,"result":{},"result":{"x":1}}`, unknown},
		"no id but in other case": {`{"jsonrpc":"2.0","Id":5,"result":{}}`, unknown},
		"a result and an error":   {`{"jsonrpc":"2.0","id":5,"result":{},"error":{"code":1,"message":"x"}}`, unknown},
	} {
		for _, streamed := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", streamed: ", streamed), func(t *testing.T) {
				play(t, Options{ReconnectWait: time.Second}, once(func(_ *stage, w http.ResponseWriter, _ *http.Request, _ seen) {
					if streamed {
						say(w, "data: "+tt.body+"\n\n")
						return
					}
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, tt.body)
				}), func(s *stage) {
					s.handshake()
					s.send(call5)
					got := s.await("5", 10*time.Second)
					if tt.want == unknown {
						s.must(got, unknown)
					} else if got != tt.want {
						s.Errorf("answered %s", got)
					}
					if n := len(s.answers("6")); n != 0 {
						s.Errorf("an answer to 6: %q", s.answers("6"))
					}
					if n := len(s.posts("tools/call")); n != 1 {
						s.Errorf("sent %d times", n)
					}
				})
			})
		}
	}
}

// C58: a server that guards against browsers and DNS rebinding sees the name that
// it was called by, and no Origin; if it refuses, its reason is told.
func TestCase58HostAndOrigin(t *testing.T) {
	const why = "Host h.example is not allowed: set --allow-host"
	for name, refuses := range map[string]bool{"let in": false, "refused": true} {
		t.Run(name, func(t *testing.T) {
			play(t, Options{URL: "http://h.example:8080/mcp"}, func(s *stage, w http.ResponseWriter, r *http.Request, got seen) {
				if r.Host != "h.example:8080" || got.header["Origin"] != nil || got.header["X-Forwarded-Host"] != nil || got.header["Forwarded"] != nil {
					t.Errorf("%s %q with %v", r.Method, r.Host, got.header)
				}
				if refuses {
					http.Error(w, why, http.StatusForbidden)
					return
				}
				legacy(nil)(s, w, r, got)
			}, func(s *stage) {
				if !refuses {
					s.handshake()
					return
				}
				s.send(hello)
				got := s.await("1", time.Second)
				if _, _, status, text := s.outcome(got); status != 403 || !strings.Contains(text, why) {
					s.Errorf("answered %s", got)
				}
				if n := len(s.gets()) + len(s.posts("initialize")); n != 1 {
					s.Errorf("%d requests", n)
				}
			})
		})
	}
}
