// Package conversation is the gateway's own relationship with one MCP server.
//
// It owns the handshake, the ids and the questions, and it outlives both the
// connections of clients and the processes of the server: a server that dies
// is started anew and told again what it had been told.
package conversation

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/liveness"
	"github.com/holdfast-mcp/holdfast/internal/observe"
	"github.com/holdfast-mcp/holdfast/internal/stdio"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Errors of a conversation. Match with errors.Is.
var (
	// ErrClosed: the conversation is over; its session must end.
	ErrClosed = errors.New("conversation: over")
	// ErrChanged: the restarted server negotiated another version, or lacks a
	// capability that the clients were told of.
	ErrChanged = errors.New("conversation: the restarted server is not the one that clients know")
)

// Link carries messages to one server. Send must not block, and must not keep
// the message.
type Link interface {
	Send(m *jsonrpc.Message, edits ...jsonrpc.Edit) error
	SendRaw(line []byte) error
	// Stop ends the server and returns once nothing of it is left.
	Stop()
}

// Dial starts the server and hands what it writes to h.
type Dial func(h stdio.Handler) (Link, error)

// Peer is one client of a conversation. Its methods are called without the
// conversation's lock, in the order in which the server wrote, and must not
// block.
type Peer interface {
	// Answer takes the one answer to a call. The bytes are the peer's.
	Answer(call *Call, msg []byte)
	// Message takes a notification or a request of the server. call is the one
	// that it belongs to, nil if it names none.
	Message(call *Call, msg []byte)
	// Gone says that the conversation is over and the session must end.
	Gone(err error)
}

// Options of a conversation.
type Options struct {
	Dial         Dial
	Remote       bool                     // the server is no process of the gateway's: what it speaks may change
	Shared       bool                     // one conversation for many peers: the handshake is the gateway's own
	Name         string                   // the server's name, for logs and errors
	ClientInfo   []byte                   // the gateway's own clientInfo, raw JSON, for Shared
	StartTimeout time.Duration            // from the start of a server to its answer to initialize
	Clocks       func(tool string) Clocks // of each call; nil: none
	Question     time.Duration            // how long a question holds the clocks of its call
	Liveness     liveness.Settings        // how silent servers are judged; a negative interval: without pings
	Observe      func(observe.Event)      // nil: nobody is told
	MaxMessage   int                      // bytes, named in errors about longer ones
	Log          *slog.Logger
	// StatelessOnly tells that this server was found to take no handshake,
	// OnStatelessOnly that it was just found out; nil: neither is known.
	StatelessOnly   func() bool
	OnStatelessOnly func()
	// TakesHandshake tells that this server was found to take one, so that it need
	// not be asked what it speaks; OnHandshake whether it just did. They must not
	// block. nil: neither is known.
	TakesHandshake func() bool
	OnHandshake    func(taken bool)
	OnOver         func(c *Conversation, err error) // called once, in a goroutine of its own or the server's reader
}

// state is where a conversation stands with its present server process.
type state uint8

const (
	fresh    state = iota // started, nothing said yet
	opening               // the client's own initialize is under way
	open                  // messages pass
	greeting              // the gateway's initialize is under way; messages are held
	down                  // no server: it died, and will be started again
	over                  // ended for good
)

// Conversation is safe for concurrent use.
type Conversation struct {
	opts Options
	mint string // begins the id of every question

	mu        sync.Mutex // guards the fields below
	state     state
	link      Link
	gen       int // counts links, so that a late word of an old one is known
	next      uint64
	scratch   scratch
	calls     map[uint64]*Call
	asked     map[string]*question
	askCount  uint64
	peers     map[Peer]*interest
	told      told
	looking   *look   // a remote server is being asked what it speaks, before the handshake
	bridge    *bridge // the server speaks the stateless era only, and its clients the other one
	stateless bool    // the server speaks the stateless era: no handshake, many peers, no questions of its own
	held      []heldMessage
	heldSize  int
	backoff   stdio.Backoff
	retryAt   time.Time
	timer     *time.Timer // start time-out, or the next restart
	lastErr   error       // how the latest server ended
	junk      int
	ready     chan struct{} // closed when the handshake of a shared conversation is done, or it is over
	isReady   bool
	links     sync.WaitGroup // one for each link not stopped yet
	doubting  bool           // a remote server is being asked whether it still speaks the stateless era
	watch     watch
}

// told is what a restarted server must be told again.
type told struct {
	hello       []byte // the initialize request
	result      []byte // its result
	initialized []byte
	level       []byte            // a logging/setLevel request
	subscribed  map[string][]byte // resources/subscribe requests by uri
}

// scratch is what one request needs while it is being sent. A Link keeps nothing
// of what it is given.
type scratch struct {
	edits  [4]jsonrpc.Edit
	digits [20]byte
}

type heldMessage struct {
	line []byte
	call *Call // nil for a notification
}

// Start starts a server and returns the conversation with it. A shared one
// begins the handshake at once; Ready tells when it is done.
func Start(opts Options) (*Conversation, error) {
	c := &Conversation{
		opts:  opts,
		mint:  "hf-" + rand.Text()[:10] + "-",
		calls: map[uint64]*Call{},
		asked: map[string]*question{},
		peers: map[Peer]*interest{},
		ready: make(chan struct{}),
	}
	c.told.subscribed = map[string][]byte{}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.dialLocked(); err != nil {
		return nil, err
	}
	if opts.Shared {
		c.told.hello = c.ownHello()
		c.told.initialized = []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		c.greetLocked()
	}
	return c, nil
}

// Join adds a peer. It fails with ErrClosed once the conversation is over.
func (c *Conversation) Join(p Peer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == over {
		return c.overErrLocked()
	}
	c.peers[p] = &interest{}
	return nil
}

// Leave removes a peer: its calls are cancelled at the server, its questions
// answered with an error. Nothing is delivered to it afterwards. A conversation
// of one peer is over then.
func (c *Conversation) Leave(p Peer, reason string) {
	c.mu.Lock()
	for id, call := range c.calls {
		if call.Peer == p {
			c.forgetLocked(id, reason)
		}
	}
	for id, q := range c.asked {
		if q.peer == p {
			delete(c.asked, id)
			c.refuseLocked(q.id, "the client that was asked has left")
		}
	}
	c.takeRoundsLocked(p)
	c.dropInterestLocked(p)
	delete(c.peers, p)
	alone := !c.opts.Shared && !c.stateless
	c.mu.Unlock()
	if alone {
		c.Close(fmt.Errorf("%w: %s", ErrClosed, reason))
	}
}

// Call passes a request on. The answer comes through call.Peer.Answer, exactly
// once, unless Call returns an error or the call is cancelled. m is not kept.
func (c *Conversation) Call(call *Call, m *jsonrpc.Message) error {
	if call.method == "" {
		call.Of(m)
	}
	if c.bridged() {
		return c.bridgeCall(call, m)
	}
	if c.opts.Shared {
		if done, err := c.shareCall(call, m); done {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.peers[call.Peer]; !ok {
		return c.overErrLocked()
	}
	if call.method == "initialize" && !c.stateless {
		c.rememberLocked(call, m)
		if c.opts.StatelessOnly != nil && c.opts.StatelessOnly() {
			c.parkLocked(call)
			c.state = opening
			c.limitStartLocked()
			go c.handshakeRefused(call, jsonrpc.AppendError(nil, call.ID, jsonrpc.CodeInternal, "the server does not answer server/discover", nil), c.opts.StartTimeout)
			return nil
		}
		if c.looksLocked() {
			return c.lookLocked(call, m)
		}
	}
	if c.looking != nil && c.bridge == nil {
		return c.waitLocked(call.Peer, call, m)
	}
	edits := c.scratch.edits[:0]
	if !c.opts.Shared {
		edits = c.noteLocked(call, m, edits)
	} else if call.method == "logging/setLevel" {
		edits = append(edits, jsonrpc.Edit{Field: jsonrpc.Level, With: c.lowestLevelLocked()})
	}
	return c.sendCallLocked(call, m, edits)
}

// sendCallLocked gives the call an id of this conversation and sends it.
func (c *Conversation) sendCallLocked(call *Call, m *jsonrpc.Message, edits []jsonrpc.Edit) error {
	c.next++
	call.up = c.next
	id := strconv.AppendUint(c.scratch.digits[:0], call.up, 10)
	edits = append(edits, jsonrpc.Edit{Field: jsonrpc.ID, With: id})
	switch {
	case call.Token != nil && m.Has(jsonrpc.MetaToken): // a call that is held has one, whatever its client asked for
		edits = append(edits, jsonrpc.Edit{Field: jsonrpc.MetaToken, With: id})
	case call.Peer != nil && call.method == "tools/call": // its progress is evidence for the gateway, and goes no further
		if edit, ok := m.Ask(id); ok {
			edits = append(edits, edit)
		}
	}
	c.calls[call.up] = call
	c.watchLocked(call)
	if err := c.sendLocked(call, m, edits...); err != nil {
		delete(c.calls, call.up)
		return err
	}
	return nil
}

// maxHeld bounds what waits for a server that is being started.
const maxHeld = 32 << 20

// sendLocked sends a message, or holds it while a server is being started.
func (c *Conversation) sendLocked(call *Call, m *jsonrpc.Message, edits ...jsonrpc.Edit) error {
	switch c.state {
	case fresh, opening, open:
		if call != nil {
			call.sent = true
		}
		return c.link.Send(m, edits...)
	case greeting, down:
		if c.state == down && time.Until(c.retryAt) > time.Second {
			return fmt.Errorf("server %q keeps ending (%w); it is started again in %s",
				c.opts.Name, c.lastErr, time.Until(c.retryAt).Round(time.Second))
		}
		if c.heldSize+m.Len(edits...) > maxHeld {
			return stdio.ErrBusy
		}
		line := m.Append(make([]byte, 0, m.Len(edits...)), edits...)
		c.held = append(c.held, heldMessage{line, call})
		c.heldSize += len(line)
		return nil
	}
	return c.overErrLocked()
}

// Notify passes a client's notification on. What is only for the gateway, or
// only for a server of one's own, ends here.
func (c *Conversation) Notify(p Peer, m *jsonrpc.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.peers[p]; !ok {
		return c.overErrLocked()
	}
	if c.bridge != nil {
		return c.bridgeNotifyLocked(m)
	}
	if c.looking != nil {
		return c.waitLocked(p, nil, m)
	}
	return c.notifyLocked(m)
}

func (c *Conversation) notifyLocked(m *jsonrpc.Message) error {
	switch string(m.Text(jsonrpc.Method)) {
	case "notifications/initialized":
		if c.opts.Shared {
			return nil
		}
		if c.told.initialized == nil {
			c.told.initialized = m.Append(nil)
		}
		defer c.meetLocked()
	case "notifications/roots/list_changed":
		if c.opts.Shared { // no roots were declared
			return nil
		}
	}
	return c.sendLocked(nil, m)
}

// Cancel passes a client's notifications/cancelled on, under the id that the
// server knows the call by. No answer will be delivered. It reports whether
// the call was still running.
func (c *Conversation) Cancel(call *Call, m *jsonrpc.Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancelRoundLocked(call) {
		return true
	}
	if c.calls[call.up] != call || call.method == "initialize" {
		return false
	}
	delete(c.calls, call.up)
	if c.unholdLocked(call) {
		return true
	}
	if call.follow != nil { // tasks are not cancelled by notification
		c.abandonLocked(call)
		return true
	}
	var digits [20]byte
	id := strconv.AppendUint(digits[:0], call.up, 10)
	_ = c.sendLocked(nil, m, jsonrpc.Edit{Field: jsonrpc.RequestID, With: id})
	return true
}

// Cancelled returns the notification with which a call is given up; Cancel puts
// the id in.
func Cancelled(reason string) *jsonrpc.Message {
	line := jsonrpc.AppendString([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0,"reason":`), reason)
	m, _ := jsonrpc.Parse(append(line, '}', '}'))
	return m
}

// forgetLocked gives a call up and tells the server so.
func (c *Conversation) forgetLocked(id uint64, reason string) {
	call := c.calls[id]
	delete(c.calls, id)
	if call.method == "initialize" || c.unholdLocked(call) || c.link == nil {
		return
	}
	if call.follow != nil {
		c.abandonLocked(call)
		return
	}
	note := []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`)
	note = strconv.AppendUint(note, id, 10)
	note = append(note, `,"reason":`...)
	_ = c.link.SendRaw(append(jsonrpc.AppendString(note, reason), '}', '}'))
}

// unholdLocked takes back a call that was held and so never left.
func (c *Conversation) unholdLocked(call *Call) bool {
	for i, h := range c.held {
		if h.call == call {
			c.heldSize -= len(h.line)
			c.held = append(c.held[:i], c.held[i+1:]...)
			return true
		}
	}
	return c.looking != nil && slices.ContainsFunc(c.looking.waiting, func(w waiting) bool { return w.call == call })
}

// InFlight returns how many calls of clients are running.
func (c *Conversation) InFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, call := range c.calls {
		if call.Peer != nil {
			n++
		}
	}
	return n
}

func (c *Conversation) overErrLocked() error {
	if c.lastErr != nil && c.state == over {
		return fmt.Errorf("%w: %w", ErrClosed, c.lastErr)
	}
	return ErrClosed
}

// Asks reports whether a question is open under an id that the gateway gave it.
func (c *Conversation) Asks(id []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[string(id)] != nil
}
