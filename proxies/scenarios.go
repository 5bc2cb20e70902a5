package main

import (
	"fmt"
	"math"
	"sync"
	"time"
)

const (
	long         = 20 * time.Second // a call
	silenceLimit = 3 * time.Second
	ageLimit     = 5 * time.Second
)

var (
	quiet = []path{
		{name: "nginx", silence: silenceLimit},
		{name: "haproxy", silence: silenceLimit},
		{name: "caddy", silence: silenceLimit},
	}
	aging = []path{
		{name: "cutter", age: ageLimit},
		{name: "caddy", age: ageLimit, late: true},
	}
	handshake = []string{eraSSE, era202506, era202511}
)

// beat is the heartbeat that the age of a path is looked at with: what is noticed
// late is noticed at the next write.
const beat = 100 * time.Millisecond

// result is what was measured of one path.
type result struct {
	path       path
	configured []run   // with a heartbeat below the limit
	resumed    []run   // with the default one, by clients that come back
	lost       []run   // stateless calls that taught the gateway
	kept       []run   // those after it
	learned    finding // by the stateless ones
	alsoFound  finding // by those that come back
	rotated    []run   // once an age is known, by clients that can be sent away
	err        error
}

// problems says what is not as it must be.
func (r result) problems() (all []string) {
	bad := func(format string, args ...any) {
		all = append(all, r.path.name+": "+fmt.Sprintf(format, args...))
	}
	if r.err != nil {
		bad("%v", r.err)
		return all
	}
	for _, each := range [][]run{r.configured, r.resumed, r.kept, r.rotated} {
		for _, one := range each {
			if !one.once() {
				bad("%v", one)
			}
		}
	}
	for _, one := range r.configured {
		if one.cuts+one.closed > 0 {
			bad("cut all the same: %v", one)
		}
	}
	for _, one := range r.rotated {
		if one.cuts > 0 || one.closed == 0 {
			bad("not sent away in time: %v", one)
		}
	}
	for _, one := range r.lost {
		if one.start != 1 || one.cancel != 1 || one.answers != 0 {
			bad("not cancelled once: %v", one)
		}
	}
	kind, limit := "silence", r.path.silence
	if r.path.age > 0 {
		kind, limit = "age", r.path.age
	}
	check := func(f finding) {
		if f.kind != kind || f.off(limit) > 0.10 {
			bad("learned %+v, the limit is %s %v", f, kind, limit)
		}
	}
	if r.path.age == 0 {
		check(r.learned)
	}
	check(r.alsoFound)
	return all
}

func (f finding) off(limit time.Duration) float64 {
	return math.Abs(float64(f.value-limit)) / float64(limit)
}

// measure runs all that is to be shown of one path.
func (b *bench) measure(p path) result {
	res := result{path: p}
	var wg sync.WaitGroup
	var errs [3]error
	if p.age > 0 {
		wg.Go(func() { errs[0] = b.aging(p, &res) })
	} else {
		wg.Go(func() { errs[0] = b.belowLimit(p, &res) })
		wg.Go(func() { errs[1] = b.comingBack(p, &res) })
		wg.Go(func() { errs[2] = b.learning(p, &res) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			res.err = err
		}
	}
	return res
}

// belowLimit: the heartbeat is set below the limit, and nothing is ever cut.
func (b *bench) belowLimit(p path, res *result) error {
	r, err := b.rig(p, "--heartbeat", "1s")
	if err != nil {
		return err
	}
	defer r.stop()
	res.configured = r.calls(append(handshake, eraStateless), long, 0)
	return nil
}

// comingBack: nobody knows of the limit, and clients come back.
func (b *bench) comingBack(p path, res *result) error {
	r, err := b.rig(p)
	if err != nil {
		return err
	}
	defer r.stop()
	res.resumed = r.calls(handshake, long, 700*time.Millisecond)
	res.alsoFound = last(r.learned())
	return nil
}

// learning: nobody knows of the limit, and each stateless call that is cut is
// lost, until the gateway has found it out.
func (b *bench) learning(p path, res *result) error {
	r, err := b.rig(p)
	if err != nil {
		return err
	}
	defer r.stop()
	for range 12 {
		one := r.call(eraStateless, long, true, false)
		if one.answers > 0 {
			res.kept = append(res.kept, one)
			break
		}
		res.lost = append(res.lost, one)
	}
	res.kept = append(res.kept, r.calls([]string{eraStateless}, long, 0)...)
	res.learned = last(r.learned())
	return nil
}

// aging: the path cuts by age, which no heartbeat prevents. Clients of the handshake
// era come back; those that can are sent away in order before.
func (b *bench) aging(p path, res *result) error {
	r, err := b.rig(p, "--heartbeat", milliseconds(beat))
	if err != nil {
		return err
	}
	defer r.stop()
	res.resumed = r.calls(handshake, long, 700*time.Millisecond)
	res.alsoFound = last(r.learned())
	res.rotated = r.calls([]string{era202511}, long, 0) // now that it is known
	return nil
}

func last(all []finding) finding {
	if len(all) == 0 {
		return finding{}
	}
	return all[len(all)-1]
}
