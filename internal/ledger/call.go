package ledger

import (
	"container/heap"
	"container/list"
	"math"
	"time"
)

// never is no time: what is due then has no deadline.
const never = time.Duration(math.MaxInt64)

// spot is where equal claims meet: by key, or without one by print.
type spot struct {
	principal, key string
	print          Print
}

// call is one line of the book. Ledger.settle updates what follows from it: its
// deadline, and whether it is on the shelf.
type call struct {
	id             ID
	principal, key string // neither if it cannot be joined
	policy         Policy
	owner          any
	compute        func() Print // nil once print is known
	print          Print

	state   State
	lost    bool // nobody reads its log; state is Orphaned if it runs
	suspect bool // its reader may be dead
	told    bool // Due said Cancel since it was orphaned
	lostAt  time.Duration
	endedAt time.Duration
	answer  []byte

	due  time.Duration
	at   [kinds]int    // in the queues, or -1
	kept *list.Element // in Ledger.kept, or nil
}

// sum returns the fingerprint, which is not computed before it is needed.
func (c *call) sum() Print {
	if c.compute != nil {
		c.print = c.compute()
		c.compute = nil
	}
	return c.print
}

func (c *call) keyed() spot { return spot{principal: c.principal, key: c.key} }

// at returns a time as the ledger keeps it: smaller, and sooner compared.
func (l *Ledger) at(now time.Time) time.Duration { return now.Sub(l.epoch) }

// after returns t+d, or never where that is too far away.
func after(t, d time.Duration) time.Duration {
	if d = max(d, 0); t > never-d {
		return never
	}
	return t + d
}

// add puts a new call into the book.
func (l *Ledger) add(c *call) *call {
	l.last++
	c.id, c.due, c.at = l.last, never, [kinds]int{-1, -1}
	l.calls[c.id] = c
	return c
}

// take gives a call a reader who can be trusted to be there.
func (l *Ledger) take(c *call, p Policy) {
	if c.state == Orphaned {
		c.state = Running
	}
	c.policy, c.lost, c.suspect, c.told = p, false, false, false
	l.settle(c)
}

func (l *Ledger) settle(c *call) {
	if due := l.deadline(c); due != c.due {
		if c.at[byDue] >= 0 {
			heap.Remove(&l.dues, c.at[byDue])
		}
		if c.due = due; due != never {
			heap.Push(&l.dues, c)
		}
	}
	if c.key == "" && c.principal != "" && (c.lost && !c.told || c.suspect) {
		l.shelve(c)
	} else {
		l.unshelve(c)
	}
}

// deadline returns when Due has something to say about a call.
func (l *Ledger) deadline(c *call) time.Duration {
	switch {
	case !c.state.Ended():
		if c.lost && !c.told && !c.policy.Keep {
			return after(c.lostAt, c.policy.Grace)
		}
	case c.key != "":
		return after(c.endedAt, l.options.TTL)
	case c.lost:
		return after(max(c.lostAt, c.endedAt), l.options.TTL)
	}
	return never
}

// giveUp forgets a call and has Due say so.
func (l *Ledger) giveUp(t time.Duration, c *call) {
	if len(l.acts) == 0 {
		l.actsAt = t
	}
	l.acts = append(l.acts, Act{c.id, Forget, c.owner})
	l.forget(c)
}

// forget removes a call, whose state must be an end, from all indexes.
func (l *Ledger) forget(c *call) {
	delete(l.calls, c.id)
	if c.key != "" {
		delete(l.keys, c.keyed())
	}
	if c.kept != nil {
		l.kept.Remove(c.kept)
		l.bytes -= len(c.answer)
	}
	c.key, c.lost, c.suspect = "", false, false
	l.settle(c)
}

const byDue, byAge, kinds = 0, 1, 2

// queue is a heap of calls that know their places: the oldest or next due first.
type queue struct {
	kind  int
	calls []*call
}

func (q *queue) Len() int { return len(q.calls) }

func (q *queue) Less(i, j int) bool {
	a, b := q.calls[i], q.calls[j]
	return q.kind == byDue && a.due < b.due || (q.kind == byAge || a.due == b.due) && a.id < b.id
}

func (q *queue) Swap(i, j int) {
	q.calls[i], q.calls[j] = q.calls[j], q.calls[i]
	q.calls[i].at[q.kind], q.calls[j].at[q.kind] = i, j
}

func (q *queue) Push(x any) {
	c := x.(*call)
	c.at[q.kind] = len(q.calls)
	q.calls = append(q.calls, c)
}

func (q *queue) Pop() any {
	last := len(q.calls) - 1
	c := q.calls[last]
	c.at[q.kind], q.calls[last] = -1, nil
	q.calls = q.calls[:last]
	return c
}

// shelve puts a call where an equal claim finds it.
func (l *Ledger) shelve(c *call) {
	if c.at[byAge] >= 0 {
		return
	}
	s := spot{principal: c.principal, print: c.sum()}
	if l.shelf[s] == nil {
		l.shelf[s] = &queue{kind: byAge}
	}
	heap.Push(l.shelf[s], c)
	l.shelved[c.principal]++
}

// unshelve takes a call from its shelf, if it is on one.
func (l *Ledger) unshelve(c *call) {
	if c.at[byAge] < 0 {
		return
	}
	s := spot{principal: c.principal, print: c.print}
	if heap.Remove(l.shelf[s], c.at[byAge]); len(l.shelf[s].calls) == 0 {
		delete(l.shelf, s)
	}
	if l.shelved[c.principal]--; l.shelved[c.principal] == 0 {
		delete(l.shelved, c.principal)
	}
}

// oldest returns the call at a spot that a claim joins at t, nil for none.
// Those whose window is over leave: it does not open for them again.
func (l *Ledger) oldest(s spot, t time.Duration) *call {
	for q := l.shelf[s]; q != nil && len(q.calls) > 0; {
		c := q.calls[0]
		since := c.endedAt
		if c.lost {
			since = c.lostAt
		}
		if !c.state.Ended() || t < after(since, l.options.Window) && t < c.due {
			return c
		}
		l.unshelve(c)
	}
	return nil
}
