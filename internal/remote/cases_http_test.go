package remote

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/stdio"
)

func encoded(t *testing.T, coding, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "zlib":
		w = zlib.NewWriter(&b)
	case "raw":
		var err error
		if w, err = flate.NewWriter(&b, 6); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestCase52Encodings(t *testing.T) {
	for name, tt := range map[string]struct {
		header string
		body   []byte
		want   string // outcome; "": the answer
	}{
		"gzip":                {"gzip", encoded(t, "gzip", answer5), ""},
		"x-gzip, other case":  {"X-GZip", encoded(t, "gzip", answer5), ""},
		"deflate":             {"deflate", encoded(t, "zlib", answer5), ""},
		"deflate as sent":     {"deflate", encoded(t, "raw", answer5), ""},
		"identity":            {"identity", []byte(answer5), ""},
		"two":                 {"deflate, gzip", encoded(t, "gzip", string(encoded(t, "zlib", answer5))), ""},
		"br":                  {"br", []byte("\x0b\x02\x80nonsense"), executed},
		"not what it says":    {"gzip", []byte(answer5), unknown},
		"larger than allowed": {"gzip", encoded(t, "gzip", `{"jsonrpc":"2.0","id":5,"result":"`+strings.Repeat("x", 1<<20)+`"}`), executed},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Options{MaxMessage: 100_000}, once(func(_ *stage, w http.ResponseWriter, _ *http.Request, _ seen) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Encoding", tt.header)
				_, _ = w.Write(tt.body)
			}), func(s *stage) {
				s.handshake()
				s.send(call5)
				got := s.await("5", time.Second)
				switch {
				case tt.want == "" && got != answer5:
					s.Error(got)
				case tt.want != "":
					s.must(got, tt.want)
				}
				if ask := s.posts("tools/call")[0].header.Get("Accept-Encoding"); ask != "identity" {
					s.Errorf("asked for %q", ask)
				}
			})
		})
	}
}

func TestCase52CompressedStreamIsNotHeldBack(t *testing.T) {
	play(t, Options{}, once(func(_ *stage, w http.ResponseWriter, _ *http.Request, _ seen) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Type", "text/event-stream")
		z := gzip.NewWriter(w)
		for _, text := range []string{"data: " + progress + "\n\n", "data: " + answer5 + "\n\n"} {
			_, _ = io.WriteString(z, text)
			_ = z.Flush()
			_ = http.NewResponseController(w).Flush()
			time.Sleep(10 * time.Second)
		}
		_ = z.Close()
	}), func(s *stage) {
		s.handshake()
		s.send(call5)
		time.Sleep(time.Second)
		if len(s.got("notifications/progress")) != 1 {
			s.Error("the first event did not come")
		}
		s.await("5", 15*time.Second)
	})
}

func TestCase52WrongLength(t *testing.T) {
	play(t, Options{}, once(func(_ *stage, w http.ResponseWriter, _ *http.Request, _ seen) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, answer5)
	}), func(s *stage) {
		s.handshake()
		s.send(call5)
		if got := s.await("5", time.Second); got != answer5 {
			s.Error(got)
		}
	})
}

func TestCase54RepliesToNotifications(t *testing.T) {
	for name, reply := range map[string]func(w http.ResponseWriter){
		"200 empty": func(http.ResponseWriter) {},
		"200 null": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "null")
		},
		"204":      func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) },
		"202 text": func(w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted); _, _ = io.WriteString(w, "Accepted") },
		"chunked":  func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK); _ = http.NewResponseController(w).Flush() },
		"stream":   func(w http.ResponseWriter) { say(w, ": \n\n") },
		"500":      func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Options{}, legacy(func(_ *stage, w http.ResponseWriter, _ *http.Request, got seen) {
				if got.is("notifications/initialized") {
					w.Header().Set("X-Served", "1")
					reply(w)
					if t, ok := w.(*touched); ok {
						t.done = true
					}
				}
			}), func(s *stage) {
				s.handshake()
				s.send(call5)
				if got := s.await("5", time.Second); !strings.Contains(got, "result") {
					s.Error(got)
				}
				if lines := s.all(); len(lines) != 2 {
					s.Errorf("handed up: %q", lines)
				}
			})
		})
	}
}

func TestCase56Redirects(t *testing.T) {
	for name, tt := range map[string]struct {
		status int
		to     string
		want   string // part of the error; "": the answer
	}{
		"307":                {307, "/mcp/", ""},
		"308":                {308, "http://127.0.0.1:80/mcp/", ""},
		"308 elsewhere":      {308, "http://evil.example/mcp", "http://evil.example/mcp"},
		"307 another port":   {307, "http://127.0.0.1:81/mcp", "another origin"},
		"http to https":      {307, "https://127.0.0.1/mcp", "https://127.0.0.1/mcp"},
		"301":                {301, "/mcp/", "http://127.0.0.1:80/mcp/"},
		"302":                {302, "/mcp/", "makes a GET"},
		"303":                {303, "/login?secret=1", "/login"},
		"loop":               {307, "/mcp", "more than 5"},
		"without an address": {307, "", "Location"},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Header: func() http.Header { return http.Header{"Authorization": {"Bearer t"}} }}
			play(t, o, legacy(func(_ *stage, w http.ResponseWriter, _ *http.Request, got seen) {
				if got.is("tools/call") && got.path == "/mcp" {
					if tt.to != "" {
						w.Header().Set("Location", tt.to)
					}
					w.WriteHeader(tt.status)
				}
			}), func(s *stage) {
				s.handshake()
				s.send(call5)
				got := s.await("5", time.Second)
				if tt.want == "" {
					calls := s.posts("tools/call")
					if !strings.Contains(got, `"result"`) || len(calls) != 2 || calls[1].path != "/mcp/" || calls[1].header.Get("Authorization") != "Bearer t" ||
						calls[1].header.Get("Mcp-Session-Id") != "s1" || !bytes.Equal(calls[1].m.Bytes(), []byte(call5)) {
						s.Errorf("%s; %v", got, calls)
					}
					return
				}
				s.must(got, notExecuted)
				if !strings.Contains(got, tt.want) || strings.Contains(got, "secret") {
					s.Error(got)
				}
			})
		})
	}
}

func TestCase61Challenge(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		play(t, Options{}, legacy(func(_ *stage, w http.ResponseWriter, _ *http.Request, got seen) {
			if got.is("tools/call") {
				w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="https://up/x"`)
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":5,"error":{"code":-32601,"message":"who are you"}}`)
			}
		}), func(s *stage) {
			s.handshake()
			s.send(call5)
			got := s.await("5", time.Second)
			s.must(got, notExecuted)
			if _, code, is, text := s.outcome(got); code != codeLink || is != status || !strings.Contains(text, "who are you") ||
				!strings.Contains(got, `"www_authenticate":"Bearer resource_metadata=\"https://up/x\""`) {
				s.Error(got)
			}
			if n := len(s.posts("tools/call")); n != 1 {
				s.Errorf("sent %d times", n)
			}
		})
	}
}

func TestCase62TokenIsReadForEachRequest(t *testing.T) {
	token := "old"
	o := Options{Header: func() http.Header { return http.Header{"Authorization": {token}} }}
	play(t, o, legacy(func(_ *stage, w http.ResponseWriter, _ *http.Request, got seen) {
		if got.is("tools/call") && got.header.Get("Authorization") == "old" {
			token = "new"
			w.WriteHeader(http.StatusUnauthorized)
		}
	}), func(s *stage) {
		s.handshake()
		s.send(call5)
		if got := s.await("5", time.Second); !strings.Contains(got, "result") {
			s.Error(got)
		}
		if n := len(s.posts("tools/call")); n != 2 {
			s.Errorf("sent %d times", n)
		}
	})
}

func TestCase62RefusedForGood(t *testing.T) {
	n := 0
	o := Options{Header: func() http.Header { n++; return http.Header{"Authorization": {fmt.Sprint("token ", n)}} }}
	play(t, o, once(func(_ *stage, w http.ResponseWriter, _ *http.Request, _ seen) { w.WriteHeader(http.StatusUnauthorized) }), func(s *stage) {
		s.handshake()
		s.send(call5)
		s.must(s.await("5", time.Second), notExecuted)
		if n := len(s.posts("tools/call")); n != 2 {
			s.Errorf("sent %d times", n)
		}
	})
}

func TestNoHeaderMakesARequestIdempotent(t *testing.T) {
	o := Options{Header: func() http.Header {
		return http.Header{"Idempotency-Key": {"k"}, "x-idempotency-key": {}, "X-Mine": {"1"}}
	}}
	play(t, o, once(func(_ *stage, w http.ResponseWriter, _ *http.Request, got seen) {
		if got.id() == "5" {
			cut(w)
		}
	}), func(s *stage) {
		s.handshake()
		s.send("%s", strings.Replace(call5, "5", "4", 1)) // so that the connection is one that was used before
		s.await("4", time.Second)
		s.send(call5)
		s.must(s.await("5", time.Second), unknown)
		calls := s.requests(func(r seen) bool { return r.id() == "5" })
		if len(calls) != 1 || calls[0].header.Get("X-Mine") != "1" {
			s.Errorf("%v", calls)
		}
	})
}

func TestServerThatComesLate(t *testing.T) {
	var up atomic.Bool
	var s2 *stage
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if !up.Load() {
			return nil, errors.New("connection refused")
		}
		return s2.ln.Dial(ctx, network, address)
	}
	play(t, Options{DialContext: dial}, legacy(nil), func(s *stage) {
		s2 = s
		s.send(hello)
		time.Sleep(20 * time.Second)
		up.Store(true)
		s.await("1", 10*time.Second)
		s.send(greeted)
		synctest.Wait()
		up.Store(false)
		time.Sleep(10 * time.Second) // connections in the pool are given up
		began := time.Now()
		s.send(call5)
		got := s.await("5", time.Minute)
		s.must(got, notExecuted)
		if took := time.Since(began); took < 20*time.Second || took > 31*time.Second {
			s.Errorf("failed after %s", took)
		}
		if len(s.closed) > 0 {
			s.Error("given up")
		}
		up.Store(true)
		s.send("%s", strings.Replace(call5, "5", "6", 1))
		if got := s.await("6", time.Second); !strings.Contains(got, "result") {
			s.Error(got)
		}
	})
}

func TestServerThatIsRotated(t *testing.T) {
	tries := 0
	play(t, Options{}, once(func(_ *stage, w http.ResponseWriter, _ *http.Request, _ seen) {
		if tries++; tries == 1 {
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}), func(s *stage) {
		s.handshake()
		s.send(call5)
		if got := s.await("5", 5*time.Second); !strings.Contains(got, "result") {
			s.Error(got)
		}
		calls := s.posts("tools/call")
		if len(calls) != 2 || calls[1].at.Sub(calls[0].at) < 2*time.Second {
			s.Errorf("%v", calls)
		}
	})
}

func TestWhatWaitsIsBounded(t *testing.T) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
	play(t, Options{DialContext: dial, MaxQueue: 10_000}, legacy(nil), func(s *stage) {
		var err error
		n := 0
		for ; n < 10_000 && err == nil; n++ {
			err = s.link.SendRaw([]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"text":"` + strings.Repeat("x", 100) + `"}}`))
		}
		if !errors.Is(err, stdio.ErrBusy) || n > 100 || n < 20 {
			s.Errorf("%d were taken, then %v", n, err)
		}
	})
}

func TestCase44IDs(t *testing.T) {
	for _, tt := range []struct{ sent, answered, want string }{
		{`0`, `"0"`, `0`}, {`""`, `""`, `""`}, {`18446744073709551615`, `18446744073709551615`, `18446744073709551615`},
		{`"init-1"`, `"init-1"`, `"init-1"`}, {`7`, `null`, ``},
	} {
		play(t, Options{}, once(func(_ *stage, w http.ResponseWriter, _ *http.Request, _ seen) {
			if tt.answered == "null" {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"bad"}}`)
				return
			}
			writeJSON(w, tt.answered, `{}`)
		}), func(s *stage) {
			s.handshake()
			s.send(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"x"}}`, tt.sent)
			got := s.await(tt.sent, time.Second)
			if tt.want != "" && !strings.Contains(got, `"result"`) || tt.want == "" && !strings.Contains(got, "-32602") {
				s.Errorf("%s: %s", tt.sent, got)
			}
		})
	}
}

func TestCase50BatchOfAnswers(t *testing.T) {
	play(t, Options{}, once(func(_ *stage, w http.ResponseWriter, _ *http.Request, _ seen) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "["+progress+","+answer5+"]")
	}), func(s *stage) {
		s.handshake()
		s.send(call5)
		if got := s.await("5", time.Second); got != answer5 || len(s.got("notifications/progress")) != 1 {
			s.Errorf("%q", s.all())
		}
	})
}
