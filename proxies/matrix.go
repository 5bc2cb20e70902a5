package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// The truths of the matrix.
const (
	clientLeft = "client left"
	cutSilence = "path cut by silence"
	cutAge     = "path cut by age"
	serverGone = "server gone"
)

// runs is how many of each truth there are, for each path.
const runs = 20

// cell is what the gateway said of a stream.
type cell struct{ cause, who, sure string }

// tally counts, for one path, what was said by what was true.
type tally map[string]map[cell]int

func (t tally) add(truth string, c cell) {
	if t[truth] == nil {
		t[truth] = map[cell]int{}
	}
	t[truth][c]++
}

func (t tally) total(truth string) (n int) {
	for _, k := range t[truth] {
		n += k
	}
	return n
}

// trial is one stream that is going to end.
type trial struct {
	truth string
	w     work
	leave time.Duration // when the client goes; 0: it stays
}

// matrix lets streams end in every way, mixed, on one path. What is learned
// ends a path's cuts by silence, so it goes on with fresh gateways until there were
// enough of them.
func (b *bench) matrix(p path, seed uint64) (tally, error) {
	rng := rand.New(rand.NewPCG(seed, 0))
	t := tally{}
	cut := cutSilence
	if p.age > 0 {
		cut = cutAge
	}
	for range 8 {
		if err := b.wave(p, rng, t, cut); err != nil {
			return t, err
		}
		if t.total(cut) >= runs && t.total(clientLeft) >= runs && t.total(serverGone) >= runs {
			return t, nil
		}
	}
	return t, fmt.Errorf("%s: not enough streams were cut: %v", p.name, t)
}

// wave mixes some of each truth that is still wanting before one gateway.
func (b *bench) wave(p path, rng *rand.Rand, t tally, cut string) error {
	flags := []string{}
	if p.age > 0 {
		flags = append(flags, "--heartbeat", milliseconds(beat))
	}
	r, err := b.rig(p, flags...)
	if err != nil {
		return err
	}
	defer r.stop()
	uniform := func(lo, hi float64) time.Duration {
		return time.Duration((lo + (hi-lo)*rng.Float64()) * float64(time.Second))
	}
	size := 10
	if p.age > 0 {
		size = runs // it goes on cutting
	}
	var trials []trial
	for range min(size, runs-t.total(cut)) {
		trials = append(trials, trial{truth: cut, w: work{MS: 8000}})
	}
	for range min(size, runs-t.total(clientLeft)) {
		one := trial{truth: clientLeft, w: work{MS: 30_000}, leave: uniform(0.5, 2.8)}
		if rng.IntN(2) == 0 {
			one.w.Every = 700
			if p.age == 0 {
				one.leave = uniform(0.5, 6)
			}
		}
		if p.age > 0 {
			one.leave = uniform(0.5, p.age.Seconds()*0.95)
		}
		trials = append(trials, one)
	}
	for range min(size, runs-t.total(serverGone)) {
		trials = append(trials, trial{truth: serverGone, w: work{MS: 30_000, Die: int(uniform(0.5, 2.5).Milliseconds())}})
	}
	rng.Shuffle(len(trials), func(i, j int) { trials[i], trials[j] = trials[j], trials[i] })

	cells := make([]*cell, len(trials))
	errs := make([]error, len(trials))
	var wg sync.WaitGroup
	for i, one := range trials {
		one.w.Key = fmt.Sprintf("m%d", i)
		wg.Go(func() { cells[i], errs[i] = r.try(one) })
		time.Sleep(uniform(0.2, 0.6))
	}
	wg.Wait()
	gone, known := 0, 0
	for _, one := range trials {
		if one.truth == serverGone {
			gone++
		}
	}
	for _, e := range r.g.logged(says("the server ended", "")) {
		if e.text("cause") == "server exited" && e.text("sure") == "certain" {
			known++
		}
	}
	if known != gone {
		return fmt.Errorf("%s: %d servers died, the log has %d", p.name, gone, known)
	}
	for i, one := range trials {
		if errs[i] != nil {
			return fmt.Errorf("%s, %s: %w", p.name, one.truth, errs[i])
		}
		if cells[i] != nil && t.total(one.truth) < runs {
			t.add(one.truth, *cells[i])
		}
	}
	return nil
}

// try lets one stream end and returns what the gateway said; nil if it did not
// end as it was to, because the path has stopped to cut.
func (r *rig) try(one trial) (*cell, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c := newClient(era202506, r.p.addr, r.base)
	defer c.close()
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	calling := ctx
	if one.leave > 0 {
		var leave context.CancelFunc
		calling, leave = context.WithTimeout(ctx, one.leave)
		defer leave()
	}
	o := c.call(calling, one.w, false)
	switch {
	case one.truth == clientLeft && o.answers > 0:
		return nil, errors.New("answered before the client left")
	case one.truth == clientLeft && o.duration < one.leave-50*time.Millisecond:
		return nil, nil // the path was faster
	case one.truth == cutSilence && o.answers > 0:
		return nil, nil
	case one.truth == cutAge && o.answers > 0:
		return nil, fmt.Errorf("not cut: %+v", o)
	case one.truth == serverGone && o.answers == 0:
		return nil, fmt.Errorf("no answer for a server that is gone: %+v", o)
	}
	e := r.g.await(10*time.Second, c.streamed, says("stream ended", c.session))
	if e == nil {
		return nil, errors.New("the gateway says nothing about the stream's end")
	}
	if late := e.duration("age") - o.duration; one.truth == clientLeft && late > time.Second {
		return nil, fmt.Errorf("the gateway saw %v late that the client had left", late)
	}
	return &cell{e.text("cause"), e.text("who"), e.text("sure")}, nil
}
