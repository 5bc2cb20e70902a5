package conversation

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// A bridge carries clients of the handshake era to a server that speaks the
// stateless era only. What a session is to them is kept here: who the client
// is goes along with each request, what it subscribed to is one listen request,
// and an input_required result becomes requests to the client.

// bridge is the state of a conversation with such a server; nil with others.
type bridge struct {
	listen uint64           // the listen request that is open, 0 for none
	filter []byte           // what it asks for
	rounds map[*Call]*round // calls whose client is being asked
}

// round is one call's input_required result on its way to answers.
type round struct {
	call      *Call
	state     []byte // requestState, nil for none
	pending   map[string]string
	responses []jsonrpc.Member
}

// maxRounds bounds how often a server may ask for one call.
const maxRounds = 64

// refusesHandshake reports whether an answer to initialize may be that of a
// server which speaks the stateless era only. Its code is the server's own
// choice (2026-07-28 basic/versioning, "Compatibility Matrix"): the method is
// unknown to it, and lacks the version that a request must name.
func refusesHandshake(m *jsonrpc.Message) bool { return m.Has(jsonrpc.Error) && !unreached(m) }

// crossTime is how long a server that has refused initialize may take to answer
// server/discover: it is up and running.
const crossTime = 5 * time.Second

// crossLimit is crossTime, but the whole start time-out for a server that has
// named a revision which will do: there is nothing else to fall back to.
func (c *Conversation) crossLimit(refusal *jsonrpc.Message) time.Duration {
	fault := refusal.Raw(jsonrpc.Error)
	if string(jsonrpc.Get(fault, "code")) == strconv.Itoa(era.CodeUnsupportedVersion) &&
		offers(jsonrpc.Get(jsonrpc.Get(fault, "data"), "supported"), served) {
		return c.opts.StartTimeout
	}
	return crossTime
}

// cross asks a server that refused the handshake for server/discover. ready is
// called once, with the InitializeResult that this comes to, nil if the server
// does not speak the stateless era either, or says nothing within the limit.
func (c *Conversation) cross(limit time.Duration, ready func(hello []byte)) {
	var settled atomic.Bool
	fail := func() {
		if !settled.Swap(true) {
			ready(nil)
		}
	}
	c.mu.Lock()
	if c.state == greeting { // or the question would wait for the handshake
		c.state = opening
	}
	c.mu.Unlock()
	late := time.AfterFunc(limit, fail)
	err := c.inquire(c.discoverRequest(), func(m *jsonrpc.Message) {
		late.Stop()
		if !m.Has(jsonrpc.Result) || !speaksStateless(m.Raw(jsonrpc.Result)) {
			fail()
			return
		}
		if settled.Swap(true) {
			return
		}
		ready(c.bridgeTo(m.Raw(jsonrpc.Result)))
	})
	if err != nil {
		late.Stop()
		fail()
	}
}

// bridgeTo serves handshake-era clients from now on by a server that has
// introduced itself with a DiscoverResult. It returns the InitializeResult that
// this comes to.
func (c *Conversation) bridgeTo(discovered []byte) []byte {
	c.mu.Lock()
	c.stopTimerLocked()
	c.looking = nil
	c.bridge = &bridge{rounds: map[*Call]*round{}}
	c.judgeLocked()
	c.told.result, c.told.hello, c.told.initialized = introduction(discovered), nil, nil
	hello := c.told.result
	c.state = open
	c.readyLocked()
	c.retellLocked()
	c.mu.Unlock()
	if c.opts.OnStatelessOnly != nil {
		c.opts.OnStatelessOnly()
	}
	c.opts.Log.Info("the server speaks the stateless era only; handshakes are answered for it", "server", c.opts.Name)
	return hello
}

// introduction is an InitializeResult made of a DiscoverResult.
func introduction(discovered []byte) []byte {
	server := jsonrpc.Get(jsonrpc.Get(discovered, "_meta"), era.MetaServer)
	if server == nil {
		server = []byte(`{"name":"unnamed","version":"0"}`)
	}
	set := []jsonrpc.Member{
		{Key: "protocolVersion", Value: strconv.AppendQuote(nil, string(era.NewestHandshake))},
		{Key: "capabilities", Value: jsonrpc.AppendObject(nil, jsonrpc.Get(discovered, "capabilities"), []string{"extensions"})},
		{Key: "serverInfo", Value: bytes.Clone(server)},
	}
	if text := jsonrpc.Get(discovered, "instructions"); text != nil {
		set = append(set, jsonrpc.Member{Key: "instructions", Value: bytes.Clone(text)})
	}
	return jsonrpc.AppendObject(nil, nil, nil, set...)
}

// handshakeRefused is called with the server's refusal of a client's own
// initialize. The limit is for its answer to server/discover.
func (c *Conversation) handshakeRefused(call *Call, refusal []byte, limit time.Duration) {
	if c.opts.OnHandshake != nil {
		c.opts.OnHandshake(false)
	}
	c.cross(limit, func(hello []byte) {
		if !c.takeOut(call) {
			return
		}
		if hello == nil {
			c.mu.Lock()
			if c.state == opening { // it has answered: there is nothing to wait for
				c.stopTimerLocked()
				c.state = open
			}
			c.mu.Unlock()
			call.Peer.Answer(call, refusal)
			return
		}
		call.Peer.Answer(call, withVersion(call.ID, hello, call.version))
	})
}

// park enters a call that nothing is sent for yet.
func (c *Conversation) parkLocked(call *Call) {
	c.next++
	call.up = c.next
	c.calls[call.up] = call
}

// takeOut removes a parked call, if it is still there.
func (c *Conversation) takeOut(call *Call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[call.up] != call {
		return false
	}
	delete(c.calls, call.up)
	return true
}

// rememberLocked keeps what a client said of itself in initialize.
func (c *Conversation) rememberLocked(call *Call, m *jsonrpc.Message) {
	call.version = strconv.Quote(string(era.Negotiate(era.Version(m.Text(jsonrpc.ProtocolVersion)))))
	w := c.peers[call.Peer]
	if w == nil {
		return
	}
	params := m.Raw(jsonrpc.Params)
	w.can = declared(m)
	capabilities := jsonrpc.Get(params, "capabilities")
	if len(capabilities) == 0 || capabilities[0] != '{' {
		capabilities = []byte("{}")
	}
	w.meta = []jsonrpc.Member{
		{Key: era.MetaVersion, Value: strconv.AppendQuote(nil, string(era.V20260728))},
		{Key: era.MetaCapabilities, Value: bytes.Clone(capabilities)},
	}
	if client := jsonrpc.Get(params, "clientInfo"); client != nil {
		w.meta = append(w.meta, jsonrpc.Member{Key: era.MetaClient, Value: bytes.Clone(client)})
	}
}

// bridged reports whether the server takes no handshake.
func (c *Conversation) bridged() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bridge != nil
}

// bridgeCall serves a handshake-era client's request by a stateless server.
func (c *Conversation) bridgeCall(call *Call, m *jsonrpc.Message) error {
	empty := func() { call.Peer.Answer(call, jsonrpc.AppendResult(nil, call.ID, []byte("{}"))) }
	c.mu.Lock()
	w := c.peers[call.Peer]
	if w == nil {
		defer c.mu.Unlock()
		return c.overErrLocked()
	}
	uri := string(m.Text(jsonrpc.URI))
	switch call.method {
	case "initialize":
		c.rememberLocked(call, m)
		hello := c.told.result
		c.mu.Unlock()
		call.Peer.Answer(call, withVersion(call.ID, hello, call.version))
		return nil
	case "logging/setLevel":
		if level := slices.Index(levels, string(m.Text(jsonrpc.Level))); level > 0 {
			w.level = level
			c.mu.Unlock()
			empty()
			return nil
		}
		c.mu.Unlock()
		call.Peer.Answer(call, jsonrpc.AppendError(nil, call.ID, jsonrpc.CodeInvalidParams, "unknown log level", nil))
		return nil
	case "resources/subscribe":
		if w.uris == nil {
			w.uris = map[string]bool{}
		}
		w.uris[uri] = true
		c.listenLocked()
		c.mu.Unlock()
		empty()
		return nil
	case "resources/unsubscribe":
		delete(w.uris, uri)
		c.listenLocked()
		c.mu.Unlock()
		empty()
		return nil
	}
	defer c.mu.Unlock()
	if era.MayAsk(call.method) {
		call.note = m.Append(nil)
	}
	return c.forwardLocked(call, m, nil)
}

// forwardLocked sends a request as a stateless server wants it, with what
// answers an earlier input_required of it.
func (c *Conversation) forwardLocked(call *Call, m *jsonrpc.Message, more []jsonrpc.Member) error {
	w := c.peers[call.Peer]
	if w == nil {
		return c.overErrLocked()
	}
	meta := w.meta
	if call.tasks {
		meta = slices.Clone(meta)
		for i := range meta {
			if meta[i].Key == era.MetaCapabilities {
				meta[i].Value = era.WithTasks(meta[i].Value)
			}
		}
	}
	if w.level > 0 {
		meta = append(slices.Clip(meta), jsonrpc.Member{Key: era.MetaLogLevel, Value: strconv.AppendQuote(nil, levels[w.level])})
	}
	params := m.Raw(jsonrpc.Params)
	params = jsonrpc.AppendObject(nil, params, nil, append(more,
		jsonrpc.Member{Key: "_meta", Value: jsonrpc.AppendObject(nil, jsonrpc.Get(params, "_meta"), nil, meta...)})...)
	line := jsonrpc.AppendString([]byte(`{"jsonrpc":"2.0","id":0,"method":`), call.method)
	line = append(append(line, `,"params":`...), params...)
	out, err := jsonrpc.Parse(append(line, '}'))
	if err != nil {
		return err
	}
	return c.sendCallLocked(call, out, nil)
}

// bridgeNotify serves a client's notification.
func (c *Conversation) bridgeNotifyLocked(m *jsonrpc.Message) error {
	switch string(m.Text(jsonrpc.Method)) {
	case "notifications/initialized":
		c.listenLocked()
		return nil
	case "notifications/roots/list_changed", "notifications/progress":
		return nil
	}
	return c.sendLocked(nil, m)
}

// listenLocked opens the listen request that stands for what all peers want to
// hear, and closes the one before.
func (c *Conversation) listenLocked() {
	if c.state != open { // a server that is started again is asked again
		return
	}
	before := c.bridge.listen
	can := jsonrpc.Get(c.told.result, "capabilities")
	var set []jsonrpc.Member
	for _, capability := range []string{"tools", "prompts", "resources"} {
		if jsonrpc.Get(can, capability) != nil {
			set = append(set, jsonrpc.Member{Key: capability + "ListChanged", Value: []byte("true")})
		}
	}
	uris := []byte{'['}
	seen := map[string]bool{}
	for _, w := range c.peers {
		for uri := range w.uris {
			seen[uri] = true
		}
	}
	for _, uri := range slices.Sorted(maps.Keys(seen)) {
		if len(uris) > 1 {
			uris = append(uris, ',')
		}
		uris = jsonrpc.AppendString(uris, uri)
	}
	if len(seen) > 0 {
		set = append(set, jsonrpc.Member{Key: "resourceSubscriptions", Value: append(uris, ']')})
	}
	filter := jsonrpc.AppendObject(nil, nil, nil, set...)
	if c.calls[before] != nil && bytes.Equal(filter, c.bridge.filter) {
		return
	}
	line := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":0,"method":"subscriptions/listen","params":{"notifications":%s,"_meta":{%q:%q,%q:%s,%q:{}}}}`,
		filter, era.MetaVersion, era.V20260728, era.MetaClient, c.opts.ClientInfo, era.MetaCapabilities)
	m, err := jsonrpc.Parse(line)
	if err != nil {
		return
	}
	call := &Call{method: "subscriptions/listen", inner: func(*jsonrpc.Message) {}}
	if c.sendCallLocked(call, m, nil) == nil {
		c.bridge.listen, c.bridge.filter = call.up, filter
	}
	if c.calls[before] != nil {
		c.forgetLocked(before, "replaced by another subscription")
	}
}

// heardLocked returns a notification of the listen request as handshake-era
// clients know it, nil for the acknowledgement.
func heard(m *jsonrpc.Message) *jsonrpc.Message {
	if m.Is("notifications/subscriptions/acknowledged") {
		return nil
	}
	params := m.Raw(jsonrpc.Params)
	meta := jsonrpc.AppendObject(nil, jsonrpc.Get(params, "_meta"), []string{era.MetaSubscription})
	var set []jsonrpc.Member
	if string(meta) != "{}" {
		set = []jsonrpc.Member{{Key: "_meta", Value: meta}}
	}
	out, err := jsonrpc.Parse(m.Append(nil, jsonrpc.Edit{Field: jsonrpc.Params, With: jsonrpc.AppendObject(nil, params, []string{"_meta"}, set...)}))
	if err != nil {
		return nil
	}
	return out
}
