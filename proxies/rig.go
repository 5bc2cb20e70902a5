package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// bench is what all runs share.
type bench struct {
	holdfast string // the binary
	deploy   string // the folder
	dir      string // for logs and configurations
	number   atomic.Int64
}

// rig is a gateway behind a proxy.
type rig struct {
	g      *gateway
	p      *proxy
	base   string // of the URLs that clients use
	counts string
	keys   atomic.Int64
}

func (b *bench) rig(p path, flags ...string) (*rig, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s-%d", p.name, b.number.Add(1))
	r := &rig{base: "http://" + host + ":" + port + p.prefix(), counts: filepath.Join(b.dir, name+".counts")}
	flags = append([]string{"--allow-host", host, "--public-url", r.base}, flags...)
	if r.g, err = startGateway(b.holdfast, b.dir, name, r.counts, flags...); err != nil {
		return nil, err
	}
	if r.p, err = p.start(b.deploy, b.dir, port, r.g.addr); err != nil {
		r.g.stop()
		return nil, err
	}
	return r, nil
}

func (r *rig) stop() {
	r.p.stop()
	r.g.stop()
}

// run is one call, with what its server counted.
type run struct {
	era    string
	silent bool
	outcome
	counts
}

// once says that the call was executed once and answered once.
func (r run) once() bool {
	return r.err == nil && r.answers == 1 && r.counts == counts{start: 1, end: 1}
}

func (r run) String() string {
	kind := "with progress"
	if r.silent {
		kind = "silent"
	}
	return fmt.Sprintf("%s, %s: %d answers, %d executions (%d cancelled), %d cuts, %d closed, %d resumptions, %d calls again, %.1f s, %v",
		r.era, kind, r.answers, r.start, r.cancel, r.cuts, r.closed, r.resumes, r.recalls, r.duration.Seconds(), r.err)
}

// every is how often calls that are not silent report progress: more rarely than
// the limits allow, so that it keeps no stream open.
const every = 4500 * time.Millisecond

// call opens a client, makes one call of some length and lets the client go.
func (r *rig) call(era string, long time.Duration, silent, again bool) run {
	ctx, cancel := context.WithTimeout(context.Background(), long+40*time.Second)
	defer cancel()
	w := work{Key: fmt.Sprintf("k%d", r.keys.Add(1)), MS: int(long.Milliseconds())}
	if !silent {
		w.Every = int(every.Milliseconds())
	}
	out := run{era: era, silent: silent}
	c := newClient(era, r.p.addr, r.base)
	defer c.close()
	if out.err = c.open(ctx); out.err == nil {
		out.outcome = c.call(ctx, w, again)
	}
	// A cancellation takes its time to arrive.
	for range 40 {
		if out.counts, _ = readCounts(r.counts, w.Key); out.end+out.cancel > 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	return out
}

// calls makes a silent call and one with progress in each era, all at once but
// for the gap between their starts.
func (r *rig) calls(eras []string, long, gap time.Duration) []run {
	all := make([]run, 2*len(eras))
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			time.Sleep(time.Duration(i) * gap)
			all[i] = r.call(eras[i/2], long, i%2 == 0, true)
		})
	}
	wg.Wait()
	return all
}

// finding is what the gateway says that it learned.
type finding struct {
	kind   string
	value  time.Duration
	atMost bool
	ends   int
}

func (r *rig) learned() (all []finding) {
	for _, e := range r.g.logged(says("path limit learned", "")) {
		atMost, _ := e["at_most"].(bool)
		ends, _ := e["ends"].(float64)
		all = append(all, finding{e.text("kind"), e.duration("value"), atMost, int(ends)})
	}
	return all
}
