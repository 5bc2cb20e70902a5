package remote

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const call5 = `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"x"}}`

// once serves tools/call with f, and the rest like a good server.
func once(f func(s *stage, w http.ResponseWriter, r *http.Request, got seen)) script {
	return legacy(func(s *stage, w http.ResponseWriter, r *http.Request, got seen) {
		if got.is("tools/call") {
			f(s, w, r, got)
		}
	})
}

func TestCase19NothingIsSentTwice(t *testing.T) {
	for name, end := range map[string]func(w http.ResponseWriter){
		"without a byte": cut,
		"after the head": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"a proxy gives up": func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) },
		"stream without ids": func(w http.ResponseWriter) {
			say(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":5}}\n\n")
		},
		"202": func(w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted) },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Options{}, once(func(_ *stage, w http.ResponseWriter, _ *http.Request, _ seen) { end(w) }), func(s *stage) {
				s.handshake()
				s.send(call5)
				s.must(s.await("5", time.Second), unknown)
				time.Sleep(5 * time.Minute)
				if n := len(s.posts("tools/call")); n != 1 {
					s.Errorf("executed %d times", n)
				}
			})
		})
	}
}

func TestCase19WhatChangesNothingIsTriedAgain(t *testing.T) {
	tries := 0
	play(t, Options{}, legacy(func(_ *stage, w http.ResponseWriter, _ *http.Request, got seen) {
		if got.is("tools/list") {
			if tries++; tries < 3 {
				cut(w)
			}
		}
	}), func(s *stage) {
		s.handshake()
		s.send(`{"jsonrpc":"2.0","id":5,"method":"tools/list"}`)
		if got := s.await("5", 5*time.Second); !strings.Contains(got, `"result"`) {
			s.Error(got)
		}
	})
}

const answer5 = `{"jsonrpc":"2.0","id":5,"result":{"ok":true}}`

func TestCase21To24Dialects(t *testing.T) {
	half := len(`{"jsonrpc":"2.0",`)
	for name, stream := range map[string]string{
		"C21 CRLF":             "event: message\r\ndata: " + answer5 + "\r\n\r\n",
		"C21 CR":               "event: message\rdata: " + answer5 + "\r\r",
		"C21 mixed, two lines": "event: message\r\ndata: " + answer5[:half] + "\ndata: " + answer5[half:] + "\r\n\n",
		"C21 unterminated":     "data: " + answer5,
		"C22 priming":          "id: 1\nretry: 500\ndata: \n\nid: 2\ndata: " + answer5 + "\n\n",
		"C22 no space":         "id: 1\ndata:\n\nid: 2\ndata: " + answer5 + "\n\n",
		"C22 no data":          "id: 1\n\nid: 2\ndata: " + answer5 + "\n\n",
		"C23 no event field":   "data: " + answer5 + "\n\n",
		"C23 empty event":      "event:\ndata: " + answer5 + "\n\n",
		"C24 noise": ": keep-alive\n\nevent: ping\ndata: 2025-10-31\n\ndata: {\"type\":\"heartbeat\"}\n\nevent: reconnect\n\nnonsense\n\n" +
			"data: " + answer5 + "\n\n",
	} {
		for _, step := range []int{1, 1 << 20} {
			t.Run(fmt.Sprintf("%s by %d", name, step), func(t *testing.T) {
				play(t, Options{}, once(func(_ *stage, w http.ResponseWriter, _ *http.Request, _ seen) {
					for i := 0; i < len(stream); i += step {
						say(w, stream[i:min(len(stream), i+step)])
					}
				}), func(s *stage) {
					s.handshake()
					s.send(call5)
					if got := s.await("5", time.Second); got != answer5 && got != strings.Replace(answer5, ",", ",\n", 1) {
						s.Errorf("got %q", got)
					}
					if len(s.gets()) != 1 {
						s.Errorf("%d GETs", len(s.gets()))
					}
					if n := s.link.up.junk; n != strings.Count(stream, "heartbeat") {
						s.Errorf("%d events were taken for broken messages", n)
					}
				})
			})
		}
	}
}

func TestCase26TooLong(t *testing.T) {
	long := `{"jsonrpc":"2.0","id":5,"result":"` + strings.Repeat("x", 5000) + `"}`
	for name, serve := range map[string]func(w http.ResponseWriter){
		"one body": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(long))
		},
		"an event": func(w http.ResponseWriter) { say(w, "data: "+long+"\n\n") },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Options{MaxMessage: 1000}, once(func(_ *stage, w http.ResponseWriter, _ *http.Request, got seen) {
				if got.id() == "5" {
					serve(w)
				}
			}), func(s *stage) {
				s.handshake()
				s.send(call5)
				s.must(s.await("5", time.Second), executed)
				s.send("%s", strings.Replace(call5, "5", "6", 1))
				if got := s.await("6", time.Second); !strings.Contains(got, "result") {
					s.Error(got)
				}
			})
		})
	}
}

const progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":5,"progress":1}}`

func TestCase27StreamIsResumed(t *testing.T) {
	play(t, Options{}, legacy(func(s *stage, w http.ResponseWriter, _ *http.Request, got seen) {
		switch {
		case got.is("tools/call"):
			say(w, "retry: 700\nid: 5\ndata: "+progress+"\n\n")
			panic(http.ErrAbortHandler)
		case got.verb == http.MethodGet && got.header.Get("Last-Event-Id") == "5":
			say(w, "id: 6\ndata: "+progress+"\n\n") // and ends again
		case got.verb == http.MethodGet && got.header.Get("Last-Event-Id") == "6":
			say(w, "id: 7\ndata: "+answer5+"\n\n")
		}
	}), func(s *stage) {
		s.handshake()
		began := time.Now()
		s.send(call5)
		if got := s.await("5", 10*time.Second); got != answer5 {
			s.Error(got)
		}
		resumed := s.requests(func(r seen) bool { return r.header.Get("Last-Event-Id") != "" })
		if len(resumed) != 2 || len(s.posts("tools/call")) != 1 {
			s.Fatalf("%d resumptions, %d calls", len(resumed), len(s.posts("tools/call")))
		}
		if wait := resumed[0].at.Sub(began); wait < 700*time.Millisecond || wait > 900*time.Millisecond {
			s.Errorf("resumed after %s, asked for were 700 ms", wait)
		}
		for _, r := range resumed {
			if r.header.Get("Mcp-Session-Id") != "s1" || r.header.Get("Mcp-Protocol-Version") != "2025-11-25" {
				s.Errorf("headers of the resumption: %v", r.header)
			}
		}
		if n := len(s.got("notifications/progress")); n != 2 {
			s.Errorf("%d progress notifications", n)
		}
	})
}

func TestCase27ResumptionIsRefused(t *testing.T) {
	for name, refuse := range map[string]func(w http.ResponseWriter){
		"405":             func(w http.ResponseWriter) { w.WriteHeader(http.StatusMethodNotAllowed) },
		"404":             func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) },
		"400":             func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadRequest) },
		"text":            func(w http.ResponseWriter) { _, _ = w.Write([]byte("hello")) },
		"dead for ever":   cut,
		"503 for ever":    func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
		"401 for ever":    func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) },
		"409 for a while": func(w http.ResponseWriter) { w.WriteHeader(http.StatusConflict) },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Options{}, legacy(func(_ *stage, w http.ResponseWriter, _ *http.Request, got seen) {
				switch {
				case got.is("tools/call"):
					say(w, "id: 5\ndata: "+progress+"\n\n")
				case got.verb == http.MethodGet && got.header.Get("Last-Event-Id") != "":
					refuse(w)
				}
			}), func(s *stage) {
				s.handshake()
				s.send(call5)
				s.must(s.await("5", 2*time.Minute), unknown)
				if n := len(s.posts("tools/call")); n != 1 {
					s.Errorf("executed %d times", n)
				}
			})
		})
	}
}

func TestCase27HalfOpenIsFoundAndResumed(t *testing.T) {
	play(t, Options{IdleTimeout: time.Minute}, legacy(func(_ *stage, w http.ResponseWriter, r *http.Request, got seen) {
		switch {
		case got.is("tools/call"):
			say(w, "id: 5\ndata: "+progress+"\n\n")
			<-r.Context().Done() // and nothing more
		case got.header.Get("Last-Event-Id") == "5":
			say(w, "id: 6\ndata: "+answer5+"\n\n")
		}
	}), func(s *stage) {
		s.handshake()
		s.send(call5)
		if got := s.await("5", 2*time.Minute); got != answer5 {
			s.Error(got)
		}
	})
}

func TestSilenceEndsNothingThatCannotBeResumed(t *testing.T) {
	play(t, Options{IdleTimeout: time.Minute}, once(func(_ *stage, w http.ResponseWriter, _ *http.Request, _ seen) {
		say(w, "data: "+progress+"\n\n")
		time.Sleep(time.Hour)
		say(w, "data: "+answer5+"\n\n")
	}), func(s *stage) {
		s.handshake()
		s.send(call5)
		if got := s.await("5", 2*time.Hour); got != answer5 {
			s.Error(got)
		}
	})
}

func TestCase27Modern(t *testing.T) {
	play(t, Options{}, func(_ *stage, w http.ResponseWriter, _ *http.Request, got seen) {
		say(w, "id: 5\nretry: 100\ndata: "+progress+"\n\n")
	}, func(s *stage) {
		s.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"x",%s}}`, modernRaw)
		s.must(s.await("5", time.Second), unknown)
		if n := len(s.requests(func(seen) bool { return true })); n != 1 {
			s.Errorf("%d requests", n)
		}
	})
}

func TestCase28NoReconnectStorm(t *testing.T) {
	for name, tt := range map[string]struct {
		serve func(w http.ResponseWriter)
		most  int // GETs in an hour
	}{
		"ends at once": {func(w http.ResponseWriter) { say(w, ": hi\n\n") }, 150},
		"retry 1":      {func(w http.ResponseWriter) { say(w, "retry: 1\n\n") }, 150},
		"priming":      {func(w http.ResponseWriter) { say(w, "id: 1\nretry: 1\ndata: \n\n") }, 150},
		"dies":         {cut, 150},
		"503":          {func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }, 150},
		"401":          {func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) }, 150},
		"text/plain":   {func(w http.ResponseWriter) { _, _ = w.Write([]byte("ok")) }, 1},
		"405":          {func(w http.ResponseWriter) { w.WriteHeader(http.StatusMethodNotAllowed) }, 1},
		"204":          {func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Options{}, legacy(func(_ *stage, w http.ResponseWriter, _ *http.Request, got seen) {
				if got.verb == http.MethodGet {
					tt.serve(w)
				}
			}), func(s *stage) {
				s.handshake()
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if n := len(s.gets()); n > 5 || n < 1 {
					s.Errorf("%d GETs in 5 s", n)
				}
				time.Sleep(time.Hour)
				if n := len(s.gets()); n > tt.most {
					s.Errorf("%d GETs in an hour, want %d at the most", n, tt.most)
				}
				s.send(call5)
				if got := s.await("5", time.Second); !strings.Contains(got, "result") {
					s.Error(got)
				}
			})
		})
	}
}

func TestCase28AStreamThatDeliversComesBackSoon(t *testing.T) {
	play(t, Options{}, legacy(func(_ *stage, w http.ResponseWriter, _ *http.Request, got seen) {
		if got.verb == http.MethodGet {
			say(w, "retry: 1000\n\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n")
		}
	}), func(s *stage) {
		s.handshake()
		time.Sleep(time.Minute)
		if n := len(s.got("notifications/tools/list_changed")); n < 50 || n > 61 {
			s.Errorf("%d events in a minute of streams that last no time and retry after a second", n)
		}
	})
}
