package holdfast_test

import (
	"maps"
	"slices"
	"sync"
	"testing"
)

// The matrix: a client of each revision over each transport before a server of
// each revision over each transport, for each operation. A cell is named
// client/server/operation. What came of them all is a section of docs/eras.md.

// The transports.
const (
	wayPipe = "stdio"
	waySSE  = "HTTP+SSE"
	wayHTTP = "Streamable HTTP"
)

var (
	matrixEras = []string{v2024, v03, v06, v11, v2026}
	matrixWays = []string{wayPipe, waySSE, wayHTTP}
)

// at is one side of a cell: a revision over a transport.
type at struct{ era, way string }

func (a at) String() string { return a.era + " " + a.way }

// stateless reports whether it is of the era without a handshake.
func (a at) stateless() bool { return a.era == v2026 }

// sides are all there are, possible or not.
func sides() (all []at) {
	for _, era := range matrixEras {
		for _, way := range matrixWays {
			all = append(all, at{era, way})
		}
	}
	return all
}

// pair is who meets whom.
type pair struct {
	client speaker
	server place
}

// The reasons why a cell is not possible, by the letter that stands for each.
var reasons = map[string]string{
	"a": "The client's revision has no elicitation: it came with 2025-06-18.",
	"b": "The server's revision has no elicitation.",
	"c": "A client on a pipe has no connection that can be cut and made again: the end of the pipe is its end (2025-11-25 basic/lifecycle, \"Shutdown\").",
	"d": "A server on a pipe likewise: the end of the pipe is the end of the process.",
	"e": "2024-11-05 has no Streamable HTTP: it came with 2025-03-26.",
	"f": "2026-07-28 has no HTTP+SSE. Its clients may use the gateway's `/sse` all the same, as a custom transport; its servers have nothing like it.",
}

// impossible returns the letter of why an operation cannot be, "" if it can.
func (x pair) impossible(operation string) string {
	client, server := x.client, x.server
	noHTTP := at{v2024, wayHTTP}
	switch {
	case client.at == noHTTP, server.at == noHTTP:
		return "e"
	case server.at == at{v2026, waySSE}:
		return "f"
	case operation == "elicitation" && client.era < v06:
		return "a"
	case operation == "elicitation" && server.era < v06:
		return "b"
	case operation == "cut before" && client.way == wayPipe:
		return "c"
	case operation == "cut behind" && server.way == wayPipe:
		return "d"
	}
	return ""
}

// possible reports whether any operation is.
func (x pair) possible() bool { return x.impossible("call") == "" }

// meeting is one pair at work.
type meeting struct {
	pair
	t    *testing.T // of the present cell
	b    *bench
	c    *client
	f    *farm
	road *road                    // to the server; nil for a pipe
	open map[string]chan struct{} // closed to let a tool go on, by its name
	ran  map[string]int           // how often each tool must have been executed
}

// tables is what came of it.
type tables struct {
	mu   sync.Mutex // guards the fields below
	held map[pair]map[string]bool
}

func (r *tables) enter(x pair, operation string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held[x] == nil {
		r.held[x] = map[string]bool{}
	}
	r.held[x][operation] = true
}

// matrixWorkers is how many pairs meet at once: they wait more than they work.
const matrixWorkers = 16

func TestMatrix(t *testing.T) {
	results := &tables{held: map[pair]map[string]bool{}}
	free := make(chan struct{}, matrixWorkers)
	var all sync.WaitGroup
	for _, client := range sides() {
		for _, server := range sides() {
			x := pair{speaker{client}, place{server}}
			if !x.possible() {
				continue
			}
			free <- struct{}{}
			all.Go(func() { // ends with the test that it runs
				defer func() { <-free }()
				t.Run(client.String()+"/"+server.String(), func(t *testing.T) { x.meet(t, results) })
			})
		}
	}
	all.Wait()
	if !t.Failed() {
		results.compare(t)
	}
}

// meet runs all operations, one after the other, and holds that each tool was
// executed as often as it was called.
func (x pair) meet(t *testing.T, results *tables) {
	m := &meeting{pair: x, ran: map[string]int{}, open: map[string]chan struct{}{"job": make(chan struct{}), "lost": make(chan struct{})}}
	m.f = x.server.farm(m.open)
	var s setup
	s, m.road = x.server.setup(t, m.f)
	really(t, s, func(t *testing.T, b *bench) {
		m.t, m.b = t, b
		m.c = x.client.connect(b, x.server)
		for _, o := range operations() {
			if x.impossible(o.name) == "" {
				t.Run(o.name, func(t *testing.T) { m.run(t, o, results) })
			}
		}
		m.t, b.t, m.c.t = t, t, t
	})
	if got := m.f.executed(); !t.Failed() && !maps.Equal(got, m.ran) {
		t.Errorf("executed %v, want %v", got, m.ran)
	}
	x.server.audit(t, m.f)
}

// run runs one operation.
func (m *meeting) run(t *testing.T, o operation, results *tables) {
	m.t, m.b.t, m.c.t = t, t, t
	o.run(m)
	if !t.Failed() {
		results.enter(m.pair, o.name)
	}
}

// operation is one column of the cells.
type operation struct {
	name string
	what string // must hold
	run  func(m *meeting)
}

// operations are all of them, in the order in which they run.
func operations() []operation {
	return []operation{
		{"list", "Tools, prompts and resources are listed.", (*meeting).list},
		{"call", "Arguments and result arrive byte for byte.", (*meeting).call},
		{"progress", "Two reports come under the client's own token, in order, before the answer.", (*meeting).progress},
		{"prompt", "A prompt comes with its argument in it.", (*meeting).prompt},
		{"completion", "An argument is completed.", (*meeting).completion},
		{"elicitation", "The server's question reaches the client in the way of the client's era, and the answer the server in the way of its own.", (*meeting).elicitation},
		{"sampling", "Likewise.", (*meeting).sampling},
		{"roots", "Likewise.", (*meeting).roots},
		{"update", "The server is subscribed to, and what it says of the resource arrives.", (*meeting).update},
		{"log", "A log message arrives at the client that asked for its level.", (*meeting).log},
		{"cancel", "The server hears of it, under the id that it knows.", (*meeting).cancel},
		{"cut before", "The client's connection is cut while its call runs. One execution, one answer.", (*meeting).cutBefore},
		{"cut behind", "The connection to the server is cut while the call runs. One execution, one answer; and the next call is answered as if nothing had been.", (*meeting).cutBehind},
	}
}

// names returns those of all operations.
func names() (all []string) {
	for _, o := range operations() {
		all = append(all, o.name)
	}
	return all
}

// whole reports whether every possible cell has run.
func (r *tables) whole() bool {
	for _, client := range sides() {
		for _, server := range sides() {
			x := pair{speaker{client}, place{server}}
			if slices.ContainsFunc(names(), func(name string) bool { return x.impossible(name) == "" && !r.held[x][name] }) {
				return false
			}
		}
	}
	return true
}
