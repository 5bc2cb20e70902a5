package conversation

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// interest is what one peer wants to hear of a shared server.
type interest struct {
	level int              // index into levels, 0: never asked for one
	uris  map[string]bool  // resources subscribed to
	can   map[string]bool  // methods of questions that the client declared to answer
	meta  []jsonrpc.Member // what the client is, as each stateless request says it
}

// levels are the severities of log messages (RFC 5424), least first. Index 0
// stands for none.
var levels = []string{"", "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// ownHello is the handshake of a shared conversation: the gateway under its own
// name, without any client capability, since no one client stands behind it.
func (c *Conversation) ownHello() []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":%s}}`,
		era.NewestHandshake, c.opts.ClientInfo)
}

// shareCall answers what a shared conversation answers itself. done says that
// nothing is to be sent.
func (c *Conversation) shareCall(call *Call, m *jsonrpc.Message) (done bool, err error) {
	switch call.method {
	case "initialize":
		return true, c.introduce(call, m)
	case "logging/setLevel":
		return c.shareLevel(call, m)
	case "resources/subscribe":
		c.mu.Lock()
		defer c.mu.Unlock()
		if w := c.peers[call.Peer]; w != nil {
			if w.uris == nil {
				w.uris = map[string]bool{}
			}
			uri := string(m.Text(jsonrpc.URI))
			w.uris[uri] = true
			c.told.subscribed[uri] = m.Append(nil)
		}
	case "resources/unsubscribe":
		return c.shareUnsubscribe(call, m)
	}
	return false, nil
}

// introduce answers a client's initialize from the gateway's own handshake,
// once that is done.
func (c *Conversation) introduce(call *Call, m *jsonrpc.Message) error {
	answer := func() {
		c.mu.Lock()
		result, running := c.told.result, c.calls[call.up] == call
		if running {
			delete(c.calls, call.up)
		}
		err := c.lastErr
		c.mu.Unlock()
		if !running {
			return
		}
		if result == nil {
			call.Peer.Answer(call, DeathAnswer(call.ID, c.opts.Name, err, false))
			return
		}
		call.Peer.Answer(call, withVersion(call.ID, result, call.version))
	}
	c.mu.Lock()
	if _, ok := c.peers[call.Peer]; !ok {
		defer c.mu.Unlock()
		return c.overErrLocked()
	}
	c.rememberLocked(call, m)
	c.parkLocked(call)
	pending := c.told.result == nil
	c.mu.Unlock()
	if !pending {
		answer()
		return nil
	}
	go func() { // ends with the handshake, or its time-out
		<-c.ready
		answer()
	}()
	return nil
}

// withVersion is an initialize answer with the version that this client gets.
func withVersion(id, result []byte, version string) []byte {
	// The result is dressed up as params, the only place where Parse looks for
	// a protocolVersion.
	line := append(append([]byte(`{"jsonrpc":"2.0","method":"x","params":`), result...), '}')
	m, err := jsonrpc.Parse(line)
	if err != nil || !m.Has(jsonrpc.ProtocolVersion) {
		return jsonrpc.AppendResult(nil, id, result)
	}
	edited := m.Append(nil, jsonrpc.Edit{Field: jsonrpc.ProtocolVersion, With: []byte(version)})
	const prefix = len(`{"jsonrpc":"2.0","method":"x","params":`)
	return jsonrpc.AppendResult(nil, id, edited[prefix:len(edited)-1])
}

// shareLevel keeps the lowest level that any client asked for at the server.
func (c *Conversation) shareLevel(call *Call, m *jsonrpc.Message) (done bool, err error) {
	c.mu.Lock()
	w := c.peers[call.Peer]
	level := slices.Index(levels, string(m.Text(jsonrpc.Level)))
	if w == nil || level <= 0 { // the server says what is wrong with it
		c.mu.Unlock()
		return false, nil
	}
	before := string(c.lowestLevelLocked())
	w.level = level
	now := c.lowestLevelLocked()
	known := c.told.level != nil && before == string(now)
	c.told.level = m.Append(nil, jsonrpc.Edit{Field: jsonrpc.Level, With: now})
	c.mu.Unlock()
	if known {
		call.Peer.Answer(call, jsonrpc.AppendResult(nil, call.ID, []byte("{}")))
	}
	return known, nil
}

// lowestLevelLocked returns the lowest level asked for, quoted.
func (c *Conversation) lowestLevelLocked() []byte {
	lowest := 0
	for _, w := range c.peers {
		if w.level > 0 && (lowest == 0 || w.level < lowest) {
			lowest = w.level
		}
	}
	return strconv.AppendQuote(nil, levels[lowest])
}

// shareUnsubscribe passes on the last unsubscription from a resource only.
func (c *Conversation) shareUnsubscribe(call *Call, m *jsonrpc.Message) (done bool, err error) {
	uri := string(m.Text(jsonrpc.URI))
	c.mu.Lock()
	if w := c.peers[call.Peer]; w != nil {
		delete(w.uris, uri)
	}
	wanted := c.wantedLocked(uri)
	if !wanted {
		delete(c.told.subscribed, uri)
	}
	c.mu.Unlock()
	if wanted {
		call.Peer.Answer(call, jsonrpc.AppendResult(nil, call.ID, []byte("{}")))
	}
	return wanted, nil
}

func (c *Conversation) wantedLocked(uri string) bool {
	for _, w := range c.peers {
		if w.uris[uri] {
			return true
		}
	}
	return false
}

// dropInterestLocked unsubscribes what only a leaving peer wanted.
func (c *Conversation) dropInterestLocked(p Peer) {
	w := c.peers[p]
	if w == nil || !c.opts.Shared {
		return
	}
	if c.bridge != nil {
		if len(w.uris) > 0 && c.state == open {
			w.uris = nil
			c.listenLocked()
		}
		return
	}
	uris := w.uris
	w.uris = nil
	for uri := range uris {
		if c.wantedLocked(uri) || c.told.subscribed[uri] == nil {
			continue
		}
		line := jsonrpc.AppendString([]byte(`{"jsonrpc":"2.0","id":0,"method":"resources/unsubscribe","params":{"uri":`), uri)
		delete(c.told.subscribed, uri)
		if m, err := jsonrpc.Parse(append(line, '}', '}')); err == nil && c.state == open {
			_ = c.sendCallLocked(&Call{method: "resources/unsubscribe", inner: func(*jsonrpc.Message) {}}, m, nil)
		}
	}
}

// addresseeLocked returns who is to answer a question of the server, or why
// nobody can.
func (c *Conversation) addresseeLocked(call *Call, m *jsonrpc.Message) (Peer, string) {
	if !c.opts.Shared {
		for p := range c.peers {
			return p, ""
		}
		return nil, "no client is there to answer"
	}
	method := string(m.Text(jsonrpc.Method))
	if call == nil {
		return nil, "the client that " + method + " is meant for cannot be told while not exactly one call is running " +
			"on the shared server; run it with --isolation session"
	}
	if w := c.peers[call.Peer]; w == nil || !w.can[method] {
		return nil, "the client whose call is running did not declare that it answers " + method
	}
	return call.Peer, ""
}

// audienceLocked returns who is to hear a notification of the server.
func (c *Conversation) audienceLocked(call *Call, m *jsonrpc.Message) []Peer {
	if c.opts.Shared && call != nil {
		if !c.hearsLocked(call.Peer, m) {
			return nil
		}
		return []Peer{call.Peer}
	}
	var to []Peer
	for p := range c.peers {
		if !c.opts.Shared || c.hearsLocked(p, m) {
			to = append(to, p)
		}
	}
	return to
}

// hearsLocked reports whether a peer of a shared server wants a notification:
// log messages from its level up, updates of what it subscribed to, and
// everything else.
func (c *Conversation) hearsLocked(p Peer, m *jsonrpc.Message) bool {
	w := c.peers[p]
	if w == nil {
		return false
	}
	switch string(m.Text(jsonrpc.Method)) {
	case "notifications/message":
		level := slices.Index(levels, string(m.Text(jsonrpc.Level)))
		return w.level == 0 || level < 0 || level >= w.level
	case "notifications/resources/updated":
		return w.uris[string(m.Text(jsonrpc.URI))]
	}
	return true
}

// awaitReady waits for a shared conversation's handshake.
func (c *Conversation) awaitReady(ctx context.Context, limit time.Duration) error {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-c.ready:
		return c.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return fmt.Errorf("no answer to initialize within %s (--start-timeout)", limit)
	}
}
