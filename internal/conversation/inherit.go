package conversation

import "github.com/holdfast-mcp/holdfast/jsonrpc"

// Own reports whether the conversation is that of one peer alone.
func (c *Conversation) Own() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.opts.Shared && !c.stateless
}

// Inherit puts call, an initialize of another peer, in the place of the one
// that from began, whether or not the server has answered it meanwhile, and the
// peer in the place of from. It reports false, and changes nothing, if there is
// no such start to be had.
func (c *Conversation) Inherit(from Peer, call *Call) bool {
	c.mu.Lock()
	interest, joined := c.peers[from]
	var begun uint64
	for id, old := range c.calls {
		if old.Peer == from && old.method == "initialize" {
			begun = id
		}
	}
	if !joined || c.opts.Shared || c.stateless || begun == 0 && c.told.result == nil {
		c.mu.Unlock()
		return false
	}
	delete(c.peers, from)
	c.peers[call.Peer] = interest
	call.method, call.sent, call.up = "initialize", true, begun
	if begun > 0 {
		c.calls[begun] = call
		c.mu.Unlock()
		return true
	}
	result := c.told.result
	c.mu.Unlock()
	call.Peer.Answer(call, jsonrpc.AppendResult(nil, call.ID, result))
	return true
}
