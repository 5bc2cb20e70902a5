package exchange

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
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

// Identity tells the clients apart that a server may answer differently: by
// principal, name and capabilities.
func Identity(principal string, m *jsonrpc.Message) [32]byte {
	return identity(principal, m.Raw(jsonrpc.MetaClient), m.Raw(jsonrpc.MetaCapabilities))
}

func identity(principal string, client, capabilities []byte) [32]byte {
	var few [512]byte // it is asked for with each request
	all := append(strconv.AppendInt(few[:0], int64(len(principal)), 10), ':')
	all = append(strconv.AppendInt(append(all, principal...), int64(len(client)), 10), ':')
	return sha256.Sum256(append(append(all, client...), capabilities...))
}

// group returns the conversations that a request may use.
func (h *Host) group(a *asked) (*group, error) {
	key := identity(a.principal, a.client, a.capabilities)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, conversation.ErrClosed
	}
	g := h.groups[key]
	if g == nil {
		g = &group{h: h, client: a.client, capabilities: a.capabilities, listeners: map[*listener]bool{}, uris: map[string]int{}}
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

// acquire returns a lane: for r alone if r is not nil, else one that may be
// shared. It waits while all are taken and no further server may be started.
func (g *group) acquire(t *errand, r *run) (*lane, error) {
	q := &g.h.queue
	w := &waiter{g: g, r: r, size: len(t.call.message.Bytes()), turn: make(chan turn, 1)}
	if err := q.join(w); err != nil {
		return nil, err
	}
	t.begun(func(string) { q.leave(w) })
	for {
		now := <-w.turn
		if now.lane != nil || now.err != nil {
			return now.lane, now.err
		}
		if now.victim != nil {
			now.victim.conv.Leave(now.victim, "its place was needed")
		}
		conv, err := g.h.o.Pool.Take()
		if !q.opened(w, now.victim != nil, err) {
			return g.open(conv, r, err)
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
	l.g.mu.Unlock()
	l.g.h.queue.dispatch()
}

// open makes a lane of a server that was taken for r, or for a call that may
// share it. err says why there is none.
func (g *group) open(conv *conversation.Conversation, r *run, err error) (*lane, error) {
	var l *lane
	if err == nil {
		l, err = g.introduce(conv)
	}
	var uris []string
	g.mu.Lock()
	g.opening--
	if err == nil && g.closed { // meanwhile
		err = conversation.ErrClosed
		defer conv.Leave(l, "the gateway is shutting down")
	}
	if err == nil {
		l.used, l.running, l.busy = time.Now(), 1, r
		g.lanes = append(g.lanes, l)
		uris = slices.Collect(maps.Keys(g.uris))
	}
	g.mu.Unlock()
	g.h.queue.dispatch()
	if err != nil {
		return nil, err
	}
	tell([]*lane{l}, "resources/subscribe", uris)
	return l, nil
}

// introduce starts a conversation in the client's name.
func (g *group) introduce(conv *conversation.Conversation) (*lane, error) {
	l := &lane{g: g, conv: conv, runs: map[*run]bool{}}
	if err := conv.Join(l); err != nil {
		return nil, err
	}
	if err := l.handshake(); err != nil {
		conv.Leave(l, err.Error())
		return nil, err
	}
	return l, nil
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
	call := &conversation.Call{Peer: l, ID: []byte("0"), Data: answered, Own: true}
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
	g.mu.Unlock()
	g.h.queue.dispatch()
	for s := range over {
		s.finish()
	}
}

// extraIdle is how long a client's further conversations are kept: they were
// opened because the first was taken.
const extraIdle = time.Minute

// idleLocked takes out a lane that nobody has used after before; a further one
// of the client goes earlier.
func (g *group) idleLocked(before time.Time) *lane {
	extra := time.Now().Add(-extraIdle)
	for i := len(g.lanes) - 1; i >= 0; i-- {
		l := g.lanes[i]
		if l.running == 0 && (!l.used.After(before) || i > 0 && l.used.Before(extra)) && (i > 0 || len(g.listeners) == 0) {
			g.lanes = append(g.lanes[:i], g.lanes[i+1:]...)
			return l
		}
	}
	return nil
}

// Evict ends a conversation that no request uses, so that its process can be
// another client's. It reports whether there was one.
func (h *Host) Evict() bool {
	if l := h.idle(); l != nil {
		l.conv.Leave(l, "its place was needed")
		return true
	}
	return h.retire(time.Now(), "its place was needed")
}

// idle takes out a lane that no request uses, nil if there is none.
func (h *Host) idle() *lane {
	for _, g := range h.all() {
		g.mu.Lock()
		l := g.idleLocked(time.Now())
		g.mu.Unlock()
		if l != nil {
			return l
		}
	}
	return nil
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
	h.retire(now.Add(-h.o.Idle), "idle")
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
