// Package calls is the ledger at work: with a lock, a clock and the calls of whoever serves clients.
package calls

import (
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/ledger"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Disconnect says what becomes of a call that nobody reads.
type Disconnect uint8

// What becomes of it.
const (
	ByEra  Disconnect = iota // it lingers, but in the stateless era it is cancelled at once
	Cancel                   // cancelled at once
	Linger                   // cancelled after the grace
	Keep                     // never cancelled for that
)

// Rules are what holds for one call.
type Rules struct {
	Adopt        ledger.Adopt
	OnDisconnect Disconnect
	Grace        time.Duration // of an orphan; negative: none
	Idle         time.Duration // without progress of its own; negative: any time
	Max          time.Duration // in all; negative: any time
}

// Policy is what the ledger is to do with a call of these rules in an era where
// losing the stream is not cancelling. One with a key lingers in any case.
func (r Rules) Policy(keyed bool) ledger.Policy {
	grace := max(0, r.Grace)
	if r.OnDisconnect == Cancel && !keyed {
		grace = 0
	}
	return ledger.Policy{Adopt: r.Adopt, Keep: r.OnDisconnect == Keep, Grace: grace}
}

// MetaAdopted marks, in the _meta of a result, the answer of an execution that
// an earlier request had begun.
const MetaAdopted = "dev.holdfast/adopted"

// Owner is a call as its owner has it: a pointer to what has a Place. Its methods
// are called with the book locked.
type Owner interface {
	comparable
	// Place returns the call's own one, always the same.
	Place() *Place
	// Claim returns what the call was entered with, if that had no key.
	Claim() ledger.Claim
	// Answer returns the answer that the call ended with.
	Answer() []byte
}

// Place is where a call is in the book. The zero Place is ready. Its fields are
// guarded by the book's mu.
type Place struct {
	like  Likeness
	id    ledger.ID // 0: not in the ledger, which most calls never need
	known bool      // the book minds what becomes of it
	read  bool      // it counts among its likes
	state ledger.State
}

// Book is a ledger that knows whose call is whose. Safe for concurrent use.
type Book[T Owner] struct {
	cancel func(T)
	forget func(T)

	mu     sync.Mutex // guards the fields below
	ledger *ledger.Ledger
	twins  map[Likeness]int           // how many are running and read
	waits  map[Likeness]chan struct{} // closed when there is one less
	timer  *time.Timer
	next   time.Time // when the timer fires; zero: it does not
	closed bool
}

// NewBook returns an empty book. cancel is told of a call that nobody has read
// for its grace, forget of one whose answer is no longer kept; both without a
// lock.
func NewBook[T Owner](o ledger.Options, cancel, forget func(T)) *Book[T] {
	return &Book[T]{cancel: cancel, forget: forget, ledger: ledger.New(o), twins: map[Likeness]int{}, waits: map[Likeness]chan struct{}{}}
}

// Enter enters a request. It belongs to x if it is to be executed; else of is
// whose it is already. A request that is like one that is running and read waits
// a moment first: the end of that one's connection may be known just after.
//
// While a call without a key is read, nobody can join it: the ledger is told of
// it when that changes, and of most calls never.
func (b *Book[T]) Enter(c ledger.Claim, like Likeness, x T) (out ledger.Outcome, of T, answer []byte) {
	if c.Key == "" && like != 0 {
		b.settle(like)
	}
	c.Owner = x
	p := x.Place()
	b.mu.Lock()
	defer b.mu.Unlock()
	p.like = like
	var now time.Time
	if b.ledger.Concerns(c) {
		now = time.Now()
	}
	id, out, answer := b.ledger.Seek(now, c)
	if out == ledger.Fresh {
		p.id, p.known = id, true
		of = x
	} else {
		of, _ = b.ledger.Owner(id).(T)
	}
	if out == ledger.Fresh || out == ledger.Joined {
		b.countLocked(of, true)
	}
	if id != 0 {
		b.armLocked(now)
	}
	return out, of, answer
}

// change is what happens to a call in the book.
type change uint8

const (
	lose change = iota
	regain
	suspect
	trust
	deliver
)

// Lose says that nobody reads a call any more.
func (b *Book[T]) Lose(x T) { b.do(x, lose) }

// Regain says that a call is read again.
func (b *Book[T]) Regain(x T) { b.do(x, regain) }

// Suspect says that who reads a call is thought to be gone, or not.
func (b *Book[T]) Suspect(x T, suspected bool) {
	if suspected {
		b.do(x, suspect)
	} else {
		b.do(x, trust)
	}
}

// Deliver says that its answer has arrived.
func (b *Book[T]) Deliver(x T) { b.do(x, deliver) }

// End says how a call ended. Its Answer must be there.
func (b *Book[T]) End(x T, s ledger.State) {
	p := x.Place()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.countLocked(x, false)
	switch {
	case !p.known || p.state.Ended():
	case p.id != 0:
		p.state = s
		now := time.Now()
		b.ledger.End(now, p.id, s, x.Answer())
		b.armLocked(now)
	default:
		p.state = s
		p.known = s == ledger.Answered || s == ledger.Failed // others are not kept without a key
	}
}

func (b *Book[T]) do(x T, c change) {
	p := x.Place()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !p.known {
		return
	}
	if p.id == 0 {
		switch c {
		case lose, suspect:
			b.addLocked(x)
		case deliver:
			p.known = !p.state.Ended()
			return
		default:
			return
		}
	}
	now := time.Now()
	switch c {
	case lose:
		b.ledger.Lose(now, p.id)
		b.countLocked(x, false)
	case regain:
		b.ledger.Regain(now, p.id)
		state, _ := b.ledger.State(p.id)
		b.countLocked(x, state == ledger.Running)
	case suspect, trust:
		b.ledger.Suspect(p.id, c == suspect)
	case deliver:
		b.ledger.Deliver(now, p.id)
	}
	b.armLocked(now)
}

// addLocked tells the ledger of a call.
func (b *Book[T]) addLocked(x T) {
	p, c, now := x.Place(), x.Claim(), time.Now()
	c.Owner = x
	p.id = b.ledger.Add(now, c)
	if p.state.Ended() {
		b.ledger.End(now, p.id, p.state, x.Answer())
	}
}

// armLocked sets the timer to when the ledger has something due.
func (b *Book[T]) armLocked(now time.Time) {
	next := b.ledger.Next()
	if next.IsZero() || b.closed || !b.next.IsZero() && !next.Before(b.next) {
		return // an earlier wake finds out that there is nothing, and sets it anew
	}
	b.next = next
	in := max(0, next.Sub(now))
	if b.timer == nil {
		b.timer = time.AfterFunc(in, b.tick)
	} else {
		b.timer.Reset(in)
	}
}

// tick does what is due.
func (b *Book[T]) tick() {
	var cancel, forget []T
	now := time.Now()
	b.mu.Lock()
	b.next = time.Time{}
	for _, act := range b.ledger.Due(now) {
		of, known := act.Owner.(T)
		switch {
		case !known:
		case act.Kind == ledger.Cancel:
			cancel = append(cancel, of)
		default:
			forget = append(forget, of)
		}
	}
	b.armLocked(now)
	b.mu.Unlock()
	for _, x := range cancel {
		b.cancel(x)
	}
	for _, x := range forget {
		b.forget(x)
	}
}

// Close stops the clock.
func (b *Book[T]) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.timer != nil {
		b.timer.Stop()
	}
}

// ErrKey: a key that was used for another call. Match with errors.Is.
var ErrKey = errors.New("this idempotency key was used for another call: use a new key for a new call")

// maxKey bounds, in bytes, an idempotency key.
const maxKey = 256

// Key returns the idempotency key of a request: what its header says, else its
// _meta. The error tells what is wrong with it.
func Key(header string, m *jsonrpc.Message) (string, error) {
	key := header
	if m.Has(jsonrpc.MetaKey) {
		text := m.Text(jsonrpc.MetaKey)
		if len(text) == 0 {
			return "", errors.New("_meta[\"dev.holdfast/idempotencyKey\"] must be a text")
		}
		if key != "" && key != string(text) {
			return "", errors.New("the Idempotency-Key header and _meta[\"dev.holdfast/idempotencyKey\"] differ")
		}
		key = string(text)
	}
	if len(key) > maxKey {
		return "", errors.New("an idempotency key may have 256 bytes")
	}
	return key, nil
}

// Adoptable reports whether calls of the method are worth joining: they may
// take long, or do something.
func Adoptable(method string) bool {
	return method == "tools/call" || method == "resources/read" || method == "prompts/get"
}

// MaxKept bounds the params, in bytes, that are kept to be fingerprinted when
// that is wanted. Longer ones are told apart as they are spelled.
const MaxKept = 16 << 10

// Spelled returns a print of a request by the bytes of its params, less _meta:
// their lengths, and 64 bits that nobody outside this process can foretell, since
// what is long is read once only. Two spellings of equal params differ in it.
func Spelled(m *jsonrpc.Message) (p ledger.Print) {
	before, after := m.BesideMeta()
	binary.LittleEndian.PutUint64(p[:], hash("", m.Raw(jsonrpc.Method), before, after))
	binary.LittleEndian.PutUint64(p[8:], uint64(len(before)))
	binary.LittleEndian.PutUint64(p[16:], uint64(len(after)))
	return p
}

// Print returns what fingerprints a request when it is asked for. m is not kept.
func Print(m *jsonrpc.Message) func() ledger.Print {
	p := Fingerprint(string(m.Text(jsonrpc.Method)), m.Raw(jsonrpc.Params))
	return func() ledger.Print { return p }
}

// Readdress returns an answer with another id, marked as that of an execution
// which an earlier request had begun.
func Readdress(answer, id []byte) []byte {
	m, err := jsonrpc.Parse(answer)
	if err != nil {
		return answer
	}
	edits := []jsonrpc.Edit{{Field: jsonrpc.ID, With: id}}
	if result := m.Raw(jsonrpc.Result); len(result) > 0 && result[0] == '{' {
		meta := jsonrpc.AppendObject(nil, jsonrpc.Get(result, "_meta"), nil, jsonrpc.Member{Key: MetaAdopted, Value: []byte("true")})
		edits = append(edits, jsonrpc.Edit{Field: jsonrpc.Result,
			With: jsonrpc.AppendObject(nil, result, nil, jsonrpc.Member{Key: "_meta", Value: meta})})
	}
	return m.Append(nil, edits...)
}
