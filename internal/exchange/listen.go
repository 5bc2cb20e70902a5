package exchange

import (
	"encoding/json"
	"sync"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

const paramsField = jsonrpc.Params

// listener is one subscriptions/listen request before a handshake-era server.
type listener struct {
	a     *asked
	wants map[string]bool // notifications by method
	uris  map[string]bool

	mu   sync.Mutex // guards done
	done bool
}

// filter is the notifications member of a listen request.
type filter struct {
	Tools     bool     `json:"toolsListChanged,omitempty"`
	Prompts   bool     `json:"promptsListChanged,omitempty"`
	Resources bool     `json:"resourcesListChanged,omitempty"`
	URIs      []string `json:"resourceSubscriptions,omitempty"`
}

// listen opens a subscription: the acknowledgement first, with what the server
// supports of what was asked for (2026-07-28 basic/patterns/subscriptions).
func (g *group) listen(a *asked, l *lane) func(reason string) {
	var f filter
	_ = json.Unmarshal(jsonrpc.Get(a.message.Raw(jsonrpc.Params), "notifications"), &f)
	var can struct {
		Tools, Prompts struct{ ListChanged bool }
		Resources      struct{ ListChanged, Subscribe bool }
	}
	_ = json.Unmarshal(jsonrpc.Get(l.hello, "capabilities"), &can)
	f.Tools, f.Prompts = f.Tools && can.Tools.ListChanged, f.Prompts && can.Prompts.ListChanged
	f.Resources = f.Resources && can.Resources.ListChanged
	if !can.Resources.Subscribe {
		f.URIs = nil
	}
	s := &listener{a: a, uris: map[string]bool{}, wants: map[string]bool{
		"notifications/tools/list_changed":     f.Tools,
		"notifications/prompts/list_changed":   f.Prompts,
		"notifications/resources/list_changed": f.Resources,
	}}
	for _, uri := range f.URIs {
		s.uris[uri] = true
	}
	honoured, _ := json.Marshal(f)
	ack := append([]byte(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":`), s.tag([]byte(`{"notifications":`+string(honoured)+`}`))...)
	a.note(append(ack, '}'))
	g.mu.Lock()
	closed := g.closed
	g.listeners[s] = true
	lanes := append([]*lane(nil), g.lanes...)
	var fresh []string
	for uri := range s.uris {
		if g.uris[uri]++; g.uris[uri] == 1 {
			fresh = append(fresh, uri)
		}
	}
	g.mu.Unlock()
	if closed { // close has not seen it
		s.finish()
	}
	tell(lanes, "resources/subscribe", fresh)
	return func(string) { g.unlisten(s) }
}

// tell sends a request about each resource to all lanes.
func tell(lanes []*lane, method string, uris []string) {
	for _, l := range lanes {
		for _, uri := range uris {
			l.send(method, jsonrpc.AppendObject(nil, nil, nil, jsonrpc.Member{Key: "uri", Value: jsonrpc.AppendString(nil, uri)}))
		}
	}
}

// unlisten ends a subscription that its client has left.
func (g *group) unlisten(s *listener) {
	s.mu.Lock()
	s.done = true
	s.mu.Unlock()
	g.mu.Lock()
	if !g.listeners[s] {
		g.mu.Unlock()
		return
	}
	delete(g.listeners, s)
	var last []string
	for uri := range s.uris {
		if g.uris[uri]--; g.uris[uri] <= 0 {
			delete(g.uris, uri)
			last = append(last, uri)
		}
	}
	lanes := append([]*lane(nil), g.lanes...)
	g.mu.Unlock()
	tell(lanes, "resources/unsubscribe", last)
	g.h.queue.dispatch() // a lane may no longer be needed
}

// tag puts the subscription's id into params.
func (s *listener) tag(params []byte) []byte {
	meta := jsonrpc.AppendObject(nil, jsonrpc.Get(params, "_meta"), nil, jsonrpc.Member{Key: era.MetaSubscription, Value: s.a.id})
	return jsonrpc.AppendObject(nil, params, nil, jsonrpc.Member{Key: "_meta", Value: meta})
}

// broadcast gives a notification that belongs to no call to who asked for it.
func (g *group) broadcast(m *jsonrpc.Message) {
	method := string(m.Text(jsonrpc.Method))
	g.mu.Lock()
	var to []*listener
	for s := range g.listeners {
		if s.wants[method] || method == "notifications/resources/updated" && s.uris[string(m.Text(jsonrpc.URI))] {
			to = append(to, s)
		}
	}
	g.mu.Unlock()
	for _, s := range to {
		line := jsonrpc.AppendString([]byte(`{"jsonrpc":"2.0","method":`), method)
		line = append(append(line, `,"params":`...), s.tag(m.Raw(jsonrpc.Params))...)
		s.emit(append(line, '}'), false)
	}
}

func (s *listener) emit(msg []byte, final bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.done:
	case final:
		s.done = true
		s.a.answer(msg)
	default:
		s.a.note(msg)
	}
}

// finish ends the subscription in order.
func (s *listener) finish() {
	s.emit(jsonrpc.AppendResult(nil, s.a.id, s.tag([]byte(`{"resultType":"complete"}`))), true)
}
