package remote

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// sseServer is an HTTP+SSE server of one stream at a time, at /mcp.
type sseServer struct {
	mu       sync.Mutex
	session  int
	out      chan string                      // of the stream that is open; nil for none
	endpoint func(session int) string         // nil: /message?s=N
	post     func(id, method string) int      // status; 0: the usual
	answer   func(id, method string) []string // what goes out; nil: a result
	end      chan struct{}
	stay     bool // the session outlives the stream
	attached int
}

func (v *sseServer) serve(_ *stage, w http.ResponseWriter, r *http.Request, got seen) {
	switch {
	case got.verb == http.MethodGet && got.path == "/mcp":
		v.stream(w, r)
	case got.verb == http.MethodPost && strings.HasPrefix(got.path, "/message"):
		v.take(w, got)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func (v *sseServer) stream(w http.ResponseWriter, r *http.Request) {
	out, end := make(chan string, 100), make(chan struct{})
	v.mu.Lock()
	if !v.stay || v.session == 0 {
		v.session++
	}
	v.attached++
	v.out, v.end = out, end
	where := fmt.Sprint("/message?s=", v.session)
	if v.endpoint != nil {
		where = v.endpoint(v.session)
	}
	v.mu.Unlock()
	say(w, "event: endpoint\ndata: "+where+"\n\n")
	for {
		select {
		case text := <-out:
			say(w, "event: message\ndata: "+text+"\n\n")
		case <-end:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// cut ends the stream.
func (v *sseServer) cut() {
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.end)
}

func (v *sseServer) take(w http.ResponseWriter, got seen) {
	v.mu.Lock()
	defer v.mu.Unlock()
	id, method := got.id(), string(got.m.Text(jsonrpc.Method))
	if v.endpoint == nil && got.path != fmt.Sprint("/message?s=", v.session) {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if v.post != nil {
		if status := v.post(id, method); status != 0 {
			w.WriteHeader(status)
			return
		}
	}
	w.WriteHeader(http.StatusAccepted)
	switch {
	case v.answer != nil && v.answer(id, method) != nil:
		for _, text := range v.answer(id, method) {
			v.out <- text
		}
	case method == "initialize":
		v.out <- `{"jsonrpc":"2.0","id":` + id + `,"result":` + strings.Replace(greeting, "2025-11-25", "2024-11-05", 1) + `}`
	case got.m.Kind() == jsonrpc.Request:
		v.out <- `{"jsonrpc":"2.0","id":` + id + `,"result":{}}`
	}
}

func TestCase66FallsBackToHTTPSSE(t *testing.T) {
	for name, refuse := range map[string]func(w http.ResponseWriter){
		"405":       func(w http.ResponseWriter) { w.WriteHeader(http.StatusMethodNotAllowed) },
		"404 HTML":  func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound); _, _ = io.WriteString(w, "<html>") },
		"400 empty": func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadRequest) },
		"400 with an error": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := &sseServer{}
			memory := &Memory{}
			play(t, Options{Memory: memory}, func(s *stage, w http.ResponseWriter, r *http.Request, got seen) {
				if got.verb == http.MethodPost && got.path == "/mcp" {
					refuse(w)
					return
				}
				v.serve(s, w, r, got)
			}, func(s *stage) {
				s.handshake()
				s.send(call5)
				if got := s.await("5", time.Second); !strings.Contains(got, "result") {
					s.Error(got)
				}
				tried := s.requests(func(r seen) bool { return r.verb == http.MethodPost && r.path == "/mcp" })
				if len(tried) != 1 || len(s.gets()) != 1 {
					s.Errorf("%d tries of Streamable HTTP, %d GETs", len(tried), len(s.gets()))
				}
				if !memory.isEvents(s.link.name) {
					s.Error("not remembered")
				}
			})
			play(t, Options{Memory: memory}, v.serve, func(s *stage) {
				s.handshake()
				if tried := s.requests(func(r seen) bool { return r.path == "/mcp" && r.verb == http.MethodPost }); len(tried) != 0 {
					s.Error("what was found out was looked at again")
				}
			})
		})
	}
}

func TestWhatIsRememberedIsLookedAtAgain(t *testing.T) {
	memory := &Memory{}
	play(t, Options{Memory: memory}, legacy(func(s *stage, w http.ResponseWriter, _ *http.Request, got seen) {
		if got.verb == http.MethodGet && got.header.Get("Mcp-Session-Id") == "" {
			w.WriteHeader(http.StatusBadRequest)
		}
	}), func(s *stage) {
		memory.setEvents(s.link.name, true)
		s.handshake()
		if memory.isEvents(s.link.name) {
			s.Error("still remembered")
		}
	})
}

func TestCase66NeitherTransport(t *testing.T) {
	play(t, Options{}, func(_ *stage, w http.ResponseWriter, _ *http.Request, _ seen) {
		w.WriteHeader(http.StatusNotFound)
	}, func(s *stage) {
		s.send(hello)
		got := s.await("1", time.Minute)
		s.must(got, notExecuted)
		if _, code, status, text := s.outcome(got); code != codeLink || status != 404 || !strings.Contains(text, "HTTP+SSE") {
			s.Error(got)
		}
	})
}

func TestCase66RefusalsOfDiscover(t *testing.T) {
	for name, tt := range map[string]struct {
		status int
		body   string
		want   string
	}{
		"400 empty":       {400, "", `"status":400`},
		"404 HTML":        {404, "<html>", `"status":404`},
		"405":             {405, "", `"status":405`},
		"400 as JSON-RPC": {400, `{"jsonrpc":"2.0","id":0,"error":{"code":-32000,"message":"Bad Request: Server not initialized"}}`, `"code":-32000`},
		"null id":         {200, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"x"}}`, `"code":-32600`},
		"modern 400":      {400, `{"jsonrpc":"2.0","id":0,"error":{"code":-32022,"message":"x","data":{"supported":["2026-07-28"]}}}`, `"code":-32022`},
		"modern 404":      {404, `{"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"x"}}`, `"code":-32601`},
		"wrapped in 401":  {401, `{"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"x"}}`, `"status":401`},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Options{}, func(_ *stage, w http.ResponseWriter, _ *http.Request, _ seen) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}, func(s *stage) {
				s.send(`{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{%s}}`, modernRaw)
				if got := s.await("0", time.Second); !strings.Contains(got, tt.want) {
					s.Error(got)
				}
			})
		})
	}
}

func TestCase66ModernRefusalOfInitialize(t *testing.T) {
	play(t, Options{}, func(_ *stage, w http.ResponseWriter, _ *http.Request, got seen) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"x","data":{"supported":["2026-07-28"]}}}`, got.id())
	}, func(s *stage) {
		s.send(hello)
		if got := s.await("1", time.Second); !strings.Contains(got, "-32022") {
			s.Error(got)
		}
		if n := len(s.gets()); n != 0 {
			s.Errorf("%d GETs before a server that speaks the stateless era", n)
		}
	})
}

func TestCase67FailuresAreNoVerdict(t *testing.T) {
	var broken atomic.Bool
	broken.Store(true)
	memory := &Memory{}
	play(t, Options{Memory: memory}, legacy(func(_ *stage, w http.ResponseWriter, _ *http.Request, got seen) {
		if broken.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}), func(s *stage) {
		s.send(hello)
		s.must(s.await("1", time.Minute), unknown)
		if n := len(s.gets()); n != 0 || memory.isEvents(s.link.name) {
			s.Errorf("%d GETs, remembered: %v", n, memory.isEvents(s.link.name))
		}
		broken.Store(false)
		s.send("%s", strings.Replace(hello, `"id":1`, `"id":2`, 1))
		if got := s.await("2", time.Second); !strings.Contains(got, "result") {
			s.Error(got)
		}
	})
}

func TestCase57EndpointEvent(t *testing.T) {
	for name, tt := range map[string]struct {
		endpoint string
		posted   string // where; "": refused
	}{
		"relative":         {"message?s=1", "/message?s=1"},
		"absolute":         {"http://127.0.0.1:80/message?x=a%2Fb", "/message?x=a%2Fb"},
		"another origin":   {"http://10.0.0.1:8080/message", ""},
		"second one":       {"/message?s=1\n\nevent: endpoint\ndata: /message?s=2", "/message?s=1"},
		"evil second one":  {"/message?s=1\n\nevent: endpoint\ndata: http://evil.example/", "/message?s=1"},
		"without an event": {"\n\n: ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := &sseServer{endpoint: func(int) string { return tt.endpoint }}
			play(t, Options{}, v.serve, func(s *stage) {
				s.send(hello)
				got := s.await("1", time.Minute)
				posts := s.requests(func(r seen) bool { return r.verb == http.MethodPost && r.path != "/mcp" })
				switch {
				case tt.posted == "" && (len(posts) != 0 || !strings.Contains(got, "endpoint")):
					s.Errorf("posted %d times; %s", len(posts), got)
				case tt.posted != "" && (len(posts) != 1 || posts[0].path != tt.posted):
					s.Errorf("posts: %v; %s", posts, got)
				}
			})
		})
	}
}

func TestCase27EventStreamDies(t *testing.T) {
	v := &sseServer{}
	v.answer = func(_, method string) []string {
		if method == "tools/call" {
			return []string{progress}
		}
		return nil
	}
	play(t, Options{}, v.serve, func(s *stage) {
		s.handshake()
		s.send(call5)
		synctest.Wait()
		v.cut()
		s.must(s.await("5", 10*time.Second), unknown)
		time.Sleep(5 * time.Second)
		if s.renewals != 1 || len(s.posts("initialize")) != 3 || len(s.posts("notifications/initialized")) != 2 {
			s.Errorf("renewals %d, initialize %d (one refused), initialized %d", s.renewals, len(s.posts("initialize")), len(s.posts("notifications/initialized")))
		}
		s.send(`{"jsonrpc":"2.0","id":6,"method":"tools/list"}`)
		if got := s.await("6", time.Second); !strings.Contains(got, "result") {
			s.Error(got)
		}
		if n := len(s.posts("tools/call")); n != 1 {
			s.Errorf("executed %d times", n)
		}
	})
}

func TestEventStreamOfALastingSession(t *testing.T) {
	v := &sseServer{stay: true}
	v.answer = func(_, method string) []string {
		if method == "tools/call" {
			return []string{progress}
		}
		return nil
	}
	play(t, Options{}, v.serve, func(s *stage) {
		s.handshake()
		s.send(call5)
		synctest.Wait()
		v.cut()
		time.Sleep(5 * time.Second)
		if len(s.answers("5")) != 0 {
			s.Fatal(s.answers("5"))
		}
		v.mu.Lock()
		v.out <- answer5
		v.mu.Unlock()
		if got := s.await("5", time.Second); got != answer5 {
			s.Error(got)
		}
		if s.renewals != 0 || len(s.posts("initialize")) != 2 {
			s.Errorf("%d renewals, %d initialize", s.renewals, len(s.posts("initialize")))
		}
	})
}

func TestCase27EventStreamIsGoneForGood(t *testing.T) {
	v := &sseServer{}
	var gone atomic.Bool
	play(t, Options{}, func(s *stage, w http.ResponseWriter, r *http.Request, got seen) {
		if gone.Load() {
			cut(w)
			return
		}
		v.serve(s, w, r, got)
	}, func(s *stage) {
		s.handshake()
		v.mu.Lock()
		v.answer = func(string, string) []string { return []string{progress} }
		v.mu.Unlock()
		s.send(call5)
		synctest.Wait()
		gone.Store(true)
		v.cut()
		s.must(s.await("5", time.Minute), unknown)
		s.send(`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"x"}}`)
		s.must(s.await("6", time.Minute), notExecuted)
	})
}

func TestEventStreamSessionIsLost(t *testing.T) {
	v := &sseServer{}
	play(t, Options{}, v.serve, func(s *stage) {
		s.handshake()
		v.mu.Lock()
		v.session++ // as if the server had been started again behind a proxy that keeps the stream
		v.mu.Unlock()
		s.send(call5)
		if got := s.await("5", 10*time.Second); !strings.Contains(got, "result") {
			s.Error(got)
		}
		if s.renewals != 1 || len(s.posts("tools/call")) != 2 {
			s.Errorf("%d renewals, %d posts of the call", s.renewals, len(s.posts("tools/call")))
		}
	})
}

func TestEventStreamPostIsCut(t *testing.T) {
	v := &sseServer{}
	play(t, Options{}, func(s *stage, w http.ResponseWriter, r *http.Request, got seen) {
		if got.is("tools/call") {
			if got.id() == "5" {
				go func() { v.out <- answer5 }()
			}
			cut(w)
			return
		}
		v.serve(s, w, r, got)
	}, func(s *stage) {
		s.handshake()
		s.send(call5)
		if got := s.await("5", time.Second); got != answer5 {
			s.Error(got)
		}
		s.send("%s", strings.Replace(call5, "5", "6", 1))
		s.must(s.await("6", time.Minute), unknown)
	})
}
