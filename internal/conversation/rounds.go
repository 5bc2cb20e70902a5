package conversation

import (
	"bytes"
	"crypto/rand"
	"slices"
	"strconv"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// bridgeAnswer takes a stateless server's answer to a handshake-era client's
// call: either the end, or a round of questions.
func (c *Conversation) bridgeAnswer(call *Call, m *jsonrpc.Message) {
	result := m.Raw(jsonrpc.Result)
	if result == nil && era.WantsTasks(m.Raw(jsonrpc.Error)) && !call.tasks && call.note != nil {
		c.mu.Lock()
		err := c.declareLocked(call)
		c.mu.Unlock()
		if err == nil {
			return
		}
	}
	if result == nil {
		call.Peer.Answer(call, fault(call, m))
		return
	}
	switch kind := string(m.Raw(jsonrpc.ResultType)); kind {
	case `"input_required"`:
		c.ask(call, result)
	case `"task"`:
		c.follow(call, result)
	case "", `"complete"`:
		call.Peer.Answer(call, jsonrpc.AppendResult(nil, call.ID, plain(result)))
	default:
		call.Peer.Answer(call, jsonrpc.AppendError(nil, call.ID, jsonrpc.CodeInternal,
			"the server answered with a result of type "+kind[:min(len(kind), 60)]+", which revision "+string(era.NewestHandshake)+" does not have",
			[]byte(`{"outcome":"unknown"}`)))
	}
}

// plain is a result without what only the stateless era has.
func plain(result []byte) []byte {
	drop := []string{"resultType", "ttlMs", "cacheScope"}
	if meta := jsonrpc.Get(result, "_meta"); meta != nil {
		kept := jsonrpc.AppendObject(nil, meta, []string{era.MetaServer})
		if string(kept) == "{}" {
			return jsonrpc.AppendObject(nil, result, append(drop, "_meta"))
		}
		return jsonrpc.AppendObject(nil, result, drop, jsonrpc.Member{Key: "_meta", Value: kept})
	}
	return jsonrpc.AppendObject(nil, result, drop)
}

// fault is an error answer with the code that the handshake era has for it.
func fault(call *Call, m *jsonrpc.Message) []byte {
	e := m.Raw(jsonrpc.Error)
	if call.method == "resources/read" && string(jsonrpc.Get(e, "code")) == strconv.Itoa(jsonrpc.CodeInvalidParams) &&
		jsonrpc.Get(jsonrpc.Get(e, "data"), "uri") != nil {
		e = jsonrpc.AppendObject(nil, e, nil, jsonrpc.Member{Key: "code", Value: strconv.AppendInt(nil, era.CodeResourceNotFound, 10)})
	}
	return m.Append(nil, jsonrpc.Edit{Field: jsonrpc.ID, With: call.ID}, jsonrpc.Edit{Field: jsonrpc.Error, With: e})
}

// ask puts the questions of an input_required result to the client.
func (c *Conversation) ask(call *Call, result []byte) {
	r := &round{call: call, pending: map[string]string{}, state: bytes.Clone(jsonrpc.Get(result, "requestState"))}
	var out [][]byte
	refuse := ""
	c.mu.Lock()
	w := c.peers[call.Peer]
	if w == nil { // it has left
		c.mu.Unlock()
		return
	}
	if call.rounds++; call.rounds > maxRounds {
		refuse = "the server asks and asks: given up after " + strconv.Itoa(maxRounds) + " rounds"
	}
	for _, q := range jsonrpc.Members(jsonrpc.Get(result, "inputRequests")) {
		var method string
		if raw := jsonrpc.Get(q.Value, "method"); len(raw) > 2 {
			method = string(raw[1 : len(raw)-1])
		}
		if !w.can[method] {
			refuse = "the server needs an answer to " + method + ", and this client did not declare that it answers that"
			break
		}
		c.askCount++
		minted := strconv.Quote(c.mint + strconv.FormatUint(c.askCount, 10))
		c.asked[minted] = &question{gen: c.gen, call: call, peer: call.Peer, round: r}
		r.pending[minted] = q.Key
		out = append(out, serverRequest(minted, method, jsonrpc.Get(q.Value, "params")))
	}
	if refuse != "" {
		c.dropRoundLocked(r)
		c.mu.Unlock()
		call.Peer.Answer(call, jsonrpc.AppendError(nil, call.ID, jsonrpc.CodeInternal, refuse, []byte(`{"outcome":"unknown"}`)))
		return
	}
	c.bridge.rounds[call] = r
	c.mu.Unlock()
	for _, line := range out {
		call.Peer.Message(call, line)
	}
	if len(out) == 0 { // only state to be carried back
		c.retry(r)
	}
}

// serverRequest is a question as a request of the handshake era. There, a
// question that is answered at a URL has an id of its own.
func serverRequest(id, method string, params []byte) []byte {
	line := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	line = jsonrpc.AppendString(append(line, `,"method":`...), method)
	if string(jsonrpc.Get(params, "mode")) == `"url"` && jsonrpc.Get(params, "elicitationId") == nil {
		params = jsonrpc.AppendObject(nil, params, nil, jsonrpc.Member{Key: "elicitationId", Value: strconv.AppendQuote(nil, rand.Text())})
	}
	if params != nil {
		line = append(append(line, `,"params":`...), params...)
	}
	return append(line, '}')
}

// dropRoundLocked forgets the questions of a round.
func (c *Conversation) dropRoundLocked(r *round) {
	for minted := range r.pending {
		delete(c.asked, minted)
	}
	delete(c.bridge.rounds, r.call)
}

// bridgeReply takes a client's answer to one question of a round. An error of
// the client ends the call: the stateless era has no way to tell the server.
func (c *Conversation) bridgeReply(q *question, minted string, m *jsonrpc.Message) {
	r := q.round
	c.mu.Lock()
	if c.bridge.rounds[r.call] != r {
		c.mu.Unlock()
		return
	}
	if !m.Has(jsonrpc.Result) {
		c.dropRoundLocked(r)
		c.mu.Unlock()
		text := "the client could not answer the server's question: " + string(jsonrpc.Get(m.Raw(jsonrpc.Error), "message"))
		r.call.Peer.Answer(r.call, jsonrpc.AppendError(nil, r.call.ID, jsonrpc.CodeInternal, text, []byte(`{"outcome":"unknown"}`)))
		return
	}
	r.responses = append(r.responses, jsonrpc.Member{Key: r.pending[minted], Value: bytes.Clone(m.Raw(jsonrpc.Result))})
	delete(r.pending, minted)
	done := len(r.pending) == 0
	c.mu.Unlock()
	if done {
		c.retry(r)
	}
}

// retry sends the call again, with the client's answers.
func (c *Conversation) retry(r *round) {
	c.mu.Lock()
	if c.bridge.rounds[r.call] != r {
		c.mu.Unlock()
		return
	}
	delete(c.bridge.rounds, r.call)
	if r.call.follow != nil {
		c.updateLocked(r)
		c.mu.Unlock()
		return
	}
	var more []jsonrpc.Member
	if len(r.responses) > 0 {
		more = append(more, jsonrpc.Member{Key: "inputResponses", Value: jsonrpc.AppendObject(nil, nil, nil, r.responses...)})
	}
	if r.state != nil {
		more = append(more, jsonrpc.Member{Key: "requestState", Value: r.state})
	}
	m, err := jsonrpc.Parse(r.call.note)
	if err == nil {
		err = c.forwardLocked(r.call, m, more)
	}
	c.mu.Unlock()
	if err != nil {
		r.call.Peer.Answer(r.call, jsonrpc.AppendError(nil, r.call.ID, jsonrpc.CodeInternal, err.Error(), []byte(`{"outcome":"unknown"}`)))
	}
}

// cancelRoundLocked gives up a call whose client is being asked.
func (c *Conversation) cancelRoundLocked(call *Call) bool {
	if c.bridge == nil || c.bridge.rounds[call] == nil {
		return false
	}
	c.dropRoundLocked(c.bridge.rounds[call])
	if call.follow != nil {
		c.abandonLocked(call)
	}
	return true
}

// failRounds ends the calls that were between two requests when the server
// went, or the peer left. It returns them.
func (c *Conversation) takeRoundsLocked(of Peer) []*Call {
	if c.bridge == nil {
		return nil
	}
	var out []*Call
	for call, r := range c.bridge.rounds {
		if of == nil || call.Peer == of {
			c.dropRoundLocked(r)
			if of != nil && call.follow != nil {
				c.abandonLocked(call)
			}
			out = append(out, call)
		}
	}
	return slices.Clip(out)
}
