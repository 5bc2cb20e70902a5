package exchange

import (
	"errors"
	"slices"
	"sync"

	"github.com/holdfast-mcp/holdfast/internal/conversation"
)

// queue is the calls that wait for a conversation: first come, first served, as
// far as what there is will do for a call. Each change that may let one go on
// is followed by a dispatch.
type queue struct {
	h *Host

	mu     sync.Mutex // guards the fields below; taken before those of Host and group
	calls  []*waiter  // oldest first
	bytes  int        // of their messages
	opener int        // calls that are having a server started
	passes uint64     // dispatches so far
	empty  chan struct{}
}

// waiter is one call that waits. The fields below turn are guarded by the
// queue's mu.
type waiter struct {
	g    *group
	r    *run // wants a conversation to itself; nil: one that may be shared
	size int  // of its message, in bytes
	turn chan turn

	opening bool
	seen    uint64 // passes when it was told to open
	gone    bool   // cancelled while it was opening
}

// turn is what a waiting call is told: of its conversation, or why it gets none;
// or, with neither, to have a server started.
type turn struct {
	lane   *lane
	err    error
	victim *lane // to be ended first, whose place it is; nil: there is room
}

// Why a call gets no conversation.
var (
	errWaiting   = errors.New("too many calls wait for a server process (--max-children); try again later")
	errCancelled = errors.New("exchange: cancelled")
)

// maxWaitingBytes bounds the messages of the calls that wait.
const maxWaitingBytes = 256 << 20

// join enters a call. Unless there is an error, its turn will come.
func (q *queue) join(w *waiter) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.serveLocked(w, &pass{}) { // what has waited longer had its chance before
		return nil
	}
	waiting := len(q.calls) - q.opener
	if !w.opening && (waiting >= q.h.o.MaxWaiting || waiting > 0 && q.bytes+w.size > maxWaitingBytes) {
		return errWaiting
	}
	q.calls = append(q.calls, w)
	q.bytes += w.size
	if q.empty == nil {
		q.empty = make(chan struct{})
		go q.watch(q.empty, q.h.o.Pool.Changed()) // ends once nobody waits
		q.dispatchLocked()                        // what changed before
	}
	return nil
}

// watch dispatches whenever the pool may have a place.
func (q *queue) watch(empty, changed <-chan struct{}) {
	for {
		select {
		case <-empty:
			return
		case <-changed:
		}
		changed = q.h.o.Pool.Changed() // before the look, or a change after it would be missed
		q.dispatch()
	}
}

// leave takes a cancelled call out.
func (q *queue) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.gone = true
	if !w.opening && slices.Contains(q.calls, w) {
		q.removeLocked(w)
		w.turn <- turn{err: errCancelled}
	}
}

func (q *queue) removeLocked(w *waiter) {
	q.calls = slices.DeleteFunc(q.calls, func(other *waiter) bool { return other == w })
	q.leftLocked(w)
}

// leftLocked counts a call that is no longer in the queue.
func (q *queue) leftLocked(w *waiter) {
	q.bytes -= w.size
	if len(q.calls) == 0 && q.empty != nil {
		close(q.empty)
		q.empty = nil
	}
}

// dispatch gives who waits what there is, in their order.
func (q *queue) dispatch() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dispatchLocked()
}

func (q *queue) dispatchLocked() {
	q.passes++
	if len(q.calls) == 0 {
		return
	}
	var p pass
	var left []*waiter
	q.calls = slices.DeleteFunc(q.calls, func(w *waiter) bool {
		if w.opening || !q.serveLocked(w, &p) {
			return false
		}
		left = append(left, w)
		return true
	})
	for _, w := range left {
		q.leftLocked(w)
	}
}

// pass is what one walk through the queue has found out.
type pass struct {
	looked bool
	full   bool   // no server may be started
	none   bool   // nor is there one that could be ended
	g      *group // has nothing for such a call, either
	alone  bool
}

// serveLocked gives a call its turn, if there is something for it. It reports
// whether the call has left the queue; one that is to have a server started
// stays until that is done.
func (q *queue) serveLocked(w *waiter, p *pass) (left bool) {
	alone := w.r != nil
	if p.none && p.g == w.g && p.alone == alone {
		return false
	}
	p.g, p.alone = w.g, alone
	w.g.mu.Lock()
	l, closed := w.g.pickLocked(w.r), w.g.closed
	mayOpen := alone || w.g.opening == 0
	w.g.mu.Unlock()
	switch {
	case l != nil:
		w.turn <- turn{lane: l}
		return true
	case closed:
		w.turn <- turn{err: conversation.ErrClosed}
		return true
	case !mayOpen || p.none:
		return false
	}
	if !p.looked {
		p.looked, p.full = true, errors.Is(q.h.o.Pool.Check(), conversation.ErrFull)
	}
	var victim *lane
	if p.full {
		victim = q.h.idle()
		p.none = victim == nil
	}
	if p.none || !p.full && q.opener > 0 { // who comes later must not take the last place
		return false
	}
	w.g.mu.Lock()
	w.g.opening++
	w.g.mu.Unlock()
	q.opener++
	w.opening, w.seen = true, q.passes
	w.turn <- turn{victim: victim}
	return false
}

// opened takes what came of a call's try to have a server started. It reports
// whether the call is to wait for another turn.
func (q *queue) opened(w *waiter, victim bool, err error) (again bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.opener--
	w.opening = false
	if !errors.Is(err, conversation.ErrFull) {
		q.removeLocked(w)
		q.dispatchLocked()
		return false
	}
	w.g.mu.Lock()
	w.g.opening--
	w.g.mu.Unlock()
	if w.gone {
		q.removeLocked(w)
		w.turn <- turn{err: errCancelled}
	}
	// If the place that was made went to somebody else, another one is not made
	// before something changes: a spare server may be about to be there.
	if !victim || q.passes != w.seen {
		q.dispatchLocked()
	}
	return true
}
