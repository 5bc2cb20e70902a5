package conversation

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// errRenewed: the server has lost the session, and been given another one.
var errRenewed = errors.New("conversation: the server has lost the session")

// Renewed takes note that a remote server was given a new session in place of
// one that it lost (see remote.Renewer): it is told again what it is to send by
// itself, and what it had asked is asked no more.
func (in inbound) Renewed() {
	c := in.c
	c.mu.Lock()
	if in.gen != c.gen || c.link == nil || c.state != open {
		c.mu.Unlock()
		return
	}
	asked := map[string]*question{}
	for minted, q := range c.asked {
		if q.round == nil {
			asked[minted] = q
			delete(c.asked, minted)
		}
	}
	if c.bridge == nil && !c.stateless {
		c.retellInterestsLocked()
	}
	c.mu.Unlock()
	c.fail(nil, asked, errRenewed)
}

// unreached reports whether an error is the link's own, about a remote server
// that was not reached, or not let through to: nothing is known of what it
// speaks.
func unreached(m *jsonrpc.Message) bool {
	data := jsonrpc.Get(m.Raw(jsonrpc.Error), "data")
	if jsonrpc.Get(data, "outcome") == nil {
		return false
	}
	status, err := strconv.Atoi(string(jsonrpc.Get(data, "status")))
	switch {
	case err != nil, status >= 500:
		return true
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusProxyAuthRequired,
		status == http.StatusRequestTimeout, status == http.StatusTooManyRequests:
		return true
	}
	return false
}

// doubtful reports whether an answer may be that of a server which does not
// speak the stateless era any more: it wants a session, or does not know the
// address.
func doubtful(m *jsonrpc.Message) bool {
	fault := m.Raw(jsonrpc.Error)
	if fault == nil || unreached(m) || era.RecognizedModernError(fault) {
		return false
	}
	switch string(jsonrpc.Get(jsonrpc.Get(fault, "data"), "status")) {
	case "400", "404", "405", "406":
		return true
	}
	switch string(jsonrpc.Get(fault, "code")) {
	case "-32000", "-32001", "-32600":
		return true
	}
	return false
}

// doubtLocked asks a remote server again what it speaks. The conversation ends
// if it is another era: the next one finds out.
func (c *Conversation) doubtLocked() {
	m, err := jsonrpc.Parse(c.discoverRequest())
	if err != nil || c.doubting {
		return
	}
	call := &Call{method: "server/discover", inner: func(m *jsonrpc.Message) {
		c.mu.Lock()
		c.doubting = false
		c.mu.Unlock()
		fault := m.Raw(jsonrpc.Error)
		if m.Has(jsonrpc.Result) && speaksStateless(m.Raw(jsonrpc.Result)) || fault != nil && (unreached(m) || era.RecognizedModernError(fault)) {
			return
		}
		c.Close(fmt.Errorf("%w: it does not speak the stateless era any more", ErrChanged))
	}}
	c.doubting = c.sendCallLocked(call, m, nil) == nil
}
