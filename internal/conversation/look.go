package conversation

import (
	"bytes"
	"strconv"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/stdio"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// look is the asking of a remote server what it speaks, before it is sent a
// client's initialize. All that the client sends meanwhile waits.
type look struct {
	call    *Call // the initialize
	hello   *jsonrpc.Message
	waiting []waiting
	size    int  // bytes that wait
	again   bool // it was asked a second time
}

// waiting is a client's message.
type waiting struct {
	peer Peer
	call *Call // nil for a notification
	m    *jsonrpc.Message
}

// looksLocked reports whether a client's initialize has to wait for a look.
func (c *Conversation) looksLocked() bool {
	return c.opts.Remote && c.state == fresh && (c.opts.TakesHandshake == nil || !c.opts.TakesHandshake())
}

// lookLocked asks a remote server what it speaks before it is sent a client's
// initialize: the newest era comes first (2026-07-28
// basic/transports/streamable-http, "Backward Compatibility"), and a server that
// speaks the stateless era only may answer an initialize all the same, as if there
// were one in that era. A server of both is sent it as it is.
func (c *Conversation) lookLocked(call *Call, m *jsonrpc.Message) error {
	hello, err := jsonrpc.Parse(bytes.Clone(m.Bytes()))
	if err != nil {
		return err
	}
	question, err := jsonrpc.Parse(c.discoverRequest())
	if err != nil {
		return err
	}
	l := &look{call: call, hello: hello}
	var late *time.Timer
	asked := &Call{method: "server/discover", inner: func(m *jsonrpc.Message) {
		late.Stop()
		c.looked(l, m)
	}}
	if err := c.sendCallLocked(asked, question, nil); err != nil {
		return err
	}
	c.parkLocked(call)
	c.looking, c.state = l, opening
	c.limitStartLocked()
	late = time.AfterFunc(crossTime, func() {
		c.mu.Lock()
		silent := c.calls[asked.up] == asked
		if silent {
			c.forgetLocked(asked.up, "no answer in time")
		}
		c.mu.Unlock()
		if silent {
			c.looked(l, nil)
		}
	})
	return nil
}

// waitLocked keeps what a client sends while its server is being looked at.
func (c *Conversation) waitLocked(p Peer, call *Call, m *jsonrpc.Message) error {
	if c.looking.size += m.Len(); c.looking.size > maxHeld {
		return stdio.ErrBusy
	}
	kept, err := jsonrpc.Parse(bytes.Clone(m.Bytes()))
	if err != nil {
		return err
	}
	if call != nil {
		c.parkLocked(call)
	}
	c.looking.waiting = append(c.looking.waiting, waiting{p, call, kept})
	return nil
}

// looked goes on with a client's initialize, once the server has said what it
// speaks, or is silent: m is nil then.
func (c *Conversation) looked(l *look, m *jsonrpc.Message) {
	switch {
	case m == nil:
	case m.Has(jsonrpc.Result) && statelessOnly(m.Raw(jsonrpc.Result)):
		c.introduced(l, c.bridgeTo(m.Raw(jsonrpc.Result)))
		return
	case refusesAllButStateless(m) && !l.again: // it is to be asked again
		l.again = true
		c.cross(c.crossLimit(m), func(hello []byte) {
			if hello == nil {
				c.looked(l, nil)
			} else {
				c.introduced(l, hello)
			}
		})
		return
	}
	c.mu.Lock()
	c.looking = nil
	if c.calls[l.call.up] != l.call { // its client has left
		c.mu.Unlock()
		return
	}
	c.stopTimerLocked()
	c.state = fresh
	refused := map[*Call][]byte{}
	send := func(call *Call, m *jsonrpc.Message) {
		if c.calls[call.up] != call {
			return
		}
		delete(c.calls, call.up)
		if err := c.sendCallLocked(call, m, c.noteLocked(call, m, nil)); err != nil {
			refused[call] = DeathAnswer(call.ID, c.opts.Name, err, false)
		}
	}
	if m != nil && away(m) {
		delete(c.calls, l.call.up)
		refused[l.call] = m.Append(nil, jsonrpc.Edit{Field: jsonrpc.ID, With: l.call.ID})
	} else {
		send(l.call, l.hello)
	}
	for _, w := range l.waiting {
		if w.call != nil {
			send(w.call, w.m)
		} else {
			_ = c.notifyLocked(w.m)
		}
	}
	c.mu.Unlock()
	for call, answer := range refused {
		call.Peer.Answer(call, answer)
	}
}

// introduced goes on with a client's initialize before a server of the stateless
// era alone.
func (c *Conversation) introduced(l *look, hello []byte) {
	if c.takeOut(l.call) {
		l.call.Peer.Answer(l.call, withVersion(l.call.ID, hello, l.call.version))
	}
	for _, w := range l.waiting {
		c.pass(w)
	}
}

// pass goes on with a message that has waited, before a server that takes no
// handshake.
func (c *Conversation) pass(w waiting) {
	if w.call == nil {
		_ = c.Notify(w.peer, w.m)
	} else if c.takeOut(w.call) {
		if err := c.Call(w.call, w.m); err != nil {
			w.peer.Answer(w.call, DeathAnswer(w.call.ID, c.opts.Name, err, false))
		}
	}
}

// statelessOnly reports whether a DiscoverResult offers a revision that is served
// here, and none with a handshake.
func statelessOnly(result []byte) bool {
	return speaksStateless(result) && !offers(jsonrpc.Get(result, "supportedVersions"), era.Version.Handshake)
}

// refusesAllButStateless reports whether an error says that its server takes a
// revision that is served here, and none with a handshake.
func refusesAllButStateless(m *jsonrpc.Message) bool {
	fault := m.Raw(jsonrpc.Error)
	offered := jsonrpc.Get(jsonrpc.Get(fault, "data"), "supported")
	return string(jsonrpc.Get(fault, "code")) == strconv.Itoa(era.CodeUnsupportedVersion) && offers(offered, served) && !offers(offered, era.Version.Handshake)
}

// away reports whether an error is the link's own, about a server that nothing
// reached.
func away(m *jsonrpc.Message) bool {
	data := jsonrpc.Get(m.Raw(jsonrpc.Error), "data")
	return string(jsonrpc.Get(data, "outcome")) == `"not_executed"` && jsonrpc.Get(data, "status") == nil
}
