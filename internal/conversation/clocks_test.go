package conversation

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/liveness"
	"github.com/holdfast-mcp/holdfast/internal/stdio"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// manner is how a server behaves while it says nothing: what it does with
// pings, and what is seen of its processes.
type manner struct {
	ping  string        // "answered", "refused" or "ignored"
	cpu   time.Duration // a second
	io    uint64        // bytes a second
	child bool          // one that it has started just now
	stops bool          // by a signal
	dark  bool          // nothing is seen of its processes
}

// body is a server whose processes can be looked at.
type body struct {
	*server
	born time.Time

	lock    sync.Mutex // guards the fields below
	manner  manner
	changed time.Time
	used    time.Duration // until then
	moved   uint64
}

func (b *body) Send(m *jsonrpc.Message, edits ...jsonrpc.Edit) error {
	return b.SendRaw(m.Append(nil, edits...))
}

func (b *body) SendRaw(line []byte) error {
	m, err := jsonrpc.Parse(line)
	if err != nil || !m.Is("ping") {
		return b.server.SendRaw(line)
	}
	id := string(m.Raw(jsonrpc.ID))
	b.lock.Lock()
	how := b.manner.ping
	b.lock.Unlock()
	switch how {
	case "answered":
		time.AfterFunc(time.Millisecond, func() { b.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id) })
	case "refused":
		time.AfterFunc(time.Millisecond, func() { b.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, id) })
	}
	return nil
}

// behave changes how the server behaves from now on.
func (b *body) behave(m manner) {
	v := b.Vitals()
	b.lock.Lock()
	defer b.lock.Unlock()
	b.manner, b.changed, b.used, b.moved = m, time.Now(), v.CPU, v.IO
}

func (b *body) Vitals() liveness.Vitals {
	b.lock.Lock()
	defer b.lock.Unlock()
	now := time.Now()
	for_ := now.Sub(b.changed).Seconds()
	v := liveness.Vitals{At: now, Known: !b.manner.dark, Stopped: b.manner.stops, Procs: 1}
	v.CPU = b.used + time.Duration(for_*float64(b.manner.cpu))
	v.IO = b.moved + uint64(for_*float64(b.manner.io))
	if b.manner.child {
		v.Procs, v.Children, v.Youngest, v.YoungestPID = 2, 1, b.changed, 4711
	}
	return v
}

// ward is a conversation with such servers, and clocks.
type ward struct {
	*stage
	bodies []*body
}

// The times of a ward. A silent server is judged within two intervals.
var (
	wardClocks   = Clocks{Idle: 20 * time.Second, Max: time.Minute}
	wardLiveness = liveness.Settings{Interval: 2 * time.Second, Timeout: time.Second, Misses: 2}
)

func admitted(t testing.TB) *ward {
	t.Helper()
	w := &ward{stage: &stage{farm: &farm{t: t}, t: t, log: &bytes.Buffer{}}}
	conv, err := Start(Options{
		Dial: func(h stdio.Handler) (Link, error) {
			link, err := w.farm.dial(h)
			if err != nil {
				return nil, err
			}
			b := &body{server: link.(*server), born: time.Now(), manner: manner{ping: "answered"}, changed: time.Now()}
			w.farm.mu.Lock()
			w.bodies = append(w.bodies, b)
			w.farm.mu.Unlock()
			return b, nil
		},
		Name: "kid", StartTimeout: time.Minute, MaxMessage: 1000, Log: slog.New(slog.NewTextHandler(w.log, nil)),
		Clocks: func(string) Clocks { return wardClocks }, Question: 10 * time.Minute, Liveness: wardLiveness,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.conv = conv
	return w
}

// newest is the server started last.
func (w *ward) newest() *body {
	w.farm.mu.Lock()
	defer w.farm.mu.Unlock()
	return w.bodies[len(w.bodies)-1]
}

// after waits, and demands a verdict.
func (w *ward) after(d time.Duration, want liveness.Verdict) {
	w.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	if got := w.conv.Verdict(); got.Verdict != want {
		w.t.Errorf("the server is %s (%s), want %s", got.Verdict, strings.Join(got.Evidence, "; "), want)
	}
}

// wantExpiry demands that a call is given up at a time after its begin.
func (w *ward) wantExpiry(c *client, call *Call, at time.Duration, began time.Time, words ...string) {
	w.t.Helper()
	time.Sleep(at - time.Since(began) - 10*time.Millisecond)
	synctest.Wait()
	if got := c.answer(call); got != "" {
		w.t.Fatalf("%v after its begin it was answered %s", time.Since(began), got)
	}
	time.Sleep(20*time.Millisecond + wardLiveness.Interval/2) // a held clock is looked at now and then
	synctest.Wait()
	got := c.answer(call)
	for _, word := range append(words, `"code":-32001`, `"outcome":"unknown"`) {
		if !strings.Contains(got, word) {
			w.t.Errorf("answered %s, without %s", got, word)
		}
	}
	var told []string
	for _, line := range w.newest().heard() {
		if strings.Contains(line, "notifications/cancelled") {
			told = append(told, line)
		}
	}
	if want := fmt.Sprintf(`"requestId":%d,`, call.up); len(told) != 1 || !strings.Contains(told[0], want) {
		w.t.Errorf("the server was told %q, want one with %s", told, want)
	}
}

// TestVerdictsAndTheIdleClock: it runs while a server is busy or stuck, and
// evidence of work holds it, so that the maximum alone ends the call.
func TestVerdictsAndTheIdleClock(t *testing.T) {
	for name, tt := range map[string]struct {
		manner manner
		want   liveness.Verdict
		held   bool
	}{
		"pings answered":             {manner{ping: "answered"}, liveness.Busy, false},
		"pings answered, CPU":        {manner{ping: "answered", cpu: time.Second}, liveness.Busy, false},
		"CPU":                        {manner{ping: "ignored", cpu: time.Second}, liveness.Blocked, true},
		"I/O":                        {manner{ping: "ignored", io: 10_000}, liveness.Waiting, true},
		"a child of its own":         {manner{ping: "ignored", child: true}, liveness.Waiting, true},
		"nothing":                    {manner{ping: "ignored"}, liveness.Stuck, false},
		"stopped":                    {manner{ping: "ignored", stops: true}, liveness.Stuck, false},
		"nothing that could be seen": {manner{ping: "ignored", dark: true}, liveness.Stuck, false},
		"pings refused, CPU":         {manner{ping: "refused", cpu: time.Second}, liveness.Blocked, true},
		"pings refused, I/O":         {manner{ping: "refused", io: 10_000}, liveness.Waiting, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := admitted(t)
				c := w.open("a")
				w.after(time.Hour, liveness.Idle)
				began := time.Now()
				call := c.tool("1")
				w.after(2500*time.Millisecond, liveness.Busy) // it answered a ping
				w.newest().behave(tt.manner)
				w.after(2*wardLiveness.Interval+1500*time.Millisecond, tt.want)
				reported := strings.Count(w.log.String(), "the server is "+tt.want.String())
				if tt.want >= liveness.Blocked && reported != 1 {
					t.Errorf("reported %d times: %s", reported, w.log)
				}
				at, words := wardClocks.Idle, []string{"--request-timeout", "20s", "the server was " + tt.want.String(), `"evidence":[`}
				if tt.held {
					at, words[0], words[1] = wardClocks.Max, "--request-max", "1m0s"
				}
				w.wantExpiry(c, call, at, began, words...)
				time.Sleep(time.Hour)
				if w.started() != 1 || w.newest().stopped > 0 {
					t.Errorf("%d servers; stopped %d times", w.started(), w.newest().stopped)
				}
				w.end()
			})
		})
	}
}

// TestHeldClockGoesOn when the evidence ends.
func TestHeldClockGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := admitted(t)
		c := w.open("a")
		call := c.tool("1")
		w.after(2500*time.Millisecond, liveness.Busy)
		w.newest().behave(manner{ping: "ignored", cpu: time.Second})
		w.after(20*time.Second, liveness.Blocked)
		w.newest().behave(manner{ping: "answered"}) // the pings before are lost
		began := time.Now()
		for c.answer(call) == "" && time.Since(began) < time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		if d := time.Since(began); d < 12*time.Second || d > 20*time.Second {
			t.Errorf("given up %v after it ceased to work, of 20s", d)
		}
		w.end()
	})
}

// stuck brings a server to where a call of it was given up while it was stuck.
func stuck(w *ward) *client {
	w.t.Helper()
	c := w.open("a")
	began := time.Now()
	call := c.tool("1")
	w.after(2500*time.Millisecond, liveness.Busy)
	w.newest().behave(manner{ping: "ignored"})
	w.after(5*time.Second, liveness.Stuck)
	if !strings.Contains(w.log.String(), "level=WARN") {
		w.t.Errorf("no warning: %s", w.log)
	}
	w.wantExpiry(c, call, wardClocks.Idle, began, "stuck")
	return c
}

// TestStuckServerIsReplacedOnce it has failed a fresh request.
func TestStuckServerIsReplacedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := admitted(t)
		c := stuck(w)
		old := w.newest()
		time.Sleep(time.Hour)
		if w.started() != 1 {
			t.Fatal("replaced without a request")
		}
		began := time.Now()
		fresh := c.tool("2")
		for c.answer(fresh) == "" && time.Since(began) < wardClocks.Idle {
			time.Sleep(100 * time.Millisecond)
		}
		if got := c.answer(fresh); !strings.Contains(got, `"code":-32603`) || !strings.Contains(got, "stuck") || !strings.Contains(got, `"outcome":"unknown"`) {
			t.Errorf("answered %s after %v", got, time.Since(began))
		}
		if d := time.Since(began); d < 2*wardLiveness.Timeout || d > 2*wardLiveness.Interval+2*wardLiveness.Timeout {
			t.Errorf("replaced after %v", d)
		}
		restarted()
		if w.started() != 2 || old.stopped == 0 {
			t.Fatalf("%d servers, the old one was stopped %d times", w.started(), old.stopped)
		}
		young := w.newest()
		young.greet(serverResult)
		young.heard()
		again := c.tool("3")
		line := young.next()
		if strings.Contains(line.line, `"name":"x"`) != true {
			t.Errorf("the new server was sent %s", line.line)
		}
		young.say(`{"jsonrpc":"2.0","id":%s,"result":{"ok":1}}`, line.ID)
		if got := c.answer(again); !strings.Contains(got, `"ok":1`) {
			t.Errorf("answered %s", got)
		}
		w.end()
	})
}

// TestStuckServerThatComesBack is not replaced: be it that it answers a ping,
// or the fresh request.
func TestStuckServerThatComesBack(t *testing.T) {
	for _, how := range []string{"it answers pings", "it answers the request", "it reports progress"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := admitted(t)
				c := stuck(w)
				b := w.newest()
				fresh := c.tool("2")
				line := b.next()
				time.Sleep(500 * time.Millisecond)
				switch how {
				case "it answers pings":
					b.behave(manner{ping: "answered"})
				case "it reports progress":
					b.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, line.ID)
				}
				time.Sleep(500 * time.Millisecond)
				if how != "it answers the request" {
					time.Sleep(10 * time.Second)
				}
				b.say(`{"jsonrpc":"2.0","id":%s,"result":{"ok":1}}`, line.ID)
				if got := c.answer(fresh); !strings.Contains(got, `"ok":1`) {
					t.Errorf("answered %s", got)
				}
				time.Sleep(time.Hour)
				if w.started() != 1 {
					t.Errorf("%d servers", w.started())
				}
				w.end()
			})
		})
	}
}

// TestCallHeldForARestart has clocks, and its server is watched, as any other.
func TestCallHeldForARestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := admitted(t)
		c := w.open("a")
		w.newest().die(killed)
		synctest.Wait()
		early := c.tool("1") // while it is being started
		restarted()
		time.Sleep(wardClocks.Idle + time.Second)
		synctest.Wait()
		if got := c.answer(early); !strings.Contains(got, "--request-timeout") || !strings.Contains(got, `"outcome":"not_executed"`) {
			t.Errorf("answered %s", got)
		}
		late := c.tool("2")
		w.newest().greet(serverResult)
		for _, line := range w.newest().heard() {
			if strings.Contains(line, `"name":"x"`) && strings.Contains(line, fmt.Sprintf(`"id":%d,`, early.up)) {
				t.Errorf("what was given up was sent: %s", line)
			}
		}
		w.after(5*time.Second, liveness.Busy) // it was sent a ping, and answered
		if c.answer(late) != "" {
			t.Errorf("answered %s", c.answer(late))
		}
		w.end()
	})
}
