package session

import (
	"crypto/rand"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/liveness"
	"github.com/holdfast-mcp/holdfast/internal/observe"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// maxUnanswered is after how many pings a client that never answered one is sent
// no more.
const maxUnanswered = 3

// pulse is what a session knows of its client's being there. Guarded by the
// session's mu.
type pulse struct {
	mon      *liveness.Monitor
	mint     string // begins the ids of pings
	sent     int
	answered int
	watching bool // a stream is open
	silent   bool // it used to answer, and does not
	lastSent time.Time
	bunch    []time.Time // when pings were sent whose answers came at once
	lastPong time.Time
	held     bool // that bytes are held back on the way was said
}

// heardLocked notes that the client was heard. Its calls cannot be joined from
// now on: the book's lock is taken within the session's here, never the other
// way round.
func (s *Session) heardLocked() {
	s.touch()
	if s.pulse.mon != nil {
		s.pulse.mon.Heard(s.used)
		s.suspect(s.suspectsLocked(false), false)
	}
}

// Attend sends the client a ping if one is due, and tells the book if it seems
// to be gone although its stream looks open.
func (s *Session) attend(now time.Time) {
	if s.o.Liveness.Interval < 0 {
		return
	}
	s.mu.Lock()
	p := &s.pulse
	st := s.pingableLocked()
	if st == nil {
		if p.watching {
			p.watching = false
			p.mon.Ended(now)
		}
		s.mu.Unlock()
		return
	}
	if p.mon == nil {
		settings := s.o.Liveness
		settings.Remote = true
		p.mon, p.mint = liveness.New(settings, now), "hf-ping-"+rand.Text()[:10]+"-"
		p.mon.Heard(s.used)
	}
	if !p.watching {
		p.watching = true
		p.mon.Began(now)
	}
	do, _ := p.mon.Next(now)
	if do&liveness.Ping != 0 && (p.answered > 0 || p.sent < maxUnanswered) {
		p.sent++
		id := p.mint + strconv.Itoa(p.sent)
		msg := append(jsonrpc.AppendString([]byte(`{"jsonrpc":"2.0","id":`), id), `,"method":"ping"}`...)
		p.mon.PingSent(now, id, len(msg))
		p.lastSent = now
		st.log.Append(msg, false)
	}
	changed := s.suspectsLocked(p.mon.Silent(now))
	silent := p.silent
	s.mu.Unlock()
	s.suspect(changed, silent)
}

// pingableLocked returns an open stream of a client that has negotiated.
func (s *Session) pingableLocked() *Stream {
	switch {
	case s.ended != nil || s.version == "":
		return nil
	case s.general.reader != nil:
		return &s.general
	}
	for i := len(s.posts) - 1; i >= 0; i-- {
		if st := s.posts[i]; st.events && st.reader != nil {
			return st
		}
	}
	return nil
}

// suspectsLocked returns the calls whose reader is thought to be gone from now
// on, or to be there again.
func (s *Session) suspectsLocked(silent bool) []*call {
	if s.pulse.silent == silent {
		return nil
	}
	s.pulse.silent = silent
	var all []*call
	for _, c := range s.calls {
		if c.root().entry != nil {
			all = append(all, c)
		}
	}
	return all
}

// suspect tells the book. A call that others read, too, is not to be had.
func (s *Session) suspect(all []*call, silent bool) {
	for _, c := range all {
		if !silent || !c.othersRead() {
			s.book.Suspect(c.root().entry, silent)
		}
	}
	if len(all) > 0 && silent {
		s.o.Log.Info("the client does not answer pings any more, though its stream looks open; an equal call of it may join its running ones",
			"session", Short(s.ID), "calls", len(all))
	}
}

// pinged takes the answer to a ping, and reports whether it was one.
func (s *Session) pinged(m *jsonrpc.Message) bool {
	id := string(m.Text(jsonrpc.ID))
	if !strings.HasPrefix(id, "hf-ping-") {
		return false
	}
	now := time.Now()
	s.mu.Lock()
	p := &s.pulse
	if p.mon == nil || !strings.HasPrefix(id, p.mint) {
		s.mu.Unlock()
		return true // of an earlier life
	}
	p.answered++
	var rtt time.Duration
	if m.Has(jsonrpc.Error) { // a sign of life, too
		p.mon.PingRefused(now)
	} else {
		rtt = p.mon.PingAnswered(now, id)
	}
	held := p.heldBack(now, rtt)
	changed := s.suspectsLocked(false)
	s.mu.Unlock()
	s.suspect(changed, false)
	s.o.Log.Debug("the client answered a ping", "session", Short(s.ID), "rtt", rtt)
	if held && s.o.Observe != nil {
		s.o.Observe(observe.Event{Subject: observe.Route, Who: observe.Path, Sure: observe.Likely, Session: Short(s.ID), Silence: rtt,
			Text: "something between here and the client holds bytes back: answers to pings that were sent one after the other came all at once; " +
				"switch response buffering off there"})
	}
	return true
}

// heldBack reports, once, that answers to pings sent at different times came
// bunched: then what was sent before them had not gone through either.
func (p *pulse) heldBack(now time.Time, rtt time.Duration) bool {
	sent := now.Add(-rtt)
	if now.Sub(p.lastPong) > rtt/10 {
		p.bunch = p.bunch[:0]
	}
	p.lastPong = now
	p.bunch = append(p.bunch, sent)
	spread := sent.Sub(p.bunch[0]).Abs()
	if p.held || len(p.bunch) < 2 || spread < time.Second {
		return false
	}
	p.held = true
	return true
}
