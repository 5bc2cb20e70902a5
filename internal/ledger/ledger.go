// Package ledger is the book of calls of one configured server: which run, who may join them, and which answers are kept.
//
// It has no I/O, clock, goroutine or lock: the time is a parameter and must not
// go back, and the owner serialises. With an unknown ID nothing happens.
package ledger

import (
	"container/list"
	"time"
)

// ID names a call within one Ledger: 1 and up in the order of Enter.
type ID uint64

// State is where a call is in its life. It has one end, once.
type State uint8

// The states. Those from Answered on are ends.
const (
	Running   State = iota
	Orphaned        // it runs, nobody reads its log, and nobody cancelled it
	Answered        // with a result
	Failed          // with an error, by the server
	Cancelled       // by the client, or for want of one
	TimedOut        // one of the clocks ran out
	Lost            // the server died: whether it was executed is not known
)

// Ended reports whether the state is an end.
func (s State) Ended() bool { return s >= Answered && s <= Lost }

// Adopt says how a call may be joined by a later equal one.
type Adopt uint8

// The ways to be joined.
const (
	Auto    Adopt = iota // as an orphan of the same principal, or by its key
	KeyOnly              // by its key
	Never                // not at all: a key is ignored
)

// Print is the fingerprint of a call's method, name and arguments.
type Print [32]byte

// Policy is what applies to one call, resolved by the owner.
type Policy struct {
	Adopt Adopt
	Keep  bool          // an orphan is not cancelled for want of a reader
	Grace time.Duration // how long an orphan may run without Keep; 0: not at all
}

// Options are the limits of a Ledger. It knows no defaults: the owner's apply.
type Options struct {
	Window   time.Duration // how long after its loss an ended call may be joined without a key; 0: never
	TTL      time.Duration // how long the end of a call is kept for want of delivery, or for its key; 0: not at all
	MaxKept  int           // ends kept; 0: no limit
	MaxBytes int           // bytes of all the answers kept; 0: no limit
}

// Claim is a request that wants to be executed, or to join an equal one.
type Claim struct {
	Principal         string       // whose orphans it may join without a key; "": none, nor can it be joined
	Key, KeyPrincipal string       // the idempotency key and whose it is; Key "": none
	Print             func() Print // called when needed, once at most, until the call is forgotten; nil: none, as without a principal
	Policy            Policy
	Owner             any // the owner's own of a call that is to be executed, for Ledger.Owner and Act
}

// Outcome is what becomes of a Claim.
type Outcome uint8

// The outcomes.
const (
	Fresh    Outcome = iota // execute it
	Joined                  // the call runs, and the claimant is its reader now, under the claim's policy
	Followed                // the call runs and has a reader: the claimant gets a copy of its answer; only with a key
	Replayed                // the call has ended: here is its answer, and State tells which end
	Conflict                // the key was used with other arguments; the ID is 0
)

// Kind is what an Act asks for.
type Kind uint8

// The kinds of Act.
const (
	Cancel Kind = iota // the grace of an orphan is over: cancel it upstream, then End it
	Forget             // the ledger no longer knows the ID and its answer
)

// Act is something that the owner has to do.
type Act struct {
	ID    ID
	Kind  Kind
	Owner any // that of the claim which began the call
}

// Ledger is the book of calls. Create it with New.
type Ledger struct {
	options Options
	epoch   time.Time // of all times below: when the first call was entered
	last    ID
	calls   map[ID]*call
	keys    map[spot]*call
	shelf   map[spot]*queue // the calls that may be joined without a key; no queue is empty
	shelved map[string]int  // how many of them each principal has
	dues    queue           // the calls with a deadline
	kept    list.List       // of *call: those that ended, in that order
	bytes   int             // of their answers
	acts    []Act           // forgotten since Due was asked
	actsAt  time.Duration
}

// New returns an empty Ledger.
func New(o Options) *Ledger {
	return &Ledger{options: o, calls: map[ID]*call{}, keys: map[spot]*call{}, shelf: map[spot]*queue{}, shelved: map[string]int{}}
}

// Enter decides what becomes of a claim, and returns the call that it is now
// part of, and for Replayed its answer. With a key, unless the policy is Never,
// only that counts: a call entered with the same Key and KeyPrincipal is the
// same call until Options.TTL after its end, unless it was cancelled. Without,
// a claim with a principal and the policy Auto joins the oldest such call, with
// the same Print, that has lost its reader or has a suspect one. If that has
// ended, the answer goes to one claimant only, within Options.Window of the loss
// (for a suspect, of the end), until Lose puts it up again.
func (l *Ledger) Enter(now time.Time, c Claim) (id ID, out Outcome, answer []byte) {
	n := l.line(now, c)
	if id, out, answer = l.join(l.at(now), n); out == Fresh {
		id = l.add(n).id
		if n.key != "" {
			l.keys[n.keyed()] = n
		}
	}
	return id, out, answer
}

// Seek is Enter for a claim of which the book need not know while all goes
// well: if it has no key and there is nothing to be joined, the ID is 0 and the
// call is not in the book. It is none that could be joined until Add enters it.
func (l *Ledger) Seek(now time.Time, c Claim) (id ID, out Outcome, answer []byte) {
	if !l.Concerns(c) {
		return 0, Fresh, nil
	}
	n := l.line(now, c)
	if n.key != "" {
		return l.Enter(now, c)
	}
	return l.join(l.at(now), n)
}

// Concerns reports whether what Seek says of a claim depends on the book, or
// changes it. If not, the time does not matter.
func (l *Ledger) Concerns(c Claim) bool {
	return c.Key != "" && c.Policy.Adopt != Never || l.shelved[c.Principal] > 0
}

// Add enters a call that is running and read, without a look for one to join.
// Its claim must have no key.
func (l *Ledger) Add(now time.Time, c Claim) ID { return l.add(l.line(now, c)).id }

// line returns what the book would have of a claim.
func (l *Ledger) line(now time.Time, c Claim) *call {
	if l.last == 0 {
		l.epoch = now
	}
	n := &call{owner: c.Owner, policy: c.Policy}
	switch {
	case c.Key != "" && c.Policy.Adopt != Never:
		n.principal, n.key, n.compute = c.KeyPrincipal, c.Key, c.Print
	case c.Policy.Adopt == Auto && c.Principal != "" && c.Print != nil:
		n.principal, n.compute = c.Principal, c.Print
	}
	return n
}

// join decides whether n is part of a call that is in the book.
func (l *Ledger) join(t time.Duration, n *call) (ID, Outcome, []byte) {
	if n.key != "" {
		return l.joinKeyed(t, n)
	}
	if l.shelved[n.principal] == 0 {
		return 0, Fresh, nil
	}
	old := l.oldest(spot{principal: n.principal, print: n.sum()}, t)
	if old == nil {
		return 0, Fresh, nil
	}
	l.take(old, n.policy)
	if old.state.Ended() {
		return old.id, Replayed, old.answer
	}
	return old.id, Joined, nil
}

func (l *Ledger) joinKeyed(t time.Duration, n *call) (ID, Outcome, []byte) {
	old := l.keys[n.keyed()]
	if old != nil && old.state.Ended() && old.due <= t {
		l.giveUp(t, old) // Due has not been asked yet
		old = nil
	}
	switch n.sum(); {
	case old == nil:
		return 0, Fresh, nil
	case old.print != n.print:
		return 0, Conflict, nil
	case old.state.Ended():
		return old.id, Replayed, old.answer
	case old.lost || old.suspect:
		l.take(old, n.policy)
		return old.id, Joined, nil
	}
	return old.id, Followed, nil
}

// Lose says that the last reader of a call is gone, or the delivery of its answer
// failed. The grace starts if it runs, Options.Window and TTL if it has ended.
func (l *Ledger) Lose(now time.Time, id ID) {
	c := l.calls[id]
	if c == nil || c.lost {
		return
	}
	c.lost, c.suspect, c.lostAt = true, false, l.at(now)
	if c.state == Running {
		c.state = Orphaned
	}
	l.settle(c)
}

// Regain says that a call is read again, by a reader that is not suspect.
func (l *Ledger) Regain(_ time.Time, id ID) {
	if c := l.calls[id]; c != nil {
		l.take(c, c.policy)
	}
}

// Suspect says whether a call's reader, if any, is thought dead although its
// connection looks open: it may be joined as an orphan may, but no grace runs.
func (l *Ledger) Suspect(id ID, suspect bool) {
	if c := l.calls[id]; c != nil && !c.lost {
		c.suspect = suspect
		l.settle(c)
	}
}

// End ends a call in the given state and reports whether this was the end: not
// if it had ended, is not known, or s is no end. The answer is kept, not
// copied, until the call is forgotten: by Deliver if it has no key, at once if
// it was Cancelled, or has no key and was TimedOut or Lost; else Due tells.
func (l *Ledger) End(now time.Time, id ID, s State, answer []byte) bool {
	c, o := l.calls[id], l.options
	if c == nil || c.state.Ended() || !s.Ended() {
		return false
	}
	c.state, c.endedAt, c.told, c.answer = s, l.at(now), false, answer
	if s == Cancelled || (s == TimedOut || s == Lost) && c.key == "" {
		l.forget(c)
		return true
	}
	l.settle(c)
	c.kept, l.bytes = l.kept.PushBack(c), l.bytes+len(answer)
	if o.MaxBytes > 0 && len(answer) > o.MaxBytes {
		l.giveUp(c.endedAt, c) // alone, instead of all others
	}
	for o.MaxKept > 0 && l.kept.Len() > o.MaxKept || o.MaxBytes > 0 && l.bytes > o.MaxBytes {
		l.giveUp(c.endedAt, l.kept.Front().Value.(*call))
	}
	return true
}

// Deliver says that a call's answer was delivered: without a key it is forgotten.
func (l *Ledger) Deliver(_ time.Time, id ID) {
	if c := l.calls[id]; c != nil && c.state.Ended() && c.key == "" {
		l.forget(c)
	}
}

// Due returns what has to be done by now. A call is to be cancelled once each
// time it was orphaned. End it before anything else happens: it can no longer
// be joined, except by its key.
func (l *Ledger) Due(now time.Time) []Act {
	t := l.at(now)
	for len(l.dues.calls) > 0 && l.dues.calls[0].due <= t {
		if c := l.dues.calls[0]; c.state.Ended() {
			l.giveUp(t, c)
		} else {
			c.told = true
			l.settle(c)
			l.acts = append(l.acts, Act{c.id, Cancel, c.owner})
		}
	}
	acts := l.acts
	l.acts = nil
	return acts
}

// Next returns when Due will have something, or has; zero: never.
func (l *Ledger) Next() time.Time {
	if len(l.acts) > 0 {
		return l.epoch.Add(l.actsAt)
	} else if len(l.dues.calls) > 0 {
		return l.epoch.Add(l.dues.calls[0].due)
	}
	return time.Time{}
}

// Owner returns the owner's own of a call, nil if it is not known.
func (l *Ledger) Owner(id ID) any {
	if c := l.calls[id]; c != nil {
		return c.owner
	}
	return nil
}

// State returns the state of a call, and whether it is known.
func (l *Ledger) State(id ID) (State, bool) {
	if c := l.calls[id]; c != nil {
		return c.state, true
	}
	return 0, false
}
