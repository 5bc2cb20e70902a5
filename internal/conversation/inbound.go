package conversation

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// question is a request of the server that a client is to answer.
type question struct {
	id    []byte // the server's, as spelled
	at    time.Time
	gen   int   // the link that it came through
	call  *Call // the one that it belongs to, or nil
	peer  Peer
	round *round // that it is part of, before a stateless server
}

// inbound is one link's side of a conversation.
type inbound struct {
	c   *Conversation
	gen int
}

// Line implements stdio.Handler.
func (in inbound) Line(line []byte) {
	m, err := jsonrpc.Parse(line)
	if !errors.Is(err, jsonrpc.ErrBatch) && (err != nil || m.Kind() != jsonrpc.Response) {
		in.c.heard(in.gen)
	}
	switch {
	case errors.Is(err, jsonrpc.ErrBatch):
		each, err := jsonrpc.Split(line)
		if err != nil {
			in.c.skip(line, err)
		}
		for _, one := range each {
			in.Line(one)
		}
	case err != nil:
		in.c.skip(line, err)
	default:
		in.c.take(in.gen, m)
	}
}

// skip tells of output that is no message: a banner, a debugging print. One
// warning for the first, then one each time their number has grown tenfold.
func (c *Conversation) skip(line []byte, err error) {
	c.mu.Lock()
	c.junk++
	n := c.junk
	c.mu.Unlock()
	if n == 1 || n == 10 || n == 100 || n%1000 == 0 {
		c.opts.Log.Warn("skipped what the server wrote to stdout: it is no message; a server must log to stderr",
			"server", c.opts.Name, "line", string(line[:min(len(line), 200)]), "why", err, "skipped", n)
	}
}

// take routes one message of the server.
func (c *Conversation) take(gen int, m *jsonrpc.Message) {
	switch m.Kind() {
	case jsonrpc.Response:
		c.takeAnswer(gen, m)
	case jsonrpc.Request:
		c.takeRequest(gen, m)
	case jsonrpc.Notification:
		switch string(m.Text(jsonrpc.Method)) {
		case "notifications/progress":
			c.takeProgress(gen, m)
		case "notifications/cancelled":
			c.takeCancelled(gen, m)
		default:
			c.takeNotification(gen, m)
		}
	}
}

func parseID(raw []byte) (uint64, bool) {
	n, err := strconv.ParseUint(string(raw), 10, 64)
	return n, err == nil
}

func (c *Conversation) takeAnswer(gen int, m *jsonrpc.Message) {
	id, ok := parseID(m.Raw(jsonrpc.ID))
	if !ok { // some servers answer "7" to 7
		id, ok = parseID(m.Text(jsonrpc.ID))
	}
	c.mu.Lock()
	call := c.calls[id]
	if gen == c.gen {
		c.answeredLocked(call)
	}
	if !ok || call == nil || gen != c.gen {
		c.mu.Unlock()
		if !ok {
			c.opts.Log.Warn("the server sent an answer without a usable id", "server", c.opts.Name,
				"answer", string(m.Bytes()[:min(len(m.Bytes()), 200)]))
		} else { // of a cancelled call, most likely
			c.opts.Log.Debug("dropped a late answer", "server", c.opts.Name, "id", id)
		}
		return
	}
	if call.method == "initialize" && call.Peer != nil && refusesHandshake(m) {
		c.mu.Unlock() // the call stays, until it is known what the server speaks
		edit := jsonrpc.Edit{Field: jsonrpc.ID, With: call.ID}
		c.handshakeRefused(call, m.Append(nil, edit), c.crossLimit(m))
		return
	}
	delete(c.calls, id)
	if call.method == "initialize" && call.Peer != nil {
		c.openedLocked(m)
	}
	bridged := c.bridge != nil
	if c.opts.Remote && (bridged || c.stateless) && call.inner == nil && doubtful(m) {
		c.doubtLocked()
	}
	c.settleLocked(call, m)
	c.mu.Unlock()
	if call.inner != nil {
		call.inner(m)
		return
	}
	if bridged {
		c.bridgeAnswer(call, m)
		return
	}
	if call.Follow != nil && isTask(m) && call.Follow() {
		c.follow(call, m.Raw(jsonrpc.Result))
		return
	}
	edit := jsonrpc.Edit{Field: jsonrpc.ID, With: call.ID}
	answer := m.Append(make([]byte, 0, m.Len(edit)), edit)
	switch call.method {
	case "subscriptions/listen":
		answer = withSubscription(answer, call.ID)
	case "initialize":
		answer = atMost(answer, call, m.Raw(jsonrpc.Result))
	}
	call.Peer.Answer(call, answer)
}

// atMost makes of a later revision, in a server's answer to initialize, the one
// that its client asked for: a client leaves a server that speaks a revision it
// does not know (2025-11-25 basic/lifecycle, "Version Negotiation"), and to those
// with a handshake each later one has only added.
func atMost(answer []byte, call *Call, result []byte) []byte {
	told := jsonrpc.Get(result, "protocolVersion")
	if call.version == "" || !era.Version(bytes.Trim(told, `"`)).Handshake() || string(told) <= call.version {
		return answer
	}
	return withVersion(call.ID, result, call.version)
}

// withSubscription puts the client's id into a listen request's result, which
// names its subscription by the id that the server was asked under.
func withSubscription(answer, id []byte) []byte {
	m, err := jsonrpc.Parse(answer)
	if err != nil || !m.Has(jsonrpc.Result) {
		return answer
	}
	result := m.Raw(jsonrpc.Result)
	meta := jsonrpc.AppendObject(nil, jsonrpc.Get(result, "_meta"), nil, jsonrpc.Member{Key: era.MetaSubscription, Value: id})
	result = jsonrpc.AppendObject(nil, result, nil, jsonrpc.Member{Key: "_meta", Value: meta})
	return m.Append(nil, jsonrpc.Edit{Field: jsonrpc.Result, With: result})
}

func (c *Conversation) takeProgress(gen int, m *jsonrpc.Message) {
	id, ok := parseID(m.Raw(jsonrpc.Token))
	if !ok { // some servers make a string of it
		id, _ = parseID(m.Text(jsonrpc.Token))
	}
	c.mu.Lock()
	call := c.calls[id]
	if call != nil && gen == c.gen {
		c.progressLocked(call)
	}
	if call == nil || gen != c.gen || call.Token == nil || call.Peer == nil {
		c.mu.Unlock() // not one that anybody waits for
		return
	}
	c.mu.Unlock()
	edit := jsonrpc.Edit{Field: jsonrpc.Token, With: call.Token}
	call.Peer.Message(call, m.Append(make([]byte, 0, m.Len(edit)), edit))
}

// takeRequest answers a ping, and puts any other request to a client.
func (c *Conversation) takeRequest(gen int, m *jsonrpc.Message) {
	if m.Is("ping") {
		c.mu.Lock()
		if gen == c.gen && c.link != nil {
			_ = c.link.SendRaw(jsonrpc.AppendResult(nil, m.Raw(jsonrpc.ID), []byte("{}")))
		}
		c.mu.Unlock()
		return
	}
	c.mu.Lock()
	if gen != c.gen {
		c.mu.Unlock()
		return
	}
	if c.stateless || c.bridge != nil {
		c.refuseLocked(m.Raw(jsonrpc.ID), "a server of the stateless era asks by input_required, not by a request")
		c.mu.Unlock()
		return
	}
	q := &question{id: append([]byte(nil), m.Raw(jsonrpc.ID)...), at: time.Now(), gen: gen, call: c.onlyCallLocked()}
	var refuse string
	if q.peer, refuse = c.addresseeLocked(q.call, m); q.peer == nil {
		c.refuseLocked(q.id, refuse)
		c.mu.Unlock()
		c.opts.Log.Warn("refused a question of the server", "server", c.opts.Name,
			"method", string(m.Text(jsonrpc.Method)), "why", refuse)
		return
	}
	c.askCount++
	minted := strconv.AppendUint(append([]byte{'"'}, c.mint...), c.askCount, 10)
	minted = append(minted, '"')
	c.asked[string(minted)] = q
	c.mu.Unlock()
	edit := jsonrpc.Edit{Field: jsonrpc.ID, With: minted}
	q.peer.Message(q.call, m.Append(make([]byte, 0, m.Len(edit)), edit))
}

// refuseLocked answers a question of the server itself.
func (c *Conversation) refuseLocked(id []byte, why string) {
	if c.link != nil {
		_ = c.link.SendRaw(jsonrpc.AppendError(nil, id, jsonrpc.CodeInternal, "holdfast: "+why, nil))
	}
}

// Reply passes a client's answer to a question on, under the server's own id.
// An answer to a question that is not open (of an earlier life, or answered
// already) is dropped, as is one by a client that was not asked.
func (c *Conversation) Reply(p Peer, m *jsonrpc.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := string(m.Raw(jsonrpc.ID))
	q := c.asked[key]
	if q != nil && q.peer == p && q.round != nil {
		delete(c.asked, key)
		go c.bridgeReply(q, key, m.Clone()) // ends at once; the lock is held here
		return
	}
	if q == nil || q.peer != p || q.gen != c.gen || c.link == nil {
		c.opts.Log.Debug("dropped an answer to no open question", "server", c.opts.Name, "id", key)
		return
	}
	delete(c.asked, key)
	if err := c.link.Send(m, jsonrpc.Edit{Field: jsonrpc.ID, With: q.id}); err != nil {
		c.opts.Log.Warn("an answer to the server's question is lost", "server", c.opts.Name, "why", err)
	}
}

// takeCancelled passes on that the server gave up a question, or a subscription.
func (c *Conversation) takeCancelled(gen int, m *jsonrpc.Message) {
	c.mu.Lock()
	id, _ := parseID(m.Raw(jsonrpc.RequestID))
	if call := c.calls[id]; c.stateless && gen == c.gen && call != nil && call.method == "subscriptions/listen" {
		delete(c.calls, id)
		c.mu.Unlock()
		call.Peer.Answer(call, withSubscription(jsonrpc.AppendResult(nil, call.ID, []byte(`{"resultType":"complete"}`)), call.ID))
		return
	}
	for minted, q := range c.asked {
		if q.gen == gen && string(q.id) == string(m.Raw(jsonrpc.RequestID)) {
			delete(c.asked, minted)
			c.mu.Unlock()
			edit := jsonrpc.Edit{Field: jsonrpc.RequestID, With: []byte(minted)}
			q.peer.Message(q.call, m.Append(nil, edit))
			return
		}
	}
	c.mu.Unlock()
}

// takeNotification passes on a notification that names no call.
func (c *Conversation) takeNotification(gen int, m *jsonrpc.Message) {
	c.mu.Lock()
	if gen != c.gen {
		c.mu.Unlock()
		return
	}
	var call *Call
	if id, ok := parseID(m.Raw(jsonrpc.MetaSubscription)); ok && c.stateless {
		call = c.calls[id]
		c.mu.Unlock()
		if call != nil && call.Peer != nil {
			call.Peer.Message(call, m.Append(nil, jsonrpc.Edit{Field: jsonrpc.MetaSubscription, With: call.ID}))
		}
		return
	}
	if c.bridge != nil && m.Has(jsonrpc.MetaSubscription) {
		if id, _ := parseID(m.Raw(jsonrpc.MetaSubscription)); id != c.bridge.listen {
			c.mu.Unlock()
			return
		}
		if m = heard(m); m == nil {
			c.mu.Unlock()
			return
		}
	}
	if m.Is("notifications/message") {
		call = c.onlyCallLocked()
	}
	to := c.audienceLocked(call, m)
	c.mu.Unlock()
	for _, p := range to {
		of := call
		if of != nil && of.Peer != p {
			of = nil
		}
		p.Message(of, m.Append(make([]byte, 0, m.Len())))
	}
}

// onlyCallLocked returns the clients' call in flight if there is exactly one:
// only then can a message that names no call be said to belong to it.
func (c *Conversation) onlyCallLocked() *Call {
	var only *Call
	for _, call := range c.calls {
		switch {
		case call.Peer == nil || call.Own || call.method == "subscriptions/listen":
		case only != nil:
			return nil
		default:
			only = call
		}
	}
	return only
}

// Oversize implements stdio.Handler: a call whose answer was too long ends
// with an error, and nothing else does.
func (in inbound) Oversize(head []byte, size int) {
	c := in.c
	id, response := jsonrpc.PeekID(head)
	n, ok := parseID(id)
	c.mu.Lock()
	call := c.calls[n]
	if !ok || !response || in.gen != c.gen {
		call = nil
	}
	if call != nil {
		delete(c.calls, n)
	}
	c.mu.Unlock()
	c.opts.Log.Error("the server wrote a message over the limit; it was skipped", "server", c.opts.Name,
		"bytes", size, "limit", c.opts.MaxMessage, "answer", call != nil)
	if call == nil || call.Peer == nil {
		return
	}
	text := fmt.Sprintf("the server's answer is %d bytes long, over the limit of %d (--max-body)", size, c.opts.MaxMessage)
	call.Peer.Answer(call, jsonrpc.AppendError(nil, call.ID, jsonrpc.CodeInternal, text, []byte(`{"outcome":"executed"}`)))
}
