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
	return Likeness(hash(who, m.Raw(jsonrpc.Method), before, after) | 1)
}

// LikeSpelled is Like for a request whose print is known: what is long is not
// read once more.
func LikeSpelled(who string, p ledger.Print) Likeness {
	if who == "" {
		return 0
	}
	return Likeness(hash(who, p[:]) | 1)
}

// seed is that of this process: what it makes is not kept.
var seed = maphash.MakeSeed()

func hash(who string, parts ...[]byte) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = h.WriteString(who)
	for _, p := range parts {
		_, _ = h.Write(p)
	}
	return h.Sum64()
}

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

// countLocked notes whether a call is running and read.
func (b *Book[T]) countLocked(of T, read bool) {
	t := of.Place()
	if t.like == 0 || t.read == read {
		return
	}
	t.read = read
	if read {
		b.twins[t.like]++
		return
	}
	if b.twins[t.like]--; b.twins[t.like] <= 0 {
		delete(b.twins, t.like)
	}
	if less := b.waits[t.like]; less != nil {
		close(less)
		delete(b.waits, t.like)
	}
}
