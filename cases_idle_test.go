package holdfast_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
)

// Cases of kind a: what lies between, and our own timers, must not end a
// stream that is only quiet.

// beating are timers of a gateway that faces a link which is cut after 2 s.
var beating = holdfast.Timers{Heartbeat: 500 * time.Millisecond}

const listChanged = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`

// C01 (i) and (ii). The listen stream of (iii) is with the other stateless cases.
func TestC01QuietStreamsAreNotCut(t *testing.T) {
	for name, tt := range map[string]struct {
		timers     holdfast.Timers
		cut, event time.Duration
	}{
		"scaled":          {beating, 2 * time.Second, 5 * time.Second},
		"by default":      {holdfast.Timers{}, 25 * time.Second, 5 * time.Minute},
		"for a long time": {holdfast.Timers{}, 30 * time.Second, 3 * time.Hour},
	} {
		for _, binding := range []string{"/mcp", "/sse"} {
			t.Run(name+binding, func(t *testing.T) {
				f := &farm{}
				virtually(t, setup{options: holdfast.Options{Timers: tt.timers}, farm: f}, func(t *testing.T, b *bench) {
					var c *client
					var s *stream
					if binding == "/mcp" {
						c = b.streamable(v11, impatient(tt.cut))
						s = c.listen("/mcp", "")
					} else {
						c = b.legacy(v2024, impatient(tt.cut))
						s = c.main
					}
					<-time.After(tt.event)
					f.all()[0].line(listChanged)
					if got := c.await("list_changed"); got.raw != listChanged || got.via != s {
						t.Errorf("got %q, on the open stream: %v", got.raw, got.via == s)
					}
					if s.silence() >= tt.cut {
						t.Errorf("the stream was silent for %v", s.silence())
					}
					checkQuietBytes(t, s)
					c.ask(toolCall("1", "echo", `{}`, ""))
				})
			})
		}
	}
}

// checkQuietBytes holds that keep-alives are comments and nothing else: no
// event, so no id that would move a client's position.
func checkQuietBytes(t *testing.T, s *stream) {
	t.Helper()
	if s.beats() == 0 || !strings.Contains(s.bytes(), "\n:\n\n") && !strings.HasPrefix(s.bytes(), ":\n\n") {
		t.Errorf("no comments among %.200q", s.bytes())
	}
	for block := range strings.SplitSeq(s.bytes(), "\n\n") {
		if strings.HasPrefix(block, ":") && block != ":" {
			t.Errorf("a comment with more to it: %q", block)
		}
	}
}

func TestC02SilentCallsAreNotCut(t *testing.T) {
	for _, version := range []string{v03, v06, v11} {
		t.Run(version, func(t *testing.T) {
			virtually(t, setup{options: holdfast.Options{Timers: beating}, farm: &farm{}}, func(t *testing.T, b *bench) {
				c := b.streamable(version)
				far := b.client(impatient(2*time.Second), withholding)
				far.header = c.header
				begin := time.Now()
				s := far.send(toolCall("1", "sleep", `{"ms":6000}`, "")).open()
				if s.status != http.StatusOK || !strings.HasPrefix(s.header.Get("Content-Type"), "text/event-stream") {
					t.Fatalf("answered with %d %s (%v)", s.status, s.header.Get("Content-Type"), s.err)
				}
				if d := s.start().Sub(begin); d > 500*time.Millisecond {
					t.Errorf("the first byte came after %v", d)
				}
				if got := far.answer("1"); !strings.Contains(got, "slept") {
					t.Errorf("answered with %s", got)
				}
				s.done()
				checkQuietBytes(t, s)
				primed := strings.HasPrefix(s.bytes(), "id: 1-0\n") || strings.HasPrefix(s.bytes(), "id:1-0\n")
				if want := version == v11; primed != want || (s.retry > 0) != want {
					t.Errorf("primed: %v with retry %v, want %v: %.100q", primed, s.retry, want, s.bytes())
				}
				if n := b.farm.executed()["sleep"]; n != 1 {
					t.Errorf("the tool ran %d times", n)
				}
			})
		})
	}
}

// The same call over HTTP+SSE: its stream is the only one that is quiet.
func TestC02SilentCallsAreNotCutOverSSE(t *testing.T) {
	virtually(t, setup{options: holdfast.Options{Timers: beating}, farm: &farm{}}, func(t *testing.T, b *bench) {
		c := b.legacy(v2024, impatient(2*time.Second))
		posted := c.send(toolCall("1", "sleep", `{"ms":6000}`, "")).done()
		if posted.status != http.StatusAccepted {
			t.Errorf("the post was answered with %d", posted.status)
		}
		if got := c.await(`"id":1,`); got.via != c.main || !strings.Contains(got.raw, "slept") {
			t.Errorf("answered with %s", got.raw)
		}
	})
}

// C03 (i). A total time-out of the outgoing client (ii) waits for remote servers.
func TestC03ServerWriteTimeoutDoesNotEndStreams(t *testing.T) {
	limit := func(s *http.Server) { s.WriteTimeout = time.Second }
	for name, s := range map[string]setup{
		"plain": {server: limit},
		"HTTP/2": {server: func(s *http.Server) {
			limit(s)
			s.Protocols = new(http.Protocols)
			s.Protocols.SetUnencryptedHTTP2(true)
		}},
		"behind a middleware": {server: limit, wrap: around(func(w http.ResponseWriter) http.ResponseWriter { return unwrapping{w} })},
	} {
		t.Run(name, func(t *testing.T) {
			s.farm = &farm{tools: map[string]func(*fakeCall){"steps": func(c *fakeCall) {
				c.pause(500 * time.Millisecond)
				c.progress(`"progress":1`)
				c.k.line(listChanged)
				c.pause(2 * time.Second)
				c.progress(`"progress":2`)
				c.k.line(listChanged)
				c.reply(`{}`)
			}}}
			virtually(t, s, func(t *testing.T, b *bench) {
				c := b.streamable(v11)
				get := c.listen("/mcp", "")
				old := b.legacy(v2024)
				old.send(toolCall("1", "steps", `{}`, `{"progressToken":"old"}`))
				post := c.send(toolCall("1", "steps", `{}`, `{"progressToken":"new"}`))
				c.answer("1")
				old.answer("1")
				if b.h2 && post.open().proto != "HTTP/2.0" {
					t.Errorf("spoken was %s", post.proto)
				}
				if n := len(c.find("progress", "new")); n != 2 {
					t.Errorf("%d reports of progress on the POST's stream", n)
				}
				b.within(bound, "two events on the GET's stream", func() bool { return len(c.find("list_changed")) == 2 })
				if got := c.find("list_changed")[1]; got.via != get {
					t.Error("the second event came on another stream")
				}
				if n := len(old.find("progress", "old")); n != 2 {
					t.Errorf("%d reports of progress over HTTP+SSE", n)
				}
			})
		})
	}
}

// A middleware that hides the deadlines cannot be helped; it is told, once.
func TestC03HiddenDeadlinesAreLoggedOnce(t *testing.T) {
	s := setup{farm: &farm{}, wrap: around(func(w http.ResponseWriter) http.ResponseWriter { return flushOnly{w, w.(http.Flusher)} })}
	virtually(t, s, func(t *testing.T, b *bench) {
		c := b.streamable(v11)
		c.listen("/mcp", "")
		c.ask(toolCall("1", "sleep", `{"ms":1000}`, ""))
		c.ask(toolCall("2", "sleep", `{"ms":1000}`, ""))
		if lines := b.log.lines("level=WARN", "deadline"); len(lines) != 1 {
			t.Errorf("warned %d times: %q", len(lines), lines)
		}
	})
}

func TestC05StreamsAreNotBuffered(t *testing.T) {
	f := &farm{tools: map[string]func(*fakeCall){"steps": func(c *fakeCall) {
		for range 10 {
			c.pause(200 * time.Millisecond)
			c.progress(`"progress":1`)
		}
		c.reply(`{}`)
	}}}
	s := setup{farm: f, wrap: around(func(w http.ResponseWriter) http.ResponseWriter { return unwrapping{w} })}
	virtually(t, s, func(t *testing.T, b *bench) {
		c := b.streamable(v11)
		c.header.Set("Accept-Encoding", "gzip, deflate, br")
		old := b.legacy(v2024)
		get := c.listen("/mcp", "")
		begin := time.Now()
		post := c.send(toolCall("1", "steps", `{}`, `{"progressToken":1}`))
		old.send(toolCall("1", "steps", `{}`, `{"progressToken":1}`), "Accept-Encoding", "gzip")
		for _, c := range []*client{c, old} {
			if d := c.await("notifications/progress").at.Sub(begin); d > 500*time.Millisecond {
				t.Errorf("the first report came after %v", d)
			}
			c.answer("1")
			if n := len(c.find("notifications/progress")); n != 10 {
				t.Errorf("%d reports", n)
			}
		}
		for name, s := range map[string]*stream{"POST": post, "GET": get, "sse": old.main} {
			for header, want := range map[string]string{
				"Content-Encoding": "", "X-Accel-Buffering": "no", "Cache-Control": "no-cache, no-transform", "Content-Type": "text/event-stream",
			} {
				if got := s.header.Get(header); got != want {
					t.Errorf("%s: %s is %q, want %q", name, header, got, want)
				}
			}
		}
	})
}

// No flusher: no stream may begin that would say nothing until its end. A
// quick answer needs none.
func TestC05WithoutFlusherThereIsAReason(t *testing.T) {
	s := setup{farm: &farm{}, wrap: around(func(w http.ResponseWriter) http.ResponseWriter { return bare{w} })}
	virtually(t, s, func(t *testing.T, b *bench) {
		c := b.streamable(v11)
		c.ask(toolCall("1", "echo", `{}`, ""))
		for name, s := range map[string]*stream{
			"POST": c.send(toolCall("2", "sleep", `{"ms":1000}`, "")),
			"GET":  c.do(http.MethodGet, "/mcp", ""),
			"sse":  c.do(http.MethodGet, "/sse", ""),
		} {
			s.done()
			if s.status != http.StatusInternalServerError || !strings.Contains(string(s.body), "http.Flusher") {
				t.Errorf("%s: answered with %d %s", name, s.status, s.body)
			}
		}
	})
}

// around makes a middleware that wraps the ResponseWriter.
func around(wrap func(http.ResponseWriter) http.ResponseWriter) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(wrap(w), r) })
	}
}

// bare hides all but the three methods.
type bare struct{ http.ResponseWriter }

// unwrapping shows the rest by Unwrap only.
type unwrapping struct{ http.ResponseWriter }

func (u unwrapping) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// flushOnly hides all but Flush.
type flushOnly struct {
	http.ResponseWriter
	http.Flusher
}
