package holdfast_test

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
)

// C27 and C28, the server's part: a stream ends before the answer, or only
// seems to go on, and the client comes back, resuming or as a new one.

// freezer is a link that can stop passing anything on, in either direction,
// without an end.
type freezer struct {
	mu     sync.Mutex // guards the fields below
	frozen chan struct{}
	stuck  bool
}

func newFreezer() *freezer { return &freezer{frozen: make(chan struct{})} }

func (f *freezer) link(c net.Conn) net.Conn {
	return &frozenConn{Conn: c, f: f, closed: make(chan struct{})}
}

// freeze stops what is connected by then.
func (f *freezer) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stuck = true
	close(f.frozen)
}

type frozenConn struct {
	net.Conn
	f      *freezer
	once   sync.Once
	closed chan struct{}
}

// Read returns nothing of what comes after the freeze.
func (c *frozenConn) Read(p []byte) (int, error) {
	select {
	case <-c.f.frozen:
		<-c.closed
		return 0, net.ErrClosed
	default:
	}
	n, err := c.Conn.Read(p)
	c.f.mu.Lock()
	stuck := c.f.stuck
	c.f.mu.Unlock()
	if stuck {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

// Close lets go of the client's end only: the other side hears nothing of it.
func (c *frozenConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if c.f.stuck {
		return nil
	}
	return c.Conn.Close()
}

// C27: whatever takes the stream away, the answer is had by resuming it: once,
// under the id that was asked.
func TestC27ResumeAfterTheStreamEnds(t *testing.T) {
	for _, when := range []string{"before anything", "after a report", "after the answer was written"} {
		t.Run(when, func(t *testing.T) {
			s := setup{farm: jobs(), options: holdfast.Options{Timers: holdfast.Timers{AnswerGrace: -1}}}
			overHTTP(t, s, func(t *testing.T, b *bench, open func() *client) {
				c := open()
				s, path := c.send(job("1", args)), "/mcp"
				if c.endpoint != "" {
					s, path = c.main, "/sse"
				}
				switch when {
				case "before anything":
					s.open()
					<-time.After(100 * time.Millisecond)
				case "after a report":
					c.await("notifications/progress")
				default:
					<-time.After(2900 * time.Millisecond)
				}
				at := s.position()
				s.cut()
				s.done()
				<-time.After(10 * time.Second)
				if at == "" { // nothing to resume from: it asks once more
					c.waive("1")
					c = open()
					c.send(job("2", args))
					wantAnswer(t, c.answer("2"), done, adopted)
				} else {
					c.listen(path, at)
					wantAnswer(t, c.answer("1"), done, "!adopted")
					c.listen(path, c.find(done)[0].via.position())
				}
				<-time.After(5 * time.Second)
				wantExecuted(t, b.farm, "job", 1)
				wantCancels(t, b.farm)
			})
		})
	}
}

// C27, half-open: nothing passes any more, and nobody says so. The gateway finds
// out by writing; the answer is not lost on the way that leads nowhere.
func TestC27HalfOpen(t *testing.T) {
	f := &farm{tools: map[string]func(*fakeCall){"job": func(c *fakeCall) {
		c.pause(2 * time.Minute)
		c.reply(`{"structuredContent":"done"}`)
	}}}
	for _, binding := range []string{"streamable", "sse"} {
		for _, how := range []string{"resumes", "comes back as a new one"} {
			t.Run(binding+" "+how, func(t *testing.T) {
				virtually(t, setup{farm: f}, func(t *testing.T, b *bench) { testFrozen(t, b, binding, how) })
			})
		}
	}
}

func testFrozen(t *testing.T, b *bench, binding, how string) {
	t.Helper()
	ice := newFreezer()
	var c *client
	path := "/mcp"
	if binding == "sse" {
		c, path = b.legacy(v11, ice.link), "/sse"
	} else {
		c = b.streamable(v11, ice.link)
	}
	s := c.send(job("1", args))
	if binding == "sse" {
		s = c.main
	}
	s.open()
	<-time.After(time.Second)
	ice.freeze()
	<-time.After(70 * time.Second) // a heartbeat or two, and the time to write one
	young := b.client()
	if how == "resumes" {
		young.header = c.header
		if at := s.position(); at != "" {
			young.listen(path, at)
			young.note(job("1", args))
			wantAnswer(t, young.answer("1"), done, "!adopted")
			young.tools = map[string]int{} // it did not call, it only knows of it
		}
	} else {
		young = bindings[binding](b, v11)
		wantAnswer(t, young.ask(job("1", args)), done, adopted)
	}
	s.cut()
	c.waive("1")
	wantExecuted(t, b.farm, "job", 1)
	wantCancels(t, b.farm)
}

// C28, the server's part: the stream that no POST has opened does not end by
// itself, and where a stream ends, the client is told when to come back.
func TestC28StreamsDoNotInviteAHammering(t *testing.T) {
	o := holdfast.Options{Timers: holdfast.Timers{SessionTimeout: 10 * time.Minute}}
	virtually(t, setup{farm: jobs(), options: o}, func(t *testing.T, b *bench) {
		c, old := b.streamable(v11), b.legacy(v2024)
		get := c.listen("/mcp", "")
		for what, s := range map[string]*stream{"GET": get, "HTTP+SSE": old.main} {
			select {
			case <-s.ended:
				t.Errorf("the stream of %s has ended: %v", what, s.err)
			case <-time.After(5 * time.Hour):
			}
		}
		post := c.send(job("1", args))
		c.answer("1")
		post.done()
		wasTold := func(s *stream) bool { s.mu.Lock(); defer s.mu.Unlock(); return s.retry >= time.Second }
		for range 3 { // there is no more to come; it says so, and when to ask
			again := c.listen("/mcp", post.position())
			again.done()
			if again.status != http.StatusOK || !wasTold(again) || strings.Contains(again.bytes(), done) {
				t.Errorf("resumed once more: %d %q", again.status, again.bytes())
			}
		}
		_ = b.g.Stop(t.Context())
		for what, s := range map[string]*stream{"GET": get, "POST": post} {
			if s.done(); !wasTold(s) {
				t.Errorf("the stream of %s ended without a word when to come back: %q", what, s.bytes())
			}
		}
	})
}
