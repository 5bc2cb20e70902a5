package conversation

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/observe"
	"github.com/holdfast-mcp/holdfast/internal/stdio"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// dialLocked starts a server.
func (c *Conversation) dialLocked() error {
	c.gen++
	link, err := c.opts.Dial(inbound{c, c.gen})
	if err != nil {
		return err
	}
	c.link, c.state = link, fresh
	c.judgeLocked()
	c.links.Add(1)
	return nil
}

// greetLocked begins the handshake that the gateway makes itself.
func (c *Conversation) greetLocked() {
	c.state = greeting
	hello, err := jsonrpc.Parse(c.told.hello)
	if err != nil {
		panic("conversation: kept a malformed initialize: " + err.Error()) // it was parsed before
	}
	gen := c.gen
	call := &Call{method: "initialize", inner: func(m *jsonrpc.Message) { c.greeted(gen, m) }}
	c.next++
	c.calls[c.next] = call
	id := strconv.AppendUint(nil, c.next, 10)
	if err := c.link.Send(hello, jsonrpc.Edit{Field: jsonrpc.ID, With: id}); err != nil {
		c.opts.Log.Debug("initialize could not be sent", "server", c.opts.Name, "why", err)
	}
	c.limitStartLocked()
}

// limitStartLocked gives the server until the start time-out to answer
// initialize.
func (c *Conversation) limitStartLocked() {
	gen := c.gen
	c.stopTimerLocked()
	c.timer = time.AfterFunc(c.opts.StartTimeout, func() {
		c.mu.Lock()
		late := c.gen == gen && (c.state == greeting || c.state == opening)
		link := c.link
		c.mu.Unlock()
		if late {
			c.linkClosed(gen, fmt.Errorf("no answer to initialize within %s (--start-timeout)", c.opts.StartTimeout))
			link.Stop()
		}
	})
}

func (c *Conversation) stopTimerLocked() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// greeted takes the answer to the gateway's own initialize.
func (c *Conversation) greeted(gen int, m *jsonrpc.Message) {
	c.mu.Lock()
	first := c.told.result == nil
	c.mu.Unlock()
	if first && refusesHandshake(m) {
		refusal := bytes.Clone(m.Raw(jsonrpc.Error))
		c.cross(c.crossLimit(m), func(hello []byte) {
			if hello == nil {
				c.finish(fmt.Errorf("%w: the server refused initialize: %s", ErrClosed, refusal))
			}
		})
		return
	}
	if !m.Has(jsonrpc.Result) {
		err := fmt.Errorf("%w: the server refused initialize: %s", ErrClosed, m.Raw(jsonrpc.Error))
		if c.opts.Remote && !first { // it may be away for a while
			c.linkClosed(gen, err)
		} else {
			c.finish(err)
		}
		return
	}
	c.mu.Lock()
	if gen != c.gen || c.state != greeting {
		c.mu.Unlock()
		return
	}
	result := bytes.Clone(m.Raw(jsonrpc.Result))
	if c.told.result != nil && !era.KeepsPromise(c.told.result, result) {
		c.mu.Unlock()
		c.finish(ErrChanged)
		return
	}
	c.stopTimerLocked()
	if c.told.result == nil || c.opts.Shared { // a client of its own goes by what it was told
		c.told.result = result
	}
	c.state = open
	c.retellLocked()
	c.readyLocked()
	c.mu.Unlock()
}

// retellLocked tells a greeted server what the one before had been told, then
// what was held meanwhile.
func (c *Conversation) retellLocked() {
	if c.told.initialized != nil {
		_ = c.link.SendRaw(c.told.initialized)
		c.meetLocked()
	}
	c.retellInterestsLocked()
	if c.bridge != nil {
		c.bridge.listen = 0
		c.listenLocked()
	}
	held := c.held
	c.held, c.heldSize = nil, 0
	for _, h := range held {
		if h.call != nil {
			h.call.sent = true
		}
		_ = c.link.SendRaw(h.line)
	}
}

// retellInterestsLocked tells a server what it is to send by itself.
func (c *Conversation) retellInterestsLocked() {
	again := func(line []byte) {
		if m, err := jsonrpc.Parse(line); err == nil {
			call := &Call{method: string(m.Text(jsonrpc.Method)), inner: func(*jsonrpc.Message) {}}
			_ = c.sendCallLocked(call, m, nil)
		}
	}
	if c.told.level != nil {
		again(c.told.level)
	}
	for _, line := range c.told.subscribed {
		again(line)
	}
}

// readyLocked tells who waits for the handshake.
func (c *Conversation) readyLocked() {
	if !c.isReady {
		c.isReady = true
		close(c.ready)
	}
}

// openedLocked notes how the server answered the client's own initialize.
func (c *Conversation) openedLocked(m *jsonrpc.Message) {
	if c.state != opening {
		return
	}
	c.stopTimerLocked()
	c.state = open
	if m.Has(jsonrpc.Result) {
		c.told.result = bytes.Clone(m.Raw(jsonrpc.Result))
		if c.opts.OnHandshake != nil {
			c.opts.OnHandshake(true)
		}
	}
}

// noteLocked keeps what a restarted server must be told again. It returns the
// edits with which an initialize goes out.
func (c *Conversation) noteLocked(call *Call, m *jsonrpc.Message, edits []jsonrpc.Edit) []jsonrpc.Edit {
	switch call.method {
	case "initialize":
		asked := era.Version(m.Text(jsonrpc.ProtocolVersion))
		if v := era.Negotiate(asked); v != asked {
			edits = append(edits, jsonrpc.Edit{Field: jsonrpc.ProtocolVersion, With: []byte(strconv.Quote(string(v)))})
		}
		c.told.hello = m.Append(nil, edits...)
		if c.state == fresh {
			c.state = opening
			c.limitStartLocked()
		}
	case "logging/setLevel", "resources/subscribe":
		call.note = m.Append(nil)
	case "resources/unsubscribe":
		call.note = m.Append(nil)
	}
	return edits
}

// settleLocked keeps the outcome of a request that a restart must repeat.
func (c *Conversation) settleLocked(call *Call, answer *jsonrpc.Message) {
	if call.note == nil || !answer.Has(jsonrpc.Result) {
		return
	}
	m, err := jsonrpc.Parse(call.note)
	if err != nil {
		return
	}
	switch call.method {
	case "logging/setLevel":
		c.told.level = call.note
	case "resources/subscribe":
		c.told.subscribed[string(m.Text(jsonrpc.URI))] = call.note
	case "resources/unsubscribe":
		delete(c.told.subscribed, string(m.Text(jsonrpc.URI)))
	}
}

// Closed implements stdio.Handler.
func (in inbound) Closed(err error) { in.c.linkClosed(in.gen, err) }

// linkClosed ends every call that the dead server was running, and starts it
// again if somebody is there to serve.
func (c *Conversation) linkClosed(gen int, err error) {
	c.mu.Lock()
	if gen != c.gen || c.link == nil || c.state == over {
		c.mu.Unlock()
		return
	}
	link := c.link
	calls, asked := c.calls, maps.Clone(c.asked)
	for _, call := range c.takeRoundsLocked(nil) {
		c.parkLocked(call)
	}
	c.link, c.calls, c.asked = nil, map[uint64]*Call{}, map[string]*question{}
	c.gen++ // what it may still say is late
	c.lastErr = err
	c.stopTimerLocked()
	again := c.told.result != nil && (len(c.peers) > 0 || c.opts.Shared || c.stateless)
	var wait time.Duration
	if again {
		c.held, c.heldSize = nil, 0
		wait = c.backoff.Next(time.Now())
		c.state, c.retryAt = down, time.Now().Add(wait)
		c.timer = time.AfterFunc(wait, c.restart)
	}
	c.mu.Unlock()
	go c.release(link)

	cause := CauseOf(err)
	who, sure := cause.Who()
	c.opts.Log.Error("the server ended", "server", c.opts.Name, "cause", cause, "who", who, "sure", sure, "error", err, "calls", len(calls),
		"stderr", stderrOf(err), "restart_in", wait, "restart", again)
	c.fail(calls, asked, err)
	if !again {
		c.finish(err)
	}
}

// release waits until nothing of a link is left.
func (c *Conversation) release(link Link) {
	link.Stop()
	c.links.Done()
}

// fail ends calls and questions of a server that is gone.
func (c *Conversation) fail(calls map[uint64]*Call, asked map[string]*question, err error) {
	for _, call := range calls {
		if call.Peer != nil {
			call.Cause = CauseOf(err)
			call.Peer.Answer(call, DeathAnswer(call.ID, c.opts.Name, err, call.sent))
		}
	}
	for minted, q := range asked {
		q.peer.Message(q.call, []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+
			minted+`,"reason":"the server that asked has ended"}}`))
	}
}

// CauseOf is the cause of what ended with its server.
func CauseOf(err error) observe.Cause {
	switch _, exited := errors.AsType[*stdio.ExitError](err); {
	case errors.Is(err, errStuck):
		return observe.ServerStuck
	case exited:
		return observe.ServerExited
	}
	return observe.ServerGone
}

func stderrOf(err error) string {
	if exit, ok := errors.AsType[*stdio.ExitError](err); ok {
		return exit.Stderr
	}
	return ""
}

// DeathAnswer is the error answer to a call whose server is gone. sent says
// that the call may have reached it: then nobody knows how far it came.
func DeathAnswer(id []byte, server string, err error, sent bool) []byte {
	data := []byte(`{"outcome":"not_executed"`)
	if sent {
		data = []byte(`{"outcome":"unknown"`)
	}
	if exit, ok := errors.AsType[*stdio.ExitError](err); ok {
		data = append(data, `,"exit":`...)
		data = jsonrpc.AppendString(data, exit.Error())
		if exit.Stderr != "" {
			data = append(data, `,"stderr":`...)
			data = jsonrpc.AppendString(data, exit.Stderr)
		}
	}
	text := fmt.Sprintf("MCP server %q ended: %v", server, err)
	return jsonrpc.AppendError(nil, id, jsonrpc.CodeInternal, text, append(data, '}'))
}

// restart starts a dead server again.
func (c *Conversation) restart() {
	c.mu.Lock()
	if c.state != down {
		c.mu.Unlock()
		return
	}
	if err := c.dialLocked(); err != nil {
		c.lastErr = err
		wait := c.backoff.Next(time.Now())
		c.retryAt = time.Now().Add(wait)
		c.timer = time.AfterFunc(wait, c.restart)
		calls := c.calls
		c.calls, c.held, c.heldSize = map[uint64]*Call{}, nil, 0
		c.mu.Unlock()
		c.opts.Log.Error("the server could not be started again", "server", c.opts.Name, "cause", err, "next", wait)
		c.fail(calls, nil, err)
		return
	}
	if c.stateless || c.bridge != nil {
		c.state = open
		c.retellLocked()
	} else {
		c.greetLocked()
	}
	c.mu.Unlock()
	c.opts.Log.Info("the server was started again", "server", c.opts.Name)
}

// finish ends the conversation for good.
func (c *Conversation) finish(err error) {
	c.mu.Lock()
	if c.state == over {
		c.mu.Unlock()
		return
	}
	c.state = over
	c.watch.stop()
	if c.lastErr == nil || !errors.Is(err, ErrClosed) {
		c.lastErr = err
	}
	c.stopTimerLocked()
	calls, asked, peers, link := c.calls, c.asked, c.peers, c.link
	c.calls, c.asked, c.peers, c.link = map[uint64]*Call{}, map[string]*question{}, map[Peer]*interest{}, nil
	c.held = nil
	c.readyLocked()
	c.mu.Unlock()
	if link != nil {
		go c.release(link)
	}
	c.fail(calls, asked, err)
	for p := range peers {
		p.Gone(err)
	}
	if c.opts.OnOver != nil {
		c.opts.OnOver(c, err)
	}
}

// Close ends the conversation and its server. It returns at once; Wait waits.
func (c *Conversation) Close(reason error) { c.finish(reason) }

// Wait returns once no process of the conversation is left. Close comes first.
func (c *Conversation) Wait() { c.links.Wait() }

// Ready is closed once a shared conversation's handshake is done, or the
// conversation is over: Err tells which.
func (c *Conversation) Ready() <-chan struct{} { return c.ready }

// Err returns why the conversation is over or its server down, nil if neither.
func (c *Conversation) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == over || c.state == down {
		return c.lastErr
	}
	return nil
}
