package conversation

import (
	"time"

	"github.com/holdfast-mcp/holdfast/internal/observe"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Call is one request of a client, from its acceptance to its one answer.
type Call struct {
	Peer Peer
	ID   []byte // the client's id, as spelled
	// Cause is why the gateway itself ended the call, once it is answered; ""
	// for an answer of the server.
	Cause observe.Cause
	Token []byte // the client's progress token, as spelled; nil: no progress wanted
	Data  any    // the peer's own
	// Own says that the gateway asks for itself, though in the peer's name: no
	// message of the server that names no call is taken to belong to it.
	Own bool
	// Follow tells, when a server of the stateless era has answered with a task,
	// whether the gateway is to follow it and to answer with what comes of it;
	// nil: not. It must not block.
	Follow func() bool
	// Ask takes what the task asks that is followed for the call, each time that
	// the server tells, and nothing once it asks nothing any more; what was
	// answered is left out. It reports whether the call goes on: else it has
	// ended without a word here, and its task is left as it is. Needed with
	// Follow. Members are Ask's own. It must not block.
	Ask func(t Task, questions []jsonrpc.Member) bool

	method  string
	name    string    // of the tool, the prompt
	clocks  Clocks    // of a client's call
	began   time.Time // of the first request for it
	moved   time.Time // when its idle clock began
	up      uint64
	inner   func(m *jsonrpc.Message) // the gateway's own request; Peer is nil
	sent    bool                     // it may have reached the server
	note    []byte                   // the request, kept for when the answer is good, or asks for a retry
	version string                   // what an initialize is answered with, quoted
	rounds  int                      // how often the server asked for more
	follow  *followed                // the server's task that it has become
	tasks   bool                     // the gateway takes a task for the client
}

// Of says of which request the call is. Conversation.Call does so unless it was
// done; do it before where others may ask for What meanwhile.
func (c *Call) Of(m *jsonrpc.Message) {
	c.method, c.name = methodOf(m), string(m.Text(jsonrpc.Name))
}

// methodOf returns a request's method, mostly without making a new text.
func methodOf(m *jsonrpc.Message) string {
	switch method := m.Text(jsonrpc.Method); string(method) {
	case "tools/call":
		return "tools/call"
	case "resources/read":
		return "resources/read"
	default:
		return string(method)
	}
}

// Method returns the call's method.
func (c *Call) Method() string { return c.method }

// Name returns the name of the tool or the prompt that is called, "" for none.
func (c *Call) Name() string { return c.name }

// What names the call: its method, and the tool's name.
func (c *Call) What() string {
	if c.name == "" {
		return c.method
	}
	return c.method + " " + c.name
}

// Sent reports whether the call may have reached the server.
func (c *Call) Sent() bool { return c.sent }

// Is reports whether the call is of the method.
func (c *Call) Is(method string) bool { return c.method == method }
