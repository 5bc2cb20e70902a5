package conversation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// discoverRequest asks a server whether it speaks the stateless era.
func (c *Conversation) discoverRequest() []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{"_meta":{%q:%q,%q:%s,%q:{}}}}`,
		era.MetaVersion, era.V20260728, era.MetaClient, c.opts.ClientInfo, era.MetaCapabilities)
}

// inquire sends a request of the gateway's own. answer is called with a copy of
// the answer, unless the server ends first.
func (c *Conversation) inquire(line []byte, answer func(m *jsonrpc.Message)) error {
	m, err := jsonrpc.Parse(line)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	call := &Call{method: string(m.Text(jsonrpc.Method)), inner: func(m *jsonrpc.Message) {
		if kept, err := jsonrpc.Parse(bytes.Clone(m.Bytes())); err == nil {
			answer(kept)
		}
	}}
	return c.sendCallLocked(call, m, nil)
}

// verdict is what a probe finds out.
type verdict uint8

const (
	undecided verdict = iota
	stateless         // the server answered server/discover
	handshake         // it did not, and nothing else was said to it
	spent             // it did not, and the process cannot be used for anything else
)

// probe asks a fresh server server/discover. A server that is silent for the
// probe's own time is sent initialize, too, and the first answer decides: one
// that is only slow to start reads the probe first, one that ignores unknown
// requests answers the handshake (2026-07-28 basic/transports/stdio, "Backward
// Compatibility"). Later answers are dropped like all that nobody waits for. A
// server that cannot be reached yet is not silent.
func (c *Conversation) probe(patience time.Duration) (verdict, error) {
	discovered := make(chan *jsonrpc.Message, 1)
	greeted := make(chan *jsonrpc.Message, 1)
	if err := c.inquire(c.discoverRequest(), func(m *jsonrpc.Message) { discovered <- m }); err != nil {
		return spent, nil
	}
	limit := time.NewTimer(c.opts.StartTimeout)
	defer limit.Stop()
	silence := time.NewTimer(patience)
	defer silence.Stop()
	asked, greets := false, false
	for {
		select {
		case m := <-discovered:
			if greets && unreached(m) {
				return spent, nil
			}
			return c.judge(m, asked)
		case m := <-greeted:
			if unreached(m) { // that says nothing, and the probe ends likewise
				continue
			}
			switch {
			case refusesHandshake(m): // it may only be slow to discover
				limit.Reset(c.crossLimit(m))
			case c.opts.Remote: // over HTTP, two answers may overtake each other
				limit.Reset(overtaken)
			default:
				return spent, nil
			}
			greets = true
		case <-c.ready: // it exited on the probe, as some servers do
			return spent, nil
		case <-silence.C:
			if wait := patience - c.silent(); wait > 0 {
				silence.Reset(wait)
				continue
			}
			asked = true
			if err := c.inquire(c.ownHello(), func(m *jsonrpc.Message) { greeted <- m }); err != nil {
				return spent, nil
			}
		case <-limit.C:
			if greets { // let the handshake tell
				return spent, nil
			}
			return undecided, fmt.Errorf("server %q answered neither server/discover nor initialize within %s (--start-timeout)",
				c.opts.Name, c.opts.StartTimeout)
		}
	}
}

// overtaken is how long the answer to server/discover may come after that to an
// initialize which was sent later.
const overtaken = 500 * time.Millisecond

// reachable is a link to a server that may have to be reached first. Reached
// tells when it was sent something for the first time; zero: not yet.
type reachable interface{ Reached() time.Time }

// silent is for how long a server that was probed has been silent, at most.
func (c *Conversation) silent() time.Duration {
	c.mu.Lock()
	far, ok := c.link.(reachable)
	c.mu.Unlock()
	if !ok {
		return math.MaxInt64
	}
	at := far.Reached()
	if at.IsZero() {
		return 0
	}
	return time.Since(at)
}

// judge reads the answer to server/discover. A recognized modern error is one
// of a server of the stateless era, too; only which revisions it speaks is
// still to be seen.
func (c *Conversation) judge(m *jsonrpc.Message, asked bool) (verdict, error) {
	fault := m.Raw(jsonrpc.Error)
	modern := fault != nil && era.RecognizedModernError(fault)
	offered := jsonrpc.Get(jsonrpc.Get(fault, "data"), "supported")
	unsupported := string(jsonrpc.Get(fault, "code")) == strconv.Itoa(era.CodeUnsupportedVersion)
	switch {
	case unreached(m):
		return undecided, fmt.Errorf("server %q could not be asked what it speaks: %.500s", c.opts.Name, jsonrpc.Get(fault, "message"))
	case m.Has(jsonrpc.Result) && speaksStateless(m.Raw(jsonrpc.Result)), modern && !unsupported,
		unsupported && offers(offered, served):
		c.mu.Lock()
		c.stateless, c.state = true, open
		c.judgeLocked()
		if c.told.result = m.Raw(jsonrpc.Result); c.told.result == nil {
			c.told.result = []byte("{}")
		}
		c.readyLocked()
		c.mu.Unlock()
		return stateless, nil
	case unsupported && !offers(offered, era.Version.Handshake):
		return undecided, fmt.Errorf("server %q speaks none of the revisions that are served here, but %.200s", c.opts.Name, offered)
	case asked || m.Has(jsonrpc.Result):
		return spent, nil
	}
	return handshake, nil
}

// speaksStateless reports whether a DiscoverResult offers a revision that is
// served here. A result type that is unknown makes it invalid (2026-07-28 basic,
// "ResultType").
func speaksStateless(result []byte) bool {
	kind := string(jsonrpc.Get(result, "resultType"))
	return (kind == "" || kind == `"complete"`) && offers(jsonrpc.Get(result, "supportedVersions"), served)
}

// Capabilities are what the server said that it can do, raw JSON, nil if it has
// said nothing.
func (c *Conversation) Capabilities() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return jsonrpc.Get(c.told.result, "capabilities")
}

func served(v era.Version) bool { return slices.Contains(era.StatelessVersions(), v) }

// offers reports whether a list of revisions, raw JSON, holds one that will do.
func offers(list []byte, do func(era.Version) bool) bool {
	var versions []era.Version
	return json.Unmarshal(list, &versions) == nil && slices.ContainsFunc(versions, do)
}

// errNotStateless says that a server was found to speak the handshake era only.
var errNotStateless = errors.New("conversation: the server speaks the handshake era only")

// Stateless returns the conversation that carries stateless requests, nil if
// the server does not speak that era. The first call finds out, which takes as
// long as the server takes to start, at the most; the verdict is kept.
func (p *Pool) Stateless(patience time.Duration) (*Conversation, error) {
	for {
		p.mu.Lock()
		switch {
		case p.legacyOnly:
			p.mu.Unlock()
			return nil, nil
		case p.modern != nil:
			c := p.modern
			p.mu.Unlock()
			return c, nil
		case p.finding != nil: // one probe serves all
			wait := p.finding
			p.mu.Unlock()
			<-wait
			continue
		}
		p.finding = make(chan struct{})
		p.mu.Unlock()
		c, err := p.find(patience)
		p.mu.Lock()
		switch {
		case errors.Is(err, errNotStateless):
			p.legacyOnly = true
			p.handshake.Store(true)
			err = nil
		case err == nil && p.live[c] == (time.Time{}): // it is over already
			err = ErrClosed
		case err == nil:
			p.modern = c
		}
		close(p.finding)
		p.finding = nil
		p.refillLocked()
		p.mu.Unlock()
		if p.opts.Shared && errors.Is(err, ErrFull) { // no process may be started to ask: as if it had said no
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// find probes one server.
func (p *Pool) find(patience time.Duration) (*Conversation, error) {
	c, err := p.fresh()
	if err != nil {
		return nil, err
	}
	v, err := c.probe(patience)
	switch v {
	case stateless:
		p.opts.Log.Info("the server speaks the stateless era", "server", p.opts.Name)
		return c, nil
	case handshake:
		p.opts.Log.Info("the server speaks the handshake era only", "server", p.opts.Name)
		p.mu.Lock()
		if p.live[c] != (time.Time{}) && !p.opts.Shared {
			p.spare = append(p.spare, c)
			p.changeLocked()
			c = nil
		}
		p.mu.Unlock()
	case spent:
		p.opts.Log.Info("the server speaks the handshake era only; the process that was probed is not used", "server", p.opts.Name)
	}
	if c != nil {
		c.Close(errNotStateless)
	}
	if err != nil {
		return nil, err
	}
	return nil, errNotStateless
}

// fresh returns a server that nothing was said to.
func (p *Pool) fresh() (*Conversation, error) {
	p.mu.Lock()
	if n := len(p.spare); n > 0 {
		c := p.spare[0]
		p.spare = p.spare[1:]
		p.mu.Unlock()
		return c, nil
	}
	p.mu.Unlock()
	return p.start(false)
}
