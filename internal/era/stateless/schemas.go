package stateless

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/exchange"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// mirroredParam is one argument that a tool's schema mirrors into a header.
type mirroredParam struct {
	header string
	path   []string
}

// schemas knows which arguments tools mirror, for each client: a server may show
// one client tools that it does not show another. Safe for concurrent use.
type schemas struct {
	last atomic.Pointer[seen]

	mu      sync.Mutex // guards the field below, and what it holds
	clients map[[32]byte]*shown
}

// shown is the tools that one client is shown. Guarded by the mu of schemas.
type shown struct {
	tools   map[string][]mirroredParam // replaced, never changed
	fetched time.Time
	used    time.Time
	asking  chan struct{} // closed once the server has answered who asks it; nil while nobody does
}

// asker asks the server for a page of its tools.
type asker func(ctx context.Context, params []byte) ([]byte, error)

// How long what tools/list said is believed, how often it is asked again, how
// long for, how many pages of it are read, and for how many clients it is kept.
const (
	schemasKeep    = time.Minute
	schemasAgain   = time.Second
	schemasTime    = 10 * time.Second
	schemasPages   = 100
	schemasClients = 1024
)

// seen is who a request was of.
type seen struct {
	principal            string
	client, capabilities []byte
	id                   [32]byte
}

// maxSeen bounds what is kept of a client's own words, in bytes.
const maxSeen = 4 << 10

// who returns the identity of a request's client. That of the next request is
// the same, mostly.
func (c *schemas) who(principal string, m *jsonrpc.Message) [32]byte {
	client, capabilities := m.Raw(jsonrpc.MetaClient), m.Raw(jsonrpc.MetaCapabilities)
	if last := c.last.Load(); last != nil && last.principal == principal &&
		bytes.Equal(last.client, client) && bytes.Equal(last.capabilities, capabilities) {
		return last.id
	}
	id := exchange.Identity(principal, m)
	if len(client)+len(capabilities) > maxSeen {
		return id
	}
	c.last.Store(&seen{principal, bytes.Clone(client), bytes.Clone(capabilities), id})
	return id
}

// of returns what a tool mirrors. A server that cannot be asked mirrors
// nothing. One request asks for all of the same client that want to know; each
// of those waits no longer than its own context.
func (c *schemas) of(ctx context.Context, who [32]byte, ask asker, tool []byte, again bool) []mirroredParam {
	for {
		c.mu.Lock()
		s := c.clientLocked(who)
		params, known := s.tools[string(tool)]
		age := time.Since(s.fetched)
		if known && !again && age < schemasKeep || (!known || again) && age < schemasAgain {
			c.mu.Unlock()
			return params
		}
		wait := s.asking
		if wait == nil {
			s.asking = make(chan struct{})
		}
		c.mu.Unlock()
		if wait == nil {
			return c.fetch(ctx, s, ask)[string(tool)]
		}
		select {
		case <-wait: // if who asked has given up, the next one asks
		case <-ctx.Done():
			return params
		}
	}
}

// clientLocked returns what is known for a client. For a new one who has not
// come for longest is forgotten, if there are many.
func (c *schemas) clientLocked(who [32]byte) *shown {
	s := c.clients[who]
	if s == nil {
		if len(c.clients) >= schemasClients {
			c.forgetLocked()
		}
		if c.clients == nil {
			c.clients = map[[32]byte]*shown{}
		}
		s = &shown{}
		c.clients[who] = s
	}
	s.used = time.Now()
	return s
}

func (c *schemas) forgetLocked() {
	var oldest [32]byte
	var at time.Time
	for who, s := range c.clients {
		if at.IsZero() || s.used.Before(at) {
			oldest, at = who, s.used
		}
	}
	delete(c.clients, oldest)
}

// fetch asks the server, for all who wait.
func (c *schemas) fetch(ctx context.Context, s *shown, ask asker) map[string][]mirroredParam {
	limited, cancel := context.WithTimeout(ctx, schemasTime)
	defer cancel()
	tools, err := list(limited, ask)
	c.mu.Lock()
	defer c.mu.Unlock()
	close(s.asking)
	s.asking = nil
	if err != nil && ctx.Err() != nil { // says nothing about the server
		return s.tools
	}
	s.fetched = time.Now()
	if err == nil || s.tools == nil { // what was known is better than a part
		s.tools = tools
	}
	return s.tools
}

// list reads all pages of the server's tools; with an error, those before it.
func list(ctx context.Context, ask asker) (map[string][]mirroredParam, error) {
	tools := map[string][]mirroredParam{}
	cursor := []byte("{}")
	for range schemasPages {
		page, err := ask(ctx, cursor)
		if err != nil {
			return tools, err
		}
		collect(page, tools)
		next := jsonrpc.Get(page, "nextCursor")
		if next == nil || string(next) == "null" {
			break
		}
		cursor = jsonrpc.AppendObject(nil, nil, nil, jsonrpc.Member{Key: "cursor", Value: next})
	}
	return tools, nil
}

// collect notes what the tools of one page mirror.
func collect(page []byte, tools map[string][]mirroredParam) {
	var list struct {
		Tools []struct {
			Name        string          `json:"name"`
			InputSchema json.RawMessage `json:"inputSchema"`
		} `json:"tools"`
	}
	if json.Unmarshal(page, &list) != nil {
		return
	}
	for _, t := range list.Tools {
		tools[t.Name] = annotated(t.InputSchema, nil, 0)
	}
}

// fieldName is what a header may be called (RFC 9110 section 5.1). Of a tool
// that wants another one clients keep away.
var fieldName = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")

// annotated finds the x-mcp-header annotations that are reachable by properties
// alone (2026-07-28 basic/transports/streamable-http, "Schema Extension").
func annotated(schema []byte, path []string, depth int) []mirroredParam {
	if depth > 16 {
		return nil
	}
	var out []mirroredParam
	for _, p := range jsonrpc.Members(jsonrpc.Get(schema, "properties")) {
		at := append(append([]string(nil), path...), p.Key)
		var header string
		if json.Unmarshal(jsonrpc.Get(p.Value, "x-mcp-header"), &header) == nil && fieldName.MatchString(header) {
			out = append(out, mirroredParam{header, at})
		}
		out = append(out, annotated(p.Value, at, depth+1)...)
	}
	return out
}
