package holdfast_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/internal/sse"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
)

const cuts = 50

// reading is a stream as its client puts it together over many connections.
type reading struct {
	t      *testing.T
	seen   map[string]bool // event ids
	lastID string
	got    int // numbered messages, which must come as 1, 2, 3 ...
	cuts   int
	answer testkit.Message
	done   func(r *reading) bool
	number func(m testkit.Message) int // 0: not one of them
}

// take notes one event. Every event has an id, and comes once.
func (r *reading) take(e sse.Event) {
	r.t.Helper()
	if e.HasID {
		if len(e.Data) > 0 && r.seen[e.ID] {
			r.t.Errorf("event %s came twice", e.ID)
		}
		r.seen[e.ID] = r.seen[e.ID] || len(e.Data) > 0
		r.lastID = e.ID
	}
	if len(e.Data) == 0 || e.Type() != "message" {
		return
	}
	m, err := testkit.Parse(e.Data)
	if err != nil || !e.HasID {
		r.t.Fatalf("%q: %v", e.Data, err)
	}
	switch n := r.number(m); {
	case n == r.got+1:
		r.got++
	case n != 0:
		r.t.Fatalf("message %d came after %d", n, r.got)
	case m.IsAnswer(`"call"`):
		if r.answer.Bytes != nil {
			r.t.Errorf("answered twice: %s", m.Bytes)
		}
		r.answer = m
	default:
		r.t.Errorf("a stranger: %s", m.Bytes)
	}
}

// read reads one connection: an event at least, then as far as the fuse goes.
// It returns how the connection ended; nil if the reading is complete.
func (r *reading) read(ctx context.Context, st *testkit.Stream, f *fuses) error {
	defer st.Close()
	first := true
	for !r.done(r) {
		before := r.got
		e, err := st.Next(ctx)
		if err != nil {
			return err
		}
		r.take(e)
		if first && r.got > before && r.cuts < cuts {
			first = false
			r.cuts++
			f.light(rand.Int64N(2500)) // up to some 15 events, or a part of one
		}
	}
	return nil
}

// follow reads connection after connection, each from where the one before
// broke.
func (r *reading) follow(ctx context.Context, st *testkit.Stream, f *fuses, resume func(lastEventID string) *testkit.Stream) {
	r.t.Helper()
	for r.read(ctx, st, f) != nil {
		if ctx.Err() != nil {
			r.t.Fatalf("after %d cuts and %d messages: %v", r.cuts, r.got, ctx.Err())
		}
		st = resume(r.lastID)
	}
	if r.cuts != cuts || r.got != thousand {
		r.t.Errorf("%d messages over %d cuts, want %d and %d", r.got, r.cuts, thousand, cuts)
	}
}

func newReading(t *testing.T, number func(testkit.Message) int, done func(*reading) bool) *reading {
	return &reading{t: t, seen: map[string]bool{}, number: number, done: done}
}

// progressOf numbers the progress of the call.
func progressOf(m testkit.Message) int {
	var p struct {
		ProgressToken string `json:"progressToken"`
		Progress      int    `json:"progress"`
	}
	if m.Method != "notifications/progress" || json.Unmarshal(m.Params, &p) != nil || p.ProgressToken != "token" {
		return 0
	}
	return p.Progress
}

// logOf numbers the parrot's log messages.
func logOf(m testkit.Message) int {
	var p struct {
		Data struct {
			N int `json:"n"`
		} `json:"data"`
	}
	if m.Method != "notifications/message" || json.Unmarshal(m.Params, &p) != nil {
		return 0
	}
	return p.Data.N
}

func answered(r *reading) bool { return r.answer.Bytes != nil }
func complete(r *reading) bool { return r.got == thousand }

// longCall is one with a thousand progress notifications.
var longCall = testkit.CallToolWithToken(`"call"`, "progress", fmt.Sprintf(`{"n":%d,"intervalMs":1,"pad":1000,"key":"k"}`, thousand), `"token"`)

// executed demands that the tool ran once, whichever process it ran in.
func executedOnce(t *testing.T, file string, r *reading) {
	t.Helper()
	if r.answer.Text() != fmt.Sprintf("emitted=%d", thousand) {
		t.Errorf("answered %s", r.answer.Bytes)
	}
	if n, err := testkit.ReadCounts(file, "k"); err != nil || n != (testkit.Counts{Start: 1, End: 1}) {
		t.Errorf("executed %+v, %v", n, err)
	}
}

// TestMustShow5PostStream: a POST stream, cut at random after its first event
// 50 times during one call with 1,000 progress notifications.
func TestMustShow5PostStream(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, version := range []string{"2025-03-26", "2025-06-18", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			file := filepath.Join(t.TempDir(), "counts")
			base := gate(t, holdfast.Options{Server: scriptedChild("-counts=" + file)})
			f := &fuses{}
			c := sessionOf(t, base+"/mcp", version, `{}`, f.dial)
			resp, err := c.Post(ctx, longCall)
			if err != nil || resp.Stream == nil {
				t.Fatalf("%v, %+v", err, resp)
			}
			r := newReading(t, progressOf, answered)
			r.follow(ctx, resp.Stream, f, func(last string) *testkit.Stream { return reopen(ctx, t, c, last) })
			executedOnce(t, file, r)
		})
	}
}

// reopen resumes a stream by GET. A connection may break before it has begun.
func reopen(ctx context.Context, t *testing.T, c *testkit.Client, last string) *testkit.Stream {
	t.Helper()
	for {
		resp, err := c.Get(ctx, last)
		switch {
		case err == nil && resp.Stream != nil:
			return resp.Stream
		case err == nil:
			t.Fatalf("GET after %q: %d %s", last, resp.Status, resp.Body)
		case ctx.Err() != nil:
			t.Fatal(err)
		}
	}
}

// TestMustShow5GetStream: the same for the GET stream, with no call in flight.
func TestMustShow5GetStream(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, version := range []string{"2025-03-26", "2025-06-18", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			base := gate(t, holdfast.Options{Server: holdfast.InProcess(parrot)})
			f := &fuses{}
			c := sessionOf(t, base+"/mcp", version, `{}`, f.dial)
			st := reopen(ctx, t, c, "")
			other := newcomer(t, base+"/mcp", nil)
			other.SessionID, other.Version = c.SessionID, c.Version
			if err := other.Notify(ctx, "notifications/go", ""); err != nil {
				t.Fatal(err)
			}
			r := newReading(t, logOf, complete)
			r.follow(ctx, st, f, func(last string) *testkit.Stream { return reopen(ctx, t, c, last) })
		})
	}
}

// TestMustShow5SSE: the same for /sse with Last-Event-ID, during a call and
// without one.
func TestMustShow5SSE(t *testing.T) {
	t.Parallel() // it mostly waits
	t.Run("call", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "counts")
		r := cutSSE(t, scriptedChild("-counts="+file), longCall, newReading(t, progressOf, answered))
		executedOnce(t, file, r)
	})
	t.Run("no call", func(t *testing.T) {
		cutSSE(t, holdfast.InProcess(parrot), testkit.Notification("notifications/go", ""), newReading(t, logOf, complete))
	})
}

// cutSSE posts a message to an HTTP+SSE session and follows its stream.
func cutSSE(t *testing.T, server holdfast.Server, message []byte, r *reading) *reading {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	base := gate(t, holdfast.Options{Server: server})
	f := &fuses{}
	s := streamOf(t, base+"/sse", "2024-11-05", f.dial)
	poster := newcomer(t, s.Endpoint, nil) // its connections are not cut
	if err := poster.Deliver(ctx, message); err != nil {
		t.Fatal(err)
	}
	c := newcomer(t, base+"/sse", f.dial)
	r.follow(ctx, s.Stream, f, func(last string) *testkit.Stream {
		for {
			again, err := c.ConnectSSE(ctx, last)
			if err == nil && again.Endpoint != s.Endpoint {
				t.Fatalf("resumed to another session: %s", again.Endpoint)
			}
			if err == nil {
				return again.Stream
			}
			if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
	})
	return r
}
