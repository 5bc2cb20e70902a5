package calls

import (
	"hash/maphash"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/ledger"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Likeness tells calls that may be equal from such as are not, cheaply. Zero is
// that of calls which are not looked at.
type Likeness uint64

// Like returns the likeness of a request of somebody. Equal requests that are
// spelled differently may differ in it.
func Like(who string, m *jsonrpc.Message) Likeness {
	if who == "" {
		return 0
	}
	before, after := m.BesideMeta()
	var h maphash.Hash
	h.SetSeed(seeds[0])
	_, _ = h.WriteString(who)
	_, _ = h.Write(m.Raw(jsonrpc.Method))
	_, _ = h.Write(before)
	_, _ = h.Write(after)
	return Likeness(h.Sum64() | 1)
}

// seeds are those of this process: what they make is not kept.
var seeds = [4]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed(), maphash.MakeSeed(), maphash.MakeSeed()}

// settleTime is how long a request waits for the end of a connection to be
// noticed. The client that lost it has noticed already, and calls again.
const settleTime = 50 * time.Millisecond

// settle waits while the only call alike seems to be read. Where there are
// several, their caller wants several.
func (b *Book[T]) settle(like Likeness) {
	b.mu.Lock()
	if b.twins[like] != 1 {
		b.mu.Unlock()
		return
	}
	less := b.waits[like]
	if less == nil {
		less = make(chan struct{})
		b.waits[like] = less
	}
	b.mu.Unlock()
	limit := time.NewTimer(settleTime)
	defer limit.Stop()
	select {
	case <-less:
	case <-limit.C:
	}
}

// countLocked notes whether a call is read, if it is running.
func (b *Book[T]) countLocked(id ledger.ID, read bool) {
	e, known := b.whose[id]
	if read {
		state, _ := b.ledger.State(id)
		read = state == ledger.Running
	}
	if !known || e.like == 0 || e.read == read {
		return
	}
	e.read = read
	b.whose[id] = e
	if read {
		b.twins[e.like]++
		return
	}
	if b.twins[e.like]--; b.twins[e.like] <= 0 {
		delete(b.twins, e.like)
	}
	if less := b.waits[e.like]; less != nil {
		close(less)
		delete(b.waits, e.like)
	}
}
