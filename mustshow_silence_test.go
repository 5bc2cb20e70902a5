package holdfast_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
)

// silence is a tool that says nothing for long, behind a link that does not
// wait for it.
type silence struct {
	tool, heartbeat, cut time.Duration
}

// streamSeen is what one stream was like.
type streamSeen struct {
	kind     string
	beats    int
	longest  time.Duration
	lasted   time.Duration
	answered bool
	err      error
}

// watch opens every kind of stream through the link, and tells of each once the
// tool has ended.
func (s silence) watch(t *testing.T, url func(path string) string, dial testkit.DialFunc) (all []streamSeen) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*s.tool+soon)
	defer cancel()
	call := func(of string) []byte { // none waits to see whether it comes in the place of another one
		return testkit.CallTool(`"long"`, "sleep", fmt.Sprintf(`{"ms":%d,"of":%q}`, s.tool.Milliseconds(), of))
	}
	var mu sync.Mutex // guards all
	seen := func(kind string, st *testkit.Stream, begin time.Time, answered bool, err error) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, streamSeen{kind, st.Comments(), st.Longest(), time.Since(begin), answered, err})
	}
	var watchers sync.WaitGroup
	for _, version := range []string{"2025-06-18", "2025-11-25"} {
		client := sessionOf(t, url("/mcp"), version, `{}`, dial)
		get, err := client.Get(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		watchers.Go(func() { // ends with its answer, or ctx
			begin := time.Now()
			m, _, err := get.Stream.Message(ctx)
			seen("GET "+version, get.Stream, begin, m.Method == "notifications/tools/list_changed", err)
		})
		watchers.Go(func() { // ends with its answer, or ctx
			begin := time.Now()
			post, err := client.Post(ctx, call(version))
			if err != nil || post.Stream == nil {
				t.Errorf("POST: %v", err)
				return
			}
			m, _, err := post.Stream.Await(ctx, `"long"`)
			seen("POST "+version, post.Stream, begin, m.Text() == "slept", err)
			// It has been quiet all the time; now the GET stream gets something.
			if _, err := client.Call(ctx, "2", testkit.CallTool("2", "list_changed", `{}`)); err != nil {
				t.Error(err)
			}
		})
	}
	legacy := streamOf(t, url("/sse"), "2024-11-05", dial)
	watchers.Go(func() { // ends with its answer, or ctx
		begin := time.Now()
		m, err := legacy.Call(ctx, `"long"`, call("/sse"))
		seen("/sse", legacy.Stream, begin, m.Text() == "slept", err)
	})
	watchers.Wait()
	return all
}

// judge holds what was seen against what must be shown. slack is for what a
// busy machine may be late by.
func (s silence) judge(t *testing.T, all []streamSeen, slack time.Duration) {
	t.Helper()
	if len(all) != 5 {
		t.Errorf("%d streams were seen to their end, want 5", len(all))
	}
	for _, one := range all {
		least := int(s.tool/(s.heartbeat+slack)) - 1
		most := int(max(one.lasted, s.tool)/s.heartbeat) + 2
		if one.err != nil || !one.answered || one.beats < least || one.beats > most || one.longest > s.heartbeat+slack || one.lasted < s.tool {
			t.Errorf("%s: answered %v after %v, %v; %d heartbeats, want %d to %d; longest silence %v",
				one.kind, one.answered, one.lasted, one.err, one.beats, least, most, one.longest)
		}
	}
}

// TestMustShow4Silence: a tool that runs 90 s in silence, a link between that
// cuts after 2 s without bytes: every stream sees a heartbeat each interval and
// the answer at the end.
func TestMustShow4Silence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := silence{tool: 90 * time.Second, heartbeat: 1500 * time.Millisecond, cut: 2 * time.Second}
		l := memGate(t, holdfast.Options{Server: scriptedServer(testkit.Options{}), Timers: holdfast.Timers{Heartbeat: s.heartbeat, PingInterval: -1}})
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := l.Dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &strict{Conn: conn, patience: s.cut}, nil
		}
		s.judge(t, s.watch(t, l.URL, dial), 50*time.Millisecond) // the calls are alike, and wait a moment for each other
	})
}

// TestMustShow4WithoutHeartbeats shows that the link above does cut.
func TestMustShow4WithoutHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memGate(t, holdfast.Options{Server: scriptedServer(testkit.Options{}), Timers: holdfast.Timers{Heartbeat: time.Hour}})
		c := sessionOf(t, l.URL("/mcp"), "2025-11-25", `{}`, func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := l.Dial(ctx, network, address)
			return &strict{Conn: conn, patience: 2 * time.Second}, err
		})
		begin := time.Now()
		if m, err := c.Call(t.Context(), "1", testkit.CallTool("1", "sleep", `{"ms":90000}`)); err == nil || time.Since(begin) > 3*time.Second {
			t.Errorf("after %v: %s, %v", time.Since(begin), m.Bytes, err)
		}
	})
}

// strict is a link that cuts after its patience without a byte from the server.
type strict struct {
	net.Conn
	patience time.Duration
}

func (s *strict) Read(b []byte) (int, error) {
	_ = s.SetReadDeadline(time.Now().Add(s.patience))
	n, err := s.Conn.Read(b)
	if err != nil {
		_ = s.Close()
	}
	return n, err
}

// TestMustShow4SilenceOnSockets is the same with real sockets, a real server
// process and a proxy between, at a thirtieth of the time.
func TestMustShow4SilenceOnSockets(t *testing.T) {
	t.Parallel() // it mostly waits
	s := silence{tool: 3 * time.Second, heartbeat: 200 * time.Millisecond, cut: 1500 * time.Millisecond}
	base := gate(t, holdfast.Options{Server: scriptedChild(), Timers: holdfast.Timers{Heartbeat: s.heartbeat, PingInterval: -1}})
	proxy, err := testkit.NewCutProxy(base[len("http://"):], testkit.CutOptions{Idle: s.cut, Reset: true})
	if err != nil {
		t.Fatal(err)
	}
	defer closeOf(t, proxy)
	s.judge(t, s.watch(t, proxy.URL, nil), s.cut-s.heartbeat)
}

func closeOf(t *testing.T, c io.Closer) {
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
