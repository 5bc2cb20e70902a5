package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// run sweeps a registry in the background until the test's bubble ends.
func run(t *testing.T, r *Registry) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }() // ends with ctx
	t.Cleanup(func() { cancel(); <-done })
}

// TestSessionTimeout: C42. A session ends when nobody was there for the time,
// but never under a call in flight or an open stream.
func TestSessionTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(RegistryOptions{Timeout: 30 * time.Minute, Grace: 2 * time.Minute})
		run(t, r)
		idle, idleConv := open(t, r, false)
		heard, _ := open(t, r, false)
		calling, callingConv := open(t, r, false)
		_, call := ask(t, calling, callingConv, "1")
		reading, _ := open(t, r, false)
		stream := connect(t, reading.General(), 0, true)

		for range 29 {
			time.Sleep(time.Minute)
			heard.Touch()
		}
		if idle.Err() != nil || r.Len() != 4 {
			t.Errorf("ended early: %v", idle.Err())
		}
		time.Sleep(2 * time.Minute) // swept each 30 s at most
		synctest.Wait()
		if !errors.Is(idle.Err(), ErrIdle) || len(idleConv.left) != 1 || r.Get(idle.ID) != nil {
			t.Errorf("after 31 min: %v, left %v", idle.Err(), idleConv.left)
		}
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		if !errors.Is(heard.Err(), ErrIdle) {
			t.Errorf("a client that went silent: %v", heard.Err())
		}
		if calling.Err() != nil || reading.Err() != nil {
			t.Fatalf("a session was ended under a call (%v) or a stream (%v)", calling.Err(), reading.Err())
		}
		// From the end of the call, and of the stream, the time runs anew.
		answer(call)
		_ = stream.leave()
		time.Sleep(29 * time.Minute)
		if calling.Err() != nil || reading.Err() != nil {
			t.Error("the time did not start with the end of the call, or of the stream")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if !errors.Is(calling.Err(), ErrIdle) || !errors.Is(reading.Err(), ErrIdle) || r.Len() != 0 {
			t.Errorf("%v, %v, %d sessions", calling.Err(), reading.Err(), r.Len())
		}
	})
}

// TestReconnectGrace: C16 (iii). An HTTP+SSE session outlives its stream for
// the grace, a call in flight or not; a client that comes back starts it over.
func TestReconnectGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(RegistryOptions{Timeout: 30 * time.Minute, Grace: 2 * time.Minute})
		run(t, r)
		s, conv := open(t, r, true)
		stream := connect(t, s.General(), 0, false)
		ask(t, s, conv, "1")
		time.Sleep(time.Hour)
		_ = stream.leave()
		time.Sleep(110 * time.Second)
		stream = connect(t, s.General(), 0, false)
		time.Sleep(time.Hour)
		_ = stream.leave()
		time.Sleep(110 * time.Second)
		if s.Err() != nil {
			t.Fatalf("ended within the grace: %v", s.Err())
		}
		time.Sleep(41 * time.Second) // swept each 30 s
		synctest.Wait()
		if !errors.Is(s.Err(), ErrAbandoned) || len(conv.left) != 1 {
			t.Errorf("after the grace: %v, left %v", s.Err(), conv.left)
		}
		// Streamable HTTP has no such grace.
		other, _ := open(t, r, false)
		time.Sleep(5 * time.Minute)
		if other.Err() != nil {
			t.Errorf("a Streamable HTTP session: %v", other.Err())
		}
		r.Close(ErrShutdown)
	})
}

func TestRegistryBounds(t *testing.T) {
	r := registry(RegistryOptions{Max: 2})
	a, _ := open(t, r, false)
	b, _ := open(t, r, true)
	if _, err := r.New(false); !errors.Is(err, ErrTooMany) {
		t.Errorf("a third session: %v", err)
	}
	if len(a.ID) < 26 || a.ID == b.ID {
		t.Errorf("ids %q, %q", a.ID, b.ID)
	}
	if r.Get(a.ID) != a || r.Get("") != nil || r.Get(a.ID+"x") != nil {
		t.Error("Get finds the wrong session")
	}
	r.End(a, ErrDeleted)
	if r.Get(a.ID) != nil || r.Len() != 1 {
		t.Error("an ended session is still there")
	}
	b.Gone(errors.New("x")) // its server ended it
	if r.Get(b.ID) != nil || r.Len() != 0 || !errors.Is(b.Err(), ErrNoServer) {
		t.Errorf("the server is gone: %v, %d sessions", b.Err(), r.Len())
	}
	c, conv := open(t, r, false)
	ask(t, c, conv, "1")
	if r.InFlight() != 1 {
		t.Errorf("%d calls in flight", r.InFlight())
	}
	r.Close(ErrShutdown)
	if !errors.Is(c.Err(), ErrShutdown) || r.InFlight() != 0 || r.Len() != 0 {
		t.Errorf("closed: %v, %d calls, %d sessions", c.Err(), r.InFlight(), r.Len())
	}
	if _, err := r.New(false); !errors.Is(err, ErrShutdown) {
		t.Errorf("a session after Close: %v", err)
	}
}

// TestEvict: a place for a new client is taken from an HTTP+SSE session whose
// stream is gone, the one that is gone for longest, and from no other.
func TestEvict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(RegistryOptions{})
		if r.Evict() {
			t.Error("nothing to evict")
		}
		streamable, _ := open(t, r, false)
		reading, _ := open(t, r, true)
		stream := connect(t, reading.General(), 0, false)
		calling, conv := open(t, r, true)
		ask(t, calling, conv, "1")
		older, _ := open(t, r, true)
		time.Sleep(time.Second)
		newer, _ := open(t, r, true)
		time.Sleep(time.Second)
		for _, want := range []*Session{older, newer} {
			if !r.Evict() || !errors.Is(want.Err(), ErrEvicted) {
				t.Errorf("the wrong one: %v", want.Err())
			}
		}
		if r.Evict() || streamable.Err() != nil || reading.Err() != nil || calling.Err() != nil {
			t.Errorf("%v, %v, %v", streamable.Err(), reading.Err(), calling.Err())
		}
		_ = stream.leave()
	})
}

func TestShort(t *testing.T) {
	for id, want := range map[string]string{"": "", "abc": "abc", "ABCDEFGHIJ": "ABCDEFGH"} {
		if got := Short(id); got != want {
			t.Errorf("Short(%q) = %q", id, got)
		}
	}
}
