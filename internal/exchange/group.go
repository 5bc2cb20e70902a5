package exchange

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/conversation"
	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// group is the conversations held for one client: one principal, one name and
// one set of capabilities.
type group struct {
	h            *Host
	client       []byte
	capabilities []byte
	canAsk       bool // the client declared that it answers questions
	users        int  // requests on their way to a lane; guarded by h.mu

	mu        sync.Mutex // guards the fields below
	lanes     []*lane
	opening   int
	listeners map[*listener]bool
	uris      map[string]int // resources that listeners subscribed to
	changed   chan struct{}  // closed and replaced when a call may find a lane
	closed    bool
}

// lane is one conversation with a handshake-era server.
type lane struct {
	g     *group
	conv  *conversation.Conversation
	hello []byte // the server's InitializeResult

	// Guarded by g.mu.
	busy    *run // the call that has the lane to itself, since it may be asked something
	runs    map[*run]bool
	running int // runs, and what only looks at hello
	level   string
	used    time.Time
}

// group returns the conversations that a request may use.
func (h *Host) group(a *asked) (*group, error) {
	sum := sha256.New()
	for _, part := range [][]byte{[]byte(a.principal), a.client, a.capabilities} {
		_, _ = fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	key := [32]byte(sum.Sum(nil))
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, conversation.ErrClosed
	}
	g := h.groups[key]
	if g == nil {
		g = &group{h: h, client: a.client, capabilities: a.capabilities, listeners: map[*listener]bool{}, uris: map[string]int{},
			changed: make(chan struct{})}
		for _, m := range jsonrpc.Members(a.capabilities) {
			g.canAsk = g.canAsk || m.Key == "elicitation" || m.Key == "sampling" || m.Key == "roots"
		}
		h.groups[key] = g
	}
	g.users++
	return g, nil
}

// leave says that a request is on its way, or has failed.
func (h *Host) leave(g *group) {
	h.mu.Lock()
	g.users--
	h.mu.Unlock()
}

// errWaiting: more calls wait for a conversation than may.
var errWaiting = errors.New("too many calls wait for a server process (--max-children); try again later")

// acquire returns a lane: for r alone if r is not nil, else one that may be
// shared. It waits while all are taken and no further server may be started.
func (g *group) acquire(t *task, r *run) (*lane, error) {
	counted, full := false, false
	size := len(t.call.message.Bytes())
	defer func() {
		if counted {
			g.h.count(-1, -size)
		}
	}()
	again := time.NewTicker(time.Second) // another client's conversation may have ended
	defer again.Stop()
	for {
		g.mu.Lock()
		l, wait, closed := g.pickLocked(r), g.changed, g.closed
		mayOpen := l == nil && !closed && !full && (r != nil || g.opening == 0)
		if mayOpen {
			g.opening++
		}
		g.mu.Unlock()
		switch {
		case l != nil:
			return l, nil
		case mayOpen:
			err := g.open()
			if err != nil && !errors.Is(err, conversation.ErrFull) {
				return nil, err
			}
			full = err != nil && !g.h.evict(g)
			continue // if full, to see whether a lane was given back meanwhile
		case closed:
			return nil, conversation.ErrClosed
		case t.gone():
			return nil, errors.New("cancelled")
		}
		if !counted {
			if counted = g.h.count(1, size); !counted {
				return nil, errWaiting
			}
		}
		select {
		case <-wait:
		case <-again.C:
			full = false
		}
	}
}

// pickLocked takes a lane that is there.
func (g *group) pickLocked(r *run) *lane {
	for _, l := range g.lanes {
		if r == nil || l.busy == nil {
			l.running++
			if r != nil {
				l.busy = r
			}
			return l
		}
	}
	return nil
}

// release gives a lane back.
func (l *lane) release(r *run) {
	l.g.mu.Lock()
	l.running--
	delete(l.runs, r)
	if l.busy == r && r != nil {
		l.busy = nil
	}
	l.used = time.Now()
	l.g.changeLocked()
	l.g.mu.Unlock()
}

func (g *group) changeLocked() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// maxWaitingBytes bounds the messages of the calls that wait.
const maxWaitingBytes = 256 << 20

// count bounds the calls that wait, in number and in bytes.
func (h *Host) count(n, bytes int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n > 0 && (h.waiting >= h.o.MaxWaiting || h.waiting > 0 && h.waitingBytes+bytes > maxWaitingBytes) {
		return false
	}
	h.waiting += n
	h.waitingBytes += bytes
	return true
}

// open starts a conversation in the client's name and adds its lane.
func (g *group) open() (err error) {
	var l *lane
	defer func() {
		var uris []string
		g.mu.Lock()
		g.opening--
		added := err == nil && !g.closed
		if added {
			l.used = time.Now()
			g.lanes = append(g.lanes, l)
			uris = slices.Collect(maps.Keys(g.uris))
		}
		if !errors.Is(err, conversation.ErrFull) { // else who waits would try the same at once
			g.changeLocked()
		}
		g.mu.Unlock()
		switch {
		case added:
			tell([]*lane{l}, "resources/subscribe", uris)
		case err == nil: // closed meanwhile
			l.conv.Leave(l, "the gateway is shutting down")
		}
	}()
	conv, err := g.h.o.Pool.Take()
	if err != nil {
		return err
	}
	l = &lane{g: g, conv: conv, runs: map[*run]bool{}}
	if err := conv.Join(l); err != nil {
		return err
	}
	if err := l.handshake(); err != nil {
		conv.Leave(l, err.Error())
		return err
	}
	return nil
}

// handshake introduces the client to the server.
func (l *lane) handshake() error {
	client := l.g.client
	if client == nil {
		client = []byte(`{"name":"unnamed","version":"0"}`)
	}
	params := jsonrpc.AppendObject(nil, nil, nil,
		jsonrpc.Member{Key: "protocolVersion", Value: jsonrpc.AppendString(nil, string(era.NewestHandshake))},
		jsonrpc.Member{Key: "capabilities", Value: l.g.capabilities}, jsonrpc.Member{Key: "clientInfo", Value: client})
	answered := l.send("initialize", params)
	limit := time.NewTimer(l.g.h.o.StartTimeout + time.Second) // the conversation gives up first
	defer limit.Stop()
	var msg []byte
	select {
	case msg = <-answered:
	case <-limit.C:
		return fmt.Errorf("server %q did not answer initialize", l.g.h.o.Name)
	}
	m, err := jsonrpc.Parse(msg)
	if err != nil {
		return err
	}
	if l.hello = m.Raw(jsonrpc.Result); l.hello == nil {
		return fmt.Errorf("server %q refused the handshake: %s", l.g.h.o.Name, jsonrpc.Get(m.Raw(jsonrpc.Error), "message"))
	}
	note, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	if err != nil {
		return err
	}
	return l.conv.Notify(l, note)
}

// send sends a request of the gateway's own and returns where its answer comes.
func (l *lane) send(method string, params []byte) <-chan []byte {
	answered := make(chan []byte, 1)
	l.request(method, params, func(msg []byte) { answered <- msg })
	return answered
}

// request is send with a function that takes the answer; it must not block. It
// is not called once the lane has left the conversation.
func (l *lane) request(method string, params []byte, answered func(msg []byte)) {
	line := jsonrpc.AppendString([]byte(`{"jsonrpc":"2.0","id":0,"method":`), method)
	line = append(append(append(line, `,"params":`...), params...), '}')
	call := &conversation.Call{Peer: l, ID: []byte("0"), Data: answered}
	m, err := jsonrpc.Parse(line)
	if err == nil {
		err = l.conv.Call(call, m)
	}
	if err != nil {
		answered(jsonrpc.AppendError(nil, call.ID, jsonrpc.CodeInternal, err.Error(), nil))
	}
}

// Answer implements conversation.Peer.
func (l *lane) Answer(call *conversation.Call, msg []byte) {
	switch of := call.Data.(type) {
	case func([]byte):
		of(msg)
	case *run:
		of.answer(msg)
	}
}

// Message implements conversation.Peer.
func (l *lane) Message(call *conversation.Call, msg []byte) {
	m, err := jsonrpc.Parse(msg)
	if err != nil {
		return
	}
	var r *run
	if call != nil {
		r, _ = call.Data.(*run)
	}
	if m.Kind() == jsonrpc.Request || m.Is("notifications/cancelled") { // of a question
		l.g.mu.Lock()
		r = l.busy // no other call can be asked
		l.g.mu.Unlock()
	}
	switch {
	case r != nil:
		r.message(m)
	case m.Kind() == jsonrpc.Request:
		l.refuse(m.Raw(jsonrpc.ID), "no call is running that could be asked")
	case call == nil:
		l.g.broadcast(m)
	}
}

// refuse answers a question of the server with an error.
func (l *lane) refuse(id []byte, why string) {
	if m, err := jsonrpc.Parse(jsonrpc.AppendError(nil, id, jsonrpc.CodeInternal, "holdfast: "+why, nil)); err == nil {
		l.conv.Reply(l, m)
	}
}

// Gone implements conversation.Peer.
func (l *lane) Gone(error) { l.g.drop(l) }

// drop takes out a lane whose conversation is over. With the last one the
// subscriptions end, in order: their clients subscribe again.
func (g *group) drop(l *lane) {
	var over map[*listener]bool
	g.mu.Lock()
	g.lanes = slices.DeleteFunc(g.lanes, func(x *lane) bool { return x == l })
	if len(g.lanes) == 0 {
		over, g.listeners, g.uris = g.listeners, map[*listener]bool{}, map[string]int{}
	}
	g.changeLocked()
	g.mu.Unlock()
	for s := range over {
		s.finish()
	}
}

// extraIdle is how long a client's further conversations are kept: they were
// opened because the first was taken.
const extraIdle = time.Minute

// idleLocked takes out a lane that nobody has used since before; a further one
// of the client goes earlier.
func (g *group) idleLocked(before time.Time) *lane {
	extra := time.Now().Add(-extraIdle)
	for i := len(g.lanes) - 1; i >= 0; i-- {
		l := g.lanes[i]
		if l.running == 0 && (l.used.Before(before) || i > 0 && l.used.Before(extra)) && (i > 0 || len(g.listeners) == 0) {
			g.lanes = append(g.lanes[:i], g.lanes[i+1:]...)
			return l
		}
	}
	return nil
}

// Evict ends a conversation that no request uses, so that its process can be
// another client's. It reports whether there was one.
func (h *Host) Evict() bool { return h.evict(nil) }

// evict is Evict for a client's own sake.
func (h *Host) evict(but *group) bool {
	for _, g := range h.all() {
		if g == but {
			continue
		}
		g.mu.Lock()
		l := g.idleLocked(time.Now())
		g.mu.Unlock()
		if l != nil {
			l.conv.Leave(l, "its place was needed")
			return true
		}
	}
	return false
}

func (h *Host) all() []*group {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]*group, 0, len(h.groups))
	for _, g := range h.groups {
		out = append(out, g)
	}
	return out
}

// Sweep ends conversations that were not used for the idle time.
func (h *Host) Sweep(now time.Time) {
	for _, g := range h.all() {
		for {
			g.mu.Lock()
			l := g.idleLocked(now.Add(-h.o.Idle))
			g.mu.Unlock()
			if l == nil {
				break
			}
			l.conv.Leave(l, "idle")
		}
	}
	h.mu.Lock()
	for key, g := range h.groups {
		g.mu.Lock()
		if len(g.lanes) == 0 && g.opening == 0 && len(g.listeners) == 0 && g.users == 0 {
			delete(h.groups, key)
		}
		g.mu.Unlock()
	}
	h.mu.Unlock()
}

// close ends the group's conversations and its listeners' streams.
func (g *group) close(reason error) {
	g.mu.Lock()
	g.closed = true
	lanes, listeners := g.lanes, g.listeners
	g.lanes, g.listeners = nil, map[*listener]bool{}
	g.changeLocked()
	g.mu.Unlock()
	for l := range listeners {
		l.finish()
	}
	for _, l := range lanes {
		g.mu.Lock()
		runs := slices.Collect(maps.Keys(l.runs))
		g.mu.Unlock()
		for _, r := range runs {
			r.answer(jsonrpc.AppendError(nil, []byte("0"), jsonrpc.CodeInternal, reason.Error(), []byte(`{"outcome":"unknown"}`)))
		}
		l.conv.Leave(l, reason.Error())
	}
}
