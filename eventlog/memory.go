package eventlog

import (
	"sort"
	"sync"
	"sync/atomic"
)

// Budget bounds the bytes that many logs hold together. The zero Budget sets
// no bound. Safe for concurrent use.
type Budget struct {
	Max  int64 // bytes; 0: none
	used atomic.Int64
}

// Used returns the bytes held now.
func (b *Budget) Used() int64 { return b.used.Load() }

// Over reports whether more than the budget is held.
func (b *Budget) Over() bool { return b.Max > 0 && b.used.Load() > b.Max }

// Limits bounds one log.
type Limits struct {
	Events int     // how many events are retained; 0: 1024
	Bytes  int     // of their data; 0: 1 MiB
	Floor  int     // bytes retained even when Total is over; 0: 64 KiB
	Total  *Budget // shared with other logs; nil: none
}

func (l Limits) withDefaults() Limits {
	if l.Events == 0 {
		l.Events = 1024
	}
	if l.Bytes == 0 {
		l.Bytes = 1 << 20
	}
	if l.Floor == 0 {
		l.Floor = 64 << 10
	}
	return l
}

// overhead is what an event costs beside its data.
const overhead = 48

// entry is an event, or the hole that a trimmed one left.
type entry struct {
	seq  Seq
	data []byte
	kept bool // as appended
	keep bool // kept, and not confirmed yet
	gone bool
}

// Memory is a Log in memory. The zero Memory is empty, with default limits,
// and ready to use. Kept events that no reader has confirmed are never trimmed:
// who appends them bounds their number.
type Memory struct {
	limits Limits

	mu        sync.Mutex // guards the fields below
	head      Seq        // the newest event
	entries   []entry    // in order of seq
	holes     int
	bytes     int // of what is retained
	live      int // entries that are not holes
	next      int // index from which to trim; kept entries may stand before it
	lost      Seq // the newest trimmed event
	delivered Seq
	kept      int // unconfirmed kept events
	keptBytes int
	ended     bool
	changed   chan struct{} // made by who waits, closed by the next change
	wake      func()
}

var _ Log = (*Memory)(nil)

// NewMemory returns an empty log with the given limits.
func NewMemory(l Limits) *Memory { return &Memory{limits: l} }

// SetLimits sets the limits of a log that has no events yet.
func (m *Memory) SetLimits(l Limits) { m.limits = l }

// Append implements Log. After End it does nothing and returns 0.
func (m *Memory) Append(data []byte, keep bool) Seq { return m.append(data, keep, false) }

// Finish appends a last, kept event and ends the log in one step, so that a
// reader that sees the event sees the end as well.
func (m *Memory) Finish(data []byte) Seq { return m.append(data, true, true) }

func (m *Memory) append(data []byte, keep, end bool) Seq {
	m.mu.Lock()
	if m.ended {
		m.mu.Unlock()
		return 0
	}
	m.head++
	m.entries = append(m.entries, entry{seq: m.head, data: data, kept: keep, keep: keep})
	m.live++
	if keep {
		m.kept++
		m.keptBytes += len(data)
	}
	m.account(len(data) + overhead)
	m.trimLocked()
	m.ended = end
	head := m.head
	wake := m.changeLocked()
	m.mu.Unlock()
	if wake != nil {
		wake()
	}
	return head
}

// changeLocked wakes who waits, and returns the wake function to call once
// the lock is released.
func (m *Memory) changeLocked() func() {
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
	wake := m.wake
	m.wake = nil
	return wake
}

func (m *Memory) account(n int) {
	m.bytes += n
	if m.limits.Total != nil {
		m.limits.Total.used.Add(int64(n))
	}
}

// trimLocked gives up the oldest events until the log is within its limits.
func (m *Memory) trimLocked() {
	l := m.limits.withDefaults()
	for m.next < len(m.entries)-1 {
		tight := l.Total != nil && l.Total.Over() && m.bytes > l.Floor
		if m.live <= l.Events && m.bytes <= l.Bytes && !tight {
			break
		}
		e := &m.entries[m.next]
		if !e.gone && (!e.keep || e.seq <= m.delivered) {
			m.dropLocked(e)
		}
		m.next++
	}
	m.compactLocked()
}

func (m *Memory) dropLocked(e *entry) {
	m.account(-len(e.data) - overhead)
	m.live--
	m.holes++
	m.lost = max(m.lost, e.seq)
	*e = entry{seq: e.seq, gone: true}
}

// compactLocked closes the holes once they outnumber what is retained, in new
// memory if that frees much.
func (m *Memory) compactLocked() {
	if m.holes < 32 || m.holes < m.live {
		return
	}
	to := m.entries[:0]
	if cap(m.entries) > 4*(m.live+16) {
		to = make([]entry, 0, m.live+16)
	}
	next := 0
	for i, e := range m.entries {
		if i == m.next {
			next = len(to)
		}
		if !e.gone {
			to = append(to, e)
		}
	}
	if m.next >= len(m.entries) {
		next = len(to)
	}
	if len(to) < len(m.entries) && cap(to) == cap(m.entries) {
		clear(m.entries[len(to):])
	}
	m.entries, m.next, m.holes = to, next, 0
}

// indexLocked returns the index of the first entry after a position.
func (m *Memory) indexLocked(after Seq) int {
	n := len(m.entries)
	if n == 0 || after >= m.head {
		return n
	}
	if m.holes == 0 && m.head-m.entries[0].seq == Seq(n-1) { // no gap
		return int(max(after+1, m.entries[0].seq) - m.entries[0].seq)
	}
	return sort.Search(n, func(i int) bool { return m.entries[i].seq > after })
}

// Read implements Log. After the last event of a log that has ended, events is
// empty and more is false.
func (m *Memory) Read(batch []Event, after Seq, maxBytes int) (events []Event, missed uint64, more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	events = batch
	var retained uint64 // of the events not after lost
	size := 0
	i := m.indexLocked(after)
	last := after
	for ; i < len(m.entries); i++ {
		e := &m.entries[i]
		if e.gone {
			continue
		}
		if len(events) > len(batch) && size+len(e.data) > maxBytes {
			break
		}
		size += len(e.data)
		last = e.seq
		if e.seq <= m.lost {
			retained++
		}
		events = append(events, Event{e.seq, e.data, e.kept})
	}
	through := m.lost
	if i < len(m.entries) {
		through = min(through, last)
	}
	if through > after {
		missed = uint64(through-after) - retained
	}
	return events, missed, !m.ended || i < len(m.entries)
}

// Check returns nil if reading can go on after the position without a loss,
// else ErrTrimmed or ErrUnknown.
func (m *Memory) Check(after Seq) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case after > m.head:
		return ErrUnknown
	case after < m.lost:
		return ErrTrimmed
	}
	return nil
}

// Head returns the position of the newest event, 0 if there was none.
func (m *Memory) Head() Seq {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.head
}

// Changed implements Log.
func (m *Memory) Changed(after Seq) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.head > after || m.ended {
		return closed
	}
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	return m.changed
}

// closed is the answer of Changed when there is no need to wait. It is never
// written to.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Wake arranges for f to be called once, without the log's lock, at the next
// change after the position; at once if there was one. It takes the place of
// an earlier f; nil only removes it. f must not block. Unlike Changed it costs
// an idle reader no goroutine of its own.
func (m *Memory) Wake(after Seq, f func()) {
	m.mu.Lock()
	now := f != nil && (m.head > after || m.ended)
	if now {
		m.wake = nil
	} else {
		m.wake = f
	}
	m.mu.Unlock()
	if now {
		f()
	}
}

// Delivered confirms that the events up to seq reached a reader: kept ones
// among them are trimmed from now on like any other.
func (m *Memory) Delivered(seq Seq) {
	m.mu.Lock()
	defer m.mu.Unlock()
	seq = min(seq, m.head)
	if seq <= m.delivered {
		return
	}
	i := m.indexLocked(m.delivered)
	m.delivered = seq
	for ; i < len(m.entries) && m.entries[i].seq <= seq; i++ {
		e := &m.entries[i]
		if !e.keep {
			continue
		}
		m.kept--
		m.keptBytes -= len(e.data)
		if e.keep = false; i < m.next {
			m.dropLocked(e)
		}
	}
	m.compactLocked()
}

// DeliveredTo returns the newest position confirmed by Delivered.
func (m *Memory) DeliveredTo() Seq {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.delivered
}

// Kept returns how many kept events no reader has confirmed, and their bytes.
func (m *Memory) Kept() (events, bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept, m.keptBytes
}

// Size returns the bytes that the log retains.
func (m *Memory) Size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes
}

// End says that no event will follow.
func (m *Memory) End() {
	m.mu.Lock()
	m.ended = true
	wake := m.changeLocked()
	m.mu.Unlock()
	if wake != nil {
		wake()
	}
}

// Release ends the log and frees what it retains.
func (m *Memory) Release() {
	m.mu.Lock()
	m.ended = true
	m.lost = max(m.lost, m.head)
	m.account(-m.bytes)
	m.entries, m.live, m.holes, m.next, m.kept, m.keptBytes = nil, 0, 0, 0, 0, 0
	wake := m.changeLocked()
	m.mu.Unlock()
	if wake != nil {
		wake()
	}
}
