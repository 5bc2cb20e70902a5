package soak

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// event is something that happened to a line.
type event struct {
	at, until time.Time // until is zero while it goes on
	kind, how string
}

// diary is what happened, in order. Safe for concurrent use.
type diary struct {
	mu     sync.Mutex // guards the field below
	events []*event
}

// note writes down that something begins now. It goes on until the returned
// function is called, which says how it was.
func (d *diary) note(kind string) (over func(format string, args ...any)) {
	e := &event{at: time.Now(), kind: kind, how: "goes on"}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
	return func(format string, args ...any) {
		d.mu.Lock()
		defer d.mu.Unlock()
		e.until, e.how = time.Now(), fmt.Sprintf(format, args...)
	}
}

// of returns what happened in a time, or was going on.
func (d *diary) of(from, to time.Time) (all []event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.events {
		if !e.at.After(to) && (e.until.IsZero() || !e.until.Before(from)) {
			all = append(all, *e)
		}
	}
	return all
}

func (d *diary) counted(kind string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.events {
		if e.kind == kind {
			n++
		}
	}
	return n
}

// The kinds of events.
const (
	cut      = "cut"      // the connections that there are
	outage   = "outage"   // and no new ones for a while
	stall    = "stall"    // nothing passes for a while; after it everything does, or the connections are cut
	redeploy = "redeploy" // from the end of one server to the beginning of the next
)

// How often and how long, before it is scaled.
const (
	calm        = 15 * time.Second // from one fault to the next, in the mean
	outageLong  = 12 * time.Second
	outageWorst = time.Minute
	stallLong   = 15 * time.Second
	downLong    = 5 * time.Second // between two servers
)

// weather is what a line's network does, until ctx ends. Then all passes.
func (r *run) weather(ctx context.Context, l *line, stream uint64) {
	d := r.o.random(stream)
	for pause(ctx, r.o.scaled(d.around(calm))) {
		switch n := d.IntN(100); {
		case n < 60:
			l.cut()
		case n < 85:
			long := d.between(0, outageLong)
			if d.chance(10) {
				long = d.between(outageLong, outageWorst)
			}
			r.outage(ctx, l, r.o.scaled(long), d.chance(50))
		default:
			r.stall(ctx, l, r.o.scaled(d.between(0, stallLong)), d.chance(50))
		}
	}
}

// cut is a network that loses its connections, and makes new ones at once.
func (l *line) cut() {
	over := l.faults.note(cut)
	over("%d connections", l.proxy.CutAll())
}

// outage is a network without a way: connections are refused, or, as by a proxy
// whose server has gone, taken and closed.
func (r *run) outage(ctx context.Context, l *line, long time.Duration, refused bool) {
	over := l.faults.note(outage)
	if refused {
		l.proxy.Hide()
	} else {
		l.proxy.Refuse(true)
	}
	n := l.proxy.CutAll()
	pause(ctx, long)
	l.proxy.Refuse(false)
	err := l.proxy.Show()
	for limit := time.Now().Add(startLimit); err != nil && time.Now().Before(limit); err = l.proxy.Show() {
		pause(context.WithoutCancel(ctx), 10*time.Millisecond)
	}
	if err != nil {
		l.client.fail("%v", err)
	}
	over("%d connections, refused: %v", n, refused)
}

// stall is a network where nothing passes, and then what waited passes, or is
// lost.
func (r *run) stall(ctx context.Context, l *line, long time.Duration, lost bool) {
	over := l.faults.note(stall)
	l.proxy.Stall(true)
	pause(ctx, long)
	n := 0
	if lost {
		n = l.proxy.CutAll()
	}
	l.proxy.Stall(false)
	over("%d connections were lost", n)
}

// redeploy replaces the server again and again, every other time without a
// warning, until ctx ends. The times are spread over the run.
func (r *run) redeploy(ctx context.Context) {
	d := r.o.random(2)
	n := max(2, r.o.share(fullRedeploys))
	every := r.o.scaled(r.o.Length) / time.Duration(n+1)
	for i := range n {
		at := r.begin.Add(time.Duration(i+1)*every + d.between(-every/4, every/4))
		if !pause(ctx, time.Until(at)) {
			return
		}
		kill := i%2 == 0
		var over []func(string, ...any)
		for _, l := range r.lines {
			over = append(over, l.faults.note(redeploy))
		}
		r.site.stop(kill, r.o.scaled(drain)+10*time.Second)
		pause(ctx, r.o.scaled(d.between(0, downLong)))
		if err := r.site.start(context.WithoutCancel(ctx)); err != nil {
			r.wrong = append(r.wrong, err.Error())
			return
		}
		for _, f := range over {
			f("killed: %v", kill)
		}
	}
}
