package chaos

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/era"
)

// Kind is what a client does about a call whose connection broke.
type Kind uint8

// The kinds of clients, and of calls.
const (
	Resuming   Kind = iota // goes on where the stream broke; where it has no position, as Fresh
	Fresh                  // forgets all and calls again: a new session where the era has them
	Keyed                  // calls again with the same key
	Lingering              // stateless era: calls again, without a key, a tool that lingers
	Closing                // stateless era: calls again, without a key, a tool whose calls end with their stream
	Cancelling             // gives the call up
	Twins                  // two equal calls at once, on healthy connections
	kinds
)

func (k Kind) String() string {
	return [...]string{"resumes", "comes back fresh", "with a key", "lingers", "closing cancels", "cancels", "healthy twins"}[k]
}

// call is one call as it is meant to go.
type call struct {
	nonce    string
	era      era.Version
	server   Server
	kind     Kind
	length   time.Duration
	steps    int // of progress; 0: silent
	pad      int // bytes of the answer
	faults   []Fault
	pauses   time.Duration // before it comes back, at most
	cancelAt time.Duration
	meta     bool // the key is in _meta, not in the header
	stay     bool // it calls again in the session that it has, if that may be
}

// tool is the one to call.
func (c *call) tool() string {
	if c.kind == Lingering || c.kind == Twins && c.era.Modern() {
		return toolLinger
	}
	return toolWork
}

// eras are what clients speak, each over its own binding.
var eras = []era.Version{era.V20241105, era.V20250326, era.V20250618, era.V20251125, era.V20260728}

// planner draws calls. What it draws depends on the seed alone.
type planner struct {
	o    Options
	rand *rand.Rand
}

func (o Options) planner(client int) *planner {
	return &planner{o, rand.New(rand.NewPCG(o.Seed, uint64(client)))}
}

func (p *planner) chance(percent int) bool { return p.rand.IntN(100) < percent }

// between draws a time.
func (p *planner) between(a, b time.Duration) time.Duration {
	return a + time.Duration(p.rand.Float64()*float64(b-a))
}

// next draws a call.
func (p *planner) next(nonce string) *call {
	c := &call{nonce: nonce, era: eras[p.rand.IntN(len(eras))], pad: p.rand.IntN(3000), meta: p.chance(50), stay: p.chance(50)}
	switch n := p.rand.IntN(100); {
	case n < 10:
		c.kind = Twins
	case n < 20:
		c.kind = Cancelling
	case n < 40:
		c.kind = Keyed
	case c.era.Modern() && n < 70:
		c.kind = Lingering
	case c.era.Modern():
		c.kind = Closing
	case n < 70:
		c.kind = Fresh
	}
	var servers []Server
	for _, s := range p.o.Servers {
		if s.Calm == (c.kind == Twins) {
			servers = append(servers, s)
		}
	}
	c.server = servers[p.rand.IntN(len(servers))]
	c.length = p.length(time.Millisecond, 20*time.Second)
	if p.chance(60) {
		c.steps = 1 + p.rand.IntN(20)
	}
	c.pauses = p.between(20*time.Millisecond, 150*time.Millisecond)
	c.cancelAt = p.between(0, c.length*6/5)
	if c.kind == Cancelling && p.chance(50) { // long enough to see whether it stops
		c.length = p.between(p.o.Patience, 4*p.o.Patience)
		c.cancelAt = p.between(0, c.length/2)
	}
	p.faults(c)
	return c
}

// length draws how long a call takes: each order of magnitude as often as any
// other.
func (p *planner) length(shortest, longest time.Duration) time.Duration {
	l := float64(shortest) * math.Pow(float64(longest)/float64(shortest), p.rand.Float64())
	return time.Duration(l / p.o.Scale)
}

// faults draws what happens to the connections of a call, one after the other.
func (p *planner) faults(c *call) {
	switch {
	case c.kind == Twins || p.chance(15):
		return
	case c.kind == Cancelling: // at most one, before or after it is cancelled
		if p.chance(50) {
			c.faults = []Fault{{When: AfterTime, How: Way(p.rand.IntN(2)), After: p.between(0, c.length)}}
		}
		return
	case p.chance(6):
		// Long enough for a silent client to be missed while its call runs.
		c.length = p.between(4*p.o.Patience-p.o.Patience/4, 4*p.o.Patience)
		f := Fault{When: AfterTime, How: Swallow, After: p.between(p.o.Patience/2, p.o.Patience), Wait: 10 * p.o.Patience}
		if c.era.Modern() { // where nobody is asked
			f.Wait = 2 * p.o.Patience
		}
		c.faults = []Fault{f}
		return
	}
	for range 1 + p.rand.IntN(3) {
		c.faults = append(c.faults, p.fault(c))
	}
}

func (p *planner) fault(c *call) Fault {
	f := Fault{How: Way(p.rand.IntN(2))}
	switch n := p.rand.IntN(100); {
	case n < 10:
		f.When, f.Bytes = InRequest, 1+p.rand.IntN(900)
	case n < 55:
		f.When, f.After = AfterTime, p.between(0, c.length*11/10)
	case n < 65:
		f.When = BeforeAnswer
	case n < 80:
		f.When, f.Bytes = InAnswer, p.rand.IntN(c.pad+60)
	case n < 90:
		f.When = AfterAnswer
	default:
		f.How, f.Delay = Closed, p.between(time.Millisecond, 30*time.Millisecond)
	}
	if f.When != Never && p.chance(15) {
		f.Delay = p.between(time.Millisecond, 10*time.Millisecond)
	}
	return f
}

// arguments are those of the tool.
func (c *call) arguments() string {
	return fmt.Sprintf(`{"nonce":%q,"micros":%d,"steps":%d,"pad":%d}`, c.nonce, c.length.Microseconds(), c.steps, c.pad)
}
