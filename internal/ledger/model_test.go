package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/ledger"
)

// refCall and reference are the rules of the ledger without any index: every
// question is answered by looking at all calls there are.
type refCall struct {
	id        ledger.ID
	claim     ledger.Claim
	print     ledger.Print
	ended     ledger.State // Running: it has not
	lost      bool
	suspect   bool
	cancelled bool // Due said so
	lostAt    time.Time
	endedAt   time.Time
	endSeq    int // the order of ends
	answer    []byte
}

type reference struct {
	o      ledger.Options
	calls  []*refCall // in the order of Enter
	last   ledger.ID
	ends   int
	acts   []ledger.Act
	actsAt time.Time
}

func (c *refCall) keyed() bool {
	return c.claim.Key != "" && c.claim.Policy.Adopt != ledger.Never
}

func (c *refCall) over() bool { return c.ended != ledger.Running }

func (r *reference) find(id ledger.ID) *refCall {
	for _, c := range r.calls {
		if c.id == id {
			return c
		}
	}
	return nil
}

func (c *refCall) state() ledger.State {
	switch {
	case c.over():
		return c.ended
	case c.lost:
		return ledger.Orphaned
	}
	return ledger.Running
}

// deadline is when Due has something to say; false: never.
func (r *reference) deadline(c *refCall) (time.Time, bool) {
	switch {
	case !c.over() && c.lost && !c.cancelled && !c.claim.Policy.Keep:
		return c.lostAt.Add(max(0, c.claim.Policy.Grace)), true
	case c.over() && c.keyed():
		return c.endedAt.Add(r.o.TTL), true
	case c.over() && c.lost && c.lostAt.After(c.endedAt):
		return c.lostAt.Add(r.o.TTL), true
	case c.over() && c.lost:
		return c.endedAt.Add(r.o.TTL), true
	}
	return time.Time{}, false
}

// adoptable: it may be joined without a key, as long as there is time.
func (c *refCall) adoptable(principal string) bool {
	return !c.keyed() && c.claim.Policy.Adopt == ledger.Auto && c.claim.Principal == principal && principal != "" &&
		(c.suspect || c.lost && !c.cancelled)
}

func (r *reference) intime(c *refCall, now time.Time) bool {
	if !c.over() {
		return true
	}
	since := c.endedAt
	if c.lost {
		since = c.lostAt
	}
	end, ends := r.deadline(c)
	return now.Before(since.Add(r.o.Window)) && (!ends || now.Before(end))
}

func (r *reference) drop(id ledger.ID) {
	r.calls = slices.DeleteFunc(r.calls, func(c *refCall) bool { return c.id == id })
}

func (r *reference) giveUp(now time.Time, id ledger.ID) {
	if len(r.acts) == 0 {
		r.actsAt = now
	}
	r.acts = append(r.acts, ledger.Act{ID: id, Kind: ledger.Forget})
	r.drop(id)
}

func (r *reference) fresh(claim ledger.Claim, print ledger.Print) (ledger.ID, ledger.Outcome, []byte) {
	r.last++
	r.calls = append(r.calls, &refCall{id: r.last, claim: claim, print: print})
	return r.last, ledger.Fresh, nil
}

func (c *refCall) take(p ledger.Policy) {
	c.claim.Policy, c.lost, c.suspect, c.cancelled = p, false, false, false
}

func (r *reference) enter(now time.Time, claim ledger.Claim, print ledger.Print) (ledger.ID, ledger.Outcome, []byte) {
	if claim.Policy.Adopt == ledger.Never {
		return r.fresh(claim, print)
	}
	for _, c := range r.calls {
		if claim.Key == "" || !c.keyed() || c.claim.Key != claim.Key || c.claim.KeyPrincipal != claim.KeyPrincipal {
			continue
		}
		if end, ends := r.deadline(c); c.over() && ends && !now.Before(end) {
			r.giveUp(now, c.id)
			break
		}
		switch {
		case c.print != print:
			return 0, ledger.Conflict, nil
		case c.over():
			return c.id, ledger.Replayed, c.answer
		case c.lost || c.suspect:
			c.take(claim.Policy)
			return c.id, ledger.Joined, nil
		}
		return c.id, ledger.Followed, nil
	}
	if claim.Key != "" || claim.Policy.Adopt != ledger.Auto {
		return r.fresh(claim, print)
	}
	for _, c := range r.calls {
		if c.adoptable(claim.Principal) && c.print == print && r.intime(c, now) {
			c.take(claim.Policy)
			if c.over() {
				return c.id, ledger.Replayed, c.answer
			}
			return c.id, ledger.Joined, nil
		}
	}
	return r.fresh(claim, print)
}

func (r *reference) end(now time.Time, id ledger.ID, s ledger.State, answer []byte) bool {
	c := r.find(id)
	if c == nil || c.over() || s == ledger.Running || s == ledger.Orphaned {
		return false
	}
	if s == ledger.Cancelled || !c.keyed() && (s == ledger.TimedOut || s == ledger.Lost) {
		r.drop(id)
		return true
	}
	r.ends++
	c.ended, c.endedAt, c.endSeq, c.answer, c.cancelled = s, now, r.ends, answer, false
	if r.o.MaxBytes > 0 && len(answer) > r.o.MaxBytes {
		r.giveUp(now, id)
		return true
	}
	for {
		var oldest *refCall
		n, bytes := 0, 0
		for _, c := range r.calls {
			if c.over() {
				n++
				bytes += len(c.answer)
				if oldest == nil || c.endSeq < oldest.endSeq {
					oldest = c
				}
			}
		}
		if (r.o.MaxKept == 0 || n <= r.o.MaxKept) && (r.o.MaxBytes == 0 || bytes <= r.o.MaxBytes) {
			return true
		}
		r.giveUp(now, oldest.id)
	}
}

func (r *reference) due(now time.Time) []ledger.Act {
	acts := r.acts
	r.acts = nil
	for {
		var first *refCall
		var at time.Time
		for _, c := range r.calls {
			if end, ends := r.deadline(c); ends && !end.After(now) && (first == nil || end.Before(at)) {
				first, at = c, end
			}
		}
		switch {
		case first == nil:
			return acts
		case first.over():
			r.drop(first.id)
			acts = append(acts, ledger.Act{ID: first.id, Kind: ledger.Forget})
		default:
			first.cancelled = true
			acts = append(acts, ledger.Act{ID: first.id, Kind: ledger.Cancel})
		}
	}
}

func (r *reference) next() time.Time {
	if len(r.acts) > 0 {
		return r.actsAt
	}
	var first time.Time
	for _, c := range r.calls {
		if end, ends := r.deadline(c); ends && (first.IsZero() || end.Before(first)) {
			first = end
		}
	}
	return first
}

// model drives a ledger and the reference with the same random history.
type model struct {
	rand    *rand.Rand
	ledger  *ledger.Ledger
	ref     *reference
	now     time.Time
	seen    map[string]int // what happened, so that a history that tests nothing fails
	verbose bool
	log     []string
}

// difference is what fail panics with.
type difference string

func (m *model) fail(format string, args ...any) {
	panic(difference(fmt.Sprintf(format, args...)))
}

// note keeps what was done, for the second run of an episode that failed.
func (m *model) note(format string, args ...any) {
	if m.verbose {
		m.log = append(m.log, m.now.Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

func pick[T any](m *model, from ...T) T { return from[m.rand.IntN(len(from))] }

// some is an ID: most often one of the reference's, at times a stranger's.
func (m *model) some() ledger.ID {
	if n := len(m.ref.calls); n > 0 && m.rand.IntN(50) > 0 {
		return m.ref.calls[m.rand.IntN(n)].id
	}
	return ledger.ID(m.rand.Uint64N(uint64(m.ref.last) + 3))
}

func (m *model) episode(steps int) {
	m.ref = &reference{o: ledger.Options{
		Window:   time.Duration(m.rand.IntN(25)) * time.Second,
		TTL:      time.Duration(m.rand.IntN(25)) * time.Second,
		MaxKept:  pick(m, 0, 0, 1, 3, 10, 20),
		MaxBytes: pick(m, 0, 0, 5, 30, 100),
	}}
	m.ledger = ledger.New(m.ref.o)
	m.now = time.Date(2026, 11, 29, 0, 0, 0, m.rand.IntN(1e9), time.UTC)
	m.note("options %+v", m.ref.o)
	for range steps {
		switch m.rand.IntN(4) {
		case 0:
			m.now = m.now.Add(time.Duration(m.rand.IntN(1500)) * time.Millisecond)
		case 1: // exactly, for the boundaries
			if next := m.ref.next(); next.After(m.now) && m.rand.IntN(3) == 0 {
				m.now = next
			} else if m.rand.IntN(4) == 0 {
				m.now = m.now.Truncate(time.Second).Add(time.Second)
			}
		}
		m.step()
		m.compare()
	}
}

func (m *model) step() {
	crowd := len(m.ref.calls)
	switch n := m.rand.IntN(100); {
	case n < 30 && crowd < 40:
		m.enter()
	case n < 45:
		id := m.some()
		m.note("lose %d", id)
		m.ledger.Lose(m.now, id)
		if c := m.ref.find(id); c != nil && !c.lost {
			c.lost, c.suspect, c.lostAt = true, false, m.now
		}
	case n < 50:
		id := m.some()
		m.note("regain %d", id)
		m.ledger.Regain(m.now, id)
		if c := m.ref.find(id); c != nil {
			c.take(c.claim.Policy)
		}
	case n < 56:
		id, suspect := m.some(), m.rand.IntN(3) > 0
		m.note("suspect %d %v", id, suspect)
		m.ledger.Suspect(id, suspect)
		if c := m.ref.find(id); c != nil && !c.lost {
			c.suspect = suspect
		}
	case n < 78:
		m.end()
	case n < 88:
		id := m.some()
		m.note("deliver %d", id)
		m.ledger.Deliver(m.now, id)
		if c := m.ref.find(id); c != nil && c.over() && !c.keyed() {
			m.ref.drop(id)
		}
	default:
		m.due()
	}
}

func (m *model) enter() {
	claim := ledger.Claim{
		Principal:    pick(m, "", "ada", "ada", "ada", "bob"),
		Key:          pick(m, "", "", "", "k1", "k2", "k3", "k4", "k5"),
		KeyPrincipal: pick(m, "p", "q"),
		Policy: ledger.Policy{
			Adopt: pick(m, ledger.Auto, ledger.Auto, ledger.Auto, ledger.Auto, ledger.Auto, ledger.KeyOnly, ledger.Never),
			Keep:  m.rand.IntN(4) == 0,
			Grace: time.Duration(m.rand.IntN(9)-1) * time.Second,
		},
	}
	print := ledger.Print{byte(m.rand.IntN(3))}
	computed := 0
	claim.Print = func() ledger.Print {
		if computed++; computed > 1 {
			m.fail("Print was called twice for one claim")
		}
		return print
	}
	mayPrint := claim.Key != "" || slices.ContainsFunc(m.ref.calls, func(c *refCall) bool { return c.adoptable(claim.Principal) })
	id, out, answer := m.look(claim, func() { computed = 0 })
	m.note("enter %q key %q/%q print %d policy %+v = %d %d", claim.Principal, claim.KeyPrincipal, claim.Key, print[0], claim.Policy, id, out)
	if computed > 0 && !mayPrint {
		m.fail("Print was called although nothing could be joined")
	}
	wantID, wantOut, wantAnswer := m.ref.enter(m.now, claim, print)
	if id != wantID || out != wantOut || string(answer) != string(wantAnswer) {
		m.fail("Enter = %d %d %q, want %d %d %q", id, out, answer, wantID, wantOut, wantAnswer)
	}
	how := [...]string{"fresh", "joined", "followed", "replayed", "conflict"}[out]
	if claim.Key != "" && claim.Policy.Adopt != ledger.Never {
		how += " by key"
	}
	m.seen[how]++
}

// look enters a claim in one step, or in two, the second of which is another
// claim.
func (m *model) look(claim ledger.Claim, another func()) (ledger.ID, ledger.Outcome, []byte) {
	if m.rand.IntN(2) == 0 {
		return m.ledger.Enter(m.now, claim)
	}
	id, out, answer := m.ledger.Seek(m.now, claim)
	if out == ledger.Fresh && id == 0 {
		m.seen["fresh, not entered at once"]++
		another()
		id = m.ledger.Add(m.now, claim)
	}
	return id, out, answer
}

func (m *model) end() {
	id := m.some()
	s := pick(m, ledger.Answered, ledger.Answered, ledger.Answered, ledger.Failed, ledger.Cancelled, ledger.TimedOut, ledger.Lost, ledger.Running, ledger.Orphaned)
	answer := fmt.Append(nil, "answer", m.rand.IntN(1000))[:m.rand.IntN(8)]
	got := m.ledger.End(m.now, id, s, answer)
	m.note("end %d as %d with %q = %v", id, s, answer, got)
	if want := m.ref.end(m.now, id, s, answer); got != want {
		m.fail("End = %v, want %v", got, want)
	}
}

func (m *model) due() {
	got := m.ledger.Due(m.now)
	m.note("due = %v", got)
	if want := m.ref.due(m.now); !slices.Equal(got, want) {
		m.fail("Due = %v, want %v", got, want)
	}
	for _, a := range got {
		m.seen[[...]string{"cancel", "forget"}[a.Kind]]++
		if a.Kind == ledger.Cancel && m.rand.IntN(4) > 0 {
			m.ledger.End(m.now, a.ID, ledger.Cancelled, nil)
			m.ref.end(m.now, a.ID, ledger.Cancelled, nil)
		}
	}
}

func (m *model) compare() {
	if got, want := m.ledger.Len(), len(m.ref.calls); got != want {
		m.fail("Len = %d, want %d", got, want)
	}
	orphans := 0
	for _, c := range m.ref.calls {
		want := c.state()
		if want == ledger.Orphaned {
			orphans++
		}
		if got, ok := m.ledger.State(c.id); got != want || !ok {
			m.fail("State(%d) = %d %v, want %d", c.id, got, ok, want)
		}
	}
	if got := m.ledger.Orphans(); got != orphans {
		m.fail("Orphans = %d, want %d", got, orphans)
	}
	if got, want := m.ledger.Next(), m.ref.next(); !got.Equal(want) {
		m.fail("Next = %v, want %v", got, want)
	}
}

// TestModel compares the ledger with the reference over a million steps:
// outcomes, answers, all states, acts and the time of the next at each.
func TestModel(t *testing.T) {
	steps, seed := 1_000_000, uint64(1)
	if testing.Short() {
		steps = 50_000
	}
	const episode = 1000
	seen := map[string]int{}
	for i := range steps / episode {
		if diff := play(seen, seed, i, episode, nil); diff != "" {
			var log []string
			play(map[string]int{}, seed, i, episode, &log)
			for _, line := range log[max(0, len(log)-80):] {
				t.Log(line)
			}
			t.Fatalf("seed %d, episode %d: %s", seed, i, diff)
		}
	}
	for _, what := range []string{"fresh", "joined", "replayed", "fresh by key", "joined by key", "followed by key",
		"replayed by key", "conflict by key", "cancel", "forget"} {
		if seen[what] < steps/1000 {
			t.Errorf("%q was seen %d times in %d steps: this tests nothing", what, seen[what], steps)
		}
	}
	t.Logf("%d steps: %v", steps, seen)
}

// play runs one episode and returns the first difference, "" for none.
func play(seen map[string]int, seed uint64, episode, steps int, log *[]string) (diff difference) {
	m := &model{rand: rand.New(rand.NewPCG(seed, uint64(episode))), seen: seen, verbose: log != nil}
	defer func() {
		if log != nil {
			*log = m.log
		}
		if r := recover(); r != nil {
			d, ok := r.(difference)
			if !ok {
				panic(r)
			}
			diff = d
		}
	}()
	m.episode(steps)
	return ""
}
