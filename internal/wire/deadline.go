package wire

import (
	"sync"
	"time"
)

// deadline is that of one direction of a connection, which is set once a read or a
// write meets it. For each request net/http and a handler say half a dozen times
// when it is to be, mostly while nothing is read or written, and each time a timer
// would be moved.
type deadline struct {
	set func(time.Time) error // really

	mu     sync.Mutex // guards the fields below; set is no I/O
	wanted time.Time
	is     time.Time
	busy   int // reads, or writes, under way
}

// want says when the deadline is to be.
func (d *deadline) want(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = t
	if d.busy == 0 {
		return nil
	}
	return d.meetLocked()
}

// begin is called before a read or a write.
func (d *deadline) begin() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy++
	err := d.meetLocked()
	if err != nil {
		d.busy--
	}
	return err
}

// end is called after it.
func (d *deadline) end() {
	d.mu.Lock()
	d.busy--
	d.mu.Unlock()
}

// near is how much of its time, as a part, a read or a write may have less than
// was wanted.
const near = 16

// meetLocked sets the deadline, unless it is almost what is wanted.
func (d *deadline) meetLocked() error {
	switch {
	case d.is.Equal(d.wanted):
		return nil
	case !d.is.IsZero() && d.is.Before(d.wanted):
		now := time.Now()
		if d.wanted.Sub(d.is) < d.wanted.Sub(now)/near {
			return nil
		}
	}
	err := d.set(d.wanted)
	if err == nil {
		d.is = d.wanted
	}
	return err
}
