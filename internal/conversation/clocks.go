package conversation

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/liveness"
	"github.com/holdfast-mcp/holdfast/internal/observe"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Clocks are the times that a call has. Zero or less means any time.
type Clocks struct {
	Idle time.Duration // without progress of its own
	Max  time.Duration // in all
}

// errStuck: a server that neither answers nor works, and failed a fresh request.
var errStuck = errors.New("it is stuck: it neither answers nor works")

// CodeTimeout answers a call whose time was over, as the official SDKs do.
const CodeTimeout = -32001

// watch is what a conversation knows of its server's life, and the timer that
// looks at the clocks of its calls. Guarded by the conversation's mu.
type watch struct {
	mon      *liveness.Monitor
	calls    int // that mon was told of
	verdict  liveness.Verdict
	timer    *time.Timer
	at       time.Time // when the timer fires; zero: it does not
	looked   time.Time // when the clocks were looked at
	sampling bool
	met      bool      // the server was pinged once
	stuckCut time.Time // when a call of a stuck server was cancelled; zero: it has been heard since
}

func (w *watch) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.at = time.Time{}
}

// timed reports whether the call has clocks: the handshake has the start time-out,
// and a subscription is meant to last.
func (c *Call) timed() bool { return c.method != "initialize" && c.method != "subscriptions/listen" }

// watchLocked starts the clocks of a call that is being sent.
func (c *Conversation) watchLocked(call *Call) {
	if call.Peer == nil {
		return
	}
	now := time.Now()
	if call.began.IsZero() {
		call.began = now
		if c.opts.Clocks != nil && call.timed() {
			tool := ""
			if call.method == "tools/call" {
				tool = call.name
			}
			call.clocks = c.opts.Clocks(tool)
		}
	}
	call.moved = now
	if !call.timed() {
		return
	}
	w := &c.watch
	w.mon.Began(now)
	w.calls++
	next := now.Add(cmp.Or(max(0, c.opts.Liveness.Interval), 30*time.Second))
	for _, d := range []time.Duration{call.clocks.Idle, call.clocks.Max} {
		if at := now.Add(d); d > 0 && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	c.wakeLocked(now, next)
}

// wakeLocked has the clocks looked at by then. A timer that is earlier is left:
// most calls are over before it fires.
func (c *Conversation) wakeLocked(now, at time.Time) {
	w := &c.watch
	if at.IsZero() || c.state == over || !w.at.IsZero() && !at.Before(w.at) {
		return
	}
	if w.at.IsZero() && w.timer == nil {
		w.looked = now
	}
	w.at = at
	in := max(at.Sub(now), time.Millisecond)
	if w.timer == nil {
		w.timer = time.AfterFunc(in, c.look)
	} else {
		w.timer.Reset(in)
	}
}

// heard notes that the server wrote something that is no answer.
func (c *Conversation) heard(gen int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if gen == c.gen {
		c.watch.stuckCut = time.Time{}
		c.watch.mon.Heard(time.Now())
	}
}

// answeredLocked notes that the server wrote an answer, to a call that is nil if
// nobody waits for it. That to a ping is no output: a server that does no more is
// busy.
func (c *Conversation) answeredLocked(call *Call) {
	c.watch.stuckCut = time.Time{}
	if call == nil || call.Peer != nil || call.method != "ping" {
		c.watch.mon.Heard(time.Now())
	}
}

// judgeLocked begins to judge the present server.
func (c *Conversation) judgeLocked() {
	settings := c.opts.Liveness
	if settings.Interval < 0 || c.stateless || c.bridge != nil { // the stateless era has no ping
		settings.NoPing = true
	}
	settings.Remote = c.processLocked() == nil
	c.watch.mon = liveness.New(settings, time.Now())
	c.watch.calls, c.watch.stuckCut, c.watch.met = 0, time.Time{}, false
}

// vital is a link to a server whose processes can be looked at.
type vital interface{ Vitals() liveness.Vitals }

// processLocked returns the process of the server, nil if it is none that can
// be looked at.
func (c *Conversation) processLocked() vital {
	v, ok := c.link.(vital)
	if has, says := c.link.(interface{ HasProcess() bool }); !ok || says && !has.HasProcess() {
		return nil
	}
	return v
}

// meetLocked pings a server once that has just been initialized: only one that
// has answered a ping can be told to be stuck later, in its first call, too.
func (c *Conversation) meetLocked() {
	if c.processLocked() != nil && c.state == open && !c.watch.met && c.opts.Liveness.Interval >= 0 && !c.stateless && c.bridge == nil {
		c.watch.met = true
		c.pingLocked(time.Now())
	}
}

// progressLocked notes that a call makes progress.
func (c *Conversation) progressLocked(call *Call) {
	now := time.Now()
	call.moved = now
	c.watch.mon.Progress(now)
}

// late is a call whose time is over.
type late struct {
	call  *Call
	clock observe.Cause
	limit time.Duration
}

// look looks at all clocks, and does what they say.
func (c *Conversation) look() {
	now := time.Now()
	c.mu.Lock()
	w := &c.watch
	w.at = time.Time{}
	if c.state == over || w.mon == nil {
		c.mu.Unlock()
		return
	}
	report := w.mon.Report(now)
	over, next := c.lateLocked(now, report.Works)
	for _, l := range over {
		c.forgetLocked(l.call.up, c.reason(l))
		if report.Verdict == liveness.Stuck {
			w.stuckCut = now
		}
	}
	replace := c.replaceLocked(now, report)
	wake := c.attendLocked(now)
	if next.IsZero() || !wake.IsZero() && wake.Before(next) {
		next = wake
	}
	w.looked = now
	c.wakeLocked(now, next)
	changed := report.Verdict != w.verdict
	w.verdict = report.Verdict
	gen, link := c.gen, c.link
	c.mu.Unlock()

	if changed {
		c.tell(report)
	}
	for _, l := range over {
		c.expire(l, report)
	}
	if replace && link != nil {
		c.linkClosed(gen, errStuck)
	}
}

// lateLocked returns the calls whose time is over, and when the next one's is.
// What waits for a client's answer has its clocks stopped; evidence that the
// server works stops the idle clock.
func (c *Conversation) lateLocked(now time.Time, works bool) (over []late, next time.Time) {
	w := &c.watch
	passed := now.Sub(w.looked)
	n := 0
	for _, call := range c.calls {
		if call.Peer == nil || call.began.IsZero() || !call.timed() {
			continue
		}
		n++
		asking := c.askingLocked(call, now)
		if asking {
			call.began = earlier(call.began.Add(passed), now)
		}
		if asking || works {
			call.moved = earlier(call.moved.Add(passed), now)
		}
		for _, l := range []struct {
			clock observe.Cause
			since time.Time
			limit time.Duration
		}{{observe.RequestIdle, call.moved, call.clocks.Idle}, {observe.RequestMaximum, call.began, call.clocks.Max}} {
			due := l.since.Add(l.limit)
			switch {
			case l.limit <= 0:
			case !due.After(now):
				over = append(over, late{call, l.clock, l.limit})
			case next.IsZero() || due.Before(next):
				next = due
			}
		}
	}
	for ; w.calls > n; w.calls-- {
		w.mon.Ended(now)
	}
	for ; w.calls < n; w.calls++ { // held for a server that was started meanwhile
		w.mon.Began(now)
	}
	if len(over) > 1 {
		seen := map[*Call]bool{}
		kept := over[:0]
		for _, l := range over {
			if !seen[l.call] {
				kept = append(kept, l)
			}
			seen[l.call] = true
		}
		over = kept
	}
	return over, next
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// askingLocked reports whether the server waits for the client's answer to a
// question that may belong to the call.
func (c *Conversation) askingLocked(call *Call, now time.Time) bool {
	if f := call.follow; f != nil && !f.waits.IsZero() && (c.opts.Question <= 0 || now.Sub(f.waits) < c.opts.Question) {
		return true
	}
	for _, q := range c.asked {
		if (q.call == call || q.call == nil) && (c.opts.Question <= 0 || now.Sub(q.at) < c.opts.Question) {
			return true
		}
	}
	return false
}

// attendLocked does what the monitor wants to know, and returns when it wants
// to know more.
func (c *Conversation) attendLocked(now time.Time) time.Time {
	w := &c.watch
	do, wake := w.mon.Next(now)
	if do&liveness.Ping != 0 && c.state == open {
		c.pingLocked(now)
		_, wake = w.mon.Next(now)
	}
	if process := c.processLocked(); process != nil && do&liveness.Sample != 0 && !w.sampling {
		w.sampling = true
		gen := c.gen
		go func() { // ends with one look at the process table
			v := process.Vitals()
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.watch.sampling = false; gen == c.gen {
				c.watch.mon.Sampled(v)
				now := time.Now()
				c.wakeLocked(now, now) // to tell what it shows
			}
		}()
	}
	return wake
}

var ping, _ = jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":0,"method":"ping"}`))

// pingLocked asks the server for a sign of life.
func (c *Conversation) pingLocked(now time.Time) {
	gen := c.gen
	call := &Call{method: "ping"}
	call.inner = func(m *jsonrpc.Message) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case gen != c.gen:
		case m.Has(jsonrpc.Error):
			c.watch.mon.PingRefused(time.Now())
		default:
			c.watch.stuckCut = time.Time{}
			rtt := c.watch.mon.PingAnswered(time.Now(), strconv.FormatUint(call.up, 10))
			c.opts.Log.Debug("the server answered a ping", "server", c.opts.Name, "rtt", rtt)
		}
	}
	if c.sendCallLocked(call, ping, nil) == nil {
		c.watch.mon.PingSent(now, strconv.FormatUint(call.up, 10), ping.Len())
	}
}

// replaceLocked reports whether the server is to be replaced: it was stuck when
// a call of it was given up, and has failed a request that came after that. No
// ping alone brings this about.
func (c *Conversation) replaceLocked(now time.Time, r liveness.Report) bool {
	cut := c.watch.stuckCut
	if cut.IsZero() || r.Verdict != liveness.Stuck {
		return false
	}
	patience := c.opts.Liveness.Timeout * time.Duration(max(1, c.opts.Liveness.Misses))
	for _, call := range c.calls {
		if call.Peer != nil && call.began.After(cut) && now.Sub(call.began) >= patience {
			return true
		}
	}
	return false
}

// reason is what the server is told of a call whose time is over.
func (c *Conversation) reason(l late) string {
	return fmt.Sprintf("%s: %s", l.clock, l.limit)
}

// expire answers a call whose time is over.
func (c *Conversation) expire(l late, r liveness.Report) {
	l.call.Cause = l.clock
	text, clock := fmt.Sprintf("no progress for %s (--request-timeout, or request_timeout of the server or tool; progress notifications of the call reset it)", l.limit), "request-timeout"
	if l.clock == observe.RequestMaximum {
		text, clock = fmt.Sprintf("not answered within %s in all (--request-max, or request_max of the server or tool)", l.limit), "request-max"
	}
	text = fmt.Sprintf("%s was cancelled: %s; the server was %s", l.call.What(), text, r.Verdict)
	outcome := "unknown"
	if !l.call.sent { // it waited for a server that was being started
		outcome = "not_executed"
	}
	data := append(append([]byte(`{"outcome":"`), outcome...), `","clock":"`...)
	data = append(data, clock...)
	data = append(append(data, `","limit":"`...), l.limit.String()...)
	data = append(append(data, `","verdict":"`...), r.Verdict.String()...)
	data = append(data, `","evidence":[`...)
	for i, e := range r.Evidence {
		if i > 0 {
			data = append(data, ',')
		}
		data = jsonrpc.AppendString(data, e)
	}
	l.call.Peer.Answer(l.call, jsonrpc.AppendError(nil, l.call.ID, CodeTimeout, text, append(data, ']', '}')))
	if c.opts.Observe != nil {
		e := observe.Ended(observe.Call, l.clock)
		e.Text, e.Server, e.ID, e.Method, e.Age = "call cancelled", c.opts.Name, strconv.FormatUint(l.call.up, 10), l.call.What(), time.Since(l.call.began)
		c.opts.Observe(e)
	}
}

// tell tells of a verdict that has changed.
func (c *Conversation) tell(r liveness.Report) {
	say := c.opts.Log.Debug
	switch r.Verdict {
	case liveness.Stuck:
		say = c.opts.Log.Warn
	case liveness.Blocked, liveness.Waiting:
		say = c.opts.Log.Info
	}
	say("the server is "+r.Verdict.String(), "server", c.opts.Name, "since", r.Since.Format(time.RFC3339), "evidence", strings.Join(r.Evidence, "; "))
}

// Verdict returns how the server is, as far as it can be told.
func (c *Conversation) Verdict() liveness.Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watch.mon == nil {
		return liveness.Report{}
	}
	return c.watch.mon.Report(time.Now())
}
