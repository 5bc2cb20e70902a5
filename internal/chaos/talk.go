package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/sse"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
)

// talk is how a client talks in one era. It is used by one goroutine, but for
// pong.
type talk interface {
	// call sends the call under an id, on a connection with a fault, and returns
	// what it is answered with. An error leaves open whether the call has arrived.
	call(ctx context.Context, c *call, id string, f Fault) (*reply, error)
	// resume reads on where the stream broke.
	resume(ctx context.Context, f Fault) (*reply, error)
	// resumable reports whether there is a position to resume from.
	resumable() bool
	// cancel gives the call up.
	cancel(ctx context.Context, id string) error
	// pong answers a ping.
	pong(ctx context.Context, id string) error
	// leave forgets the session, without a word to the gateway.
	leave()
	// done is leave, in order.
	done(ctx context.Context)
}

// refused is an answer that no connection is to blame for.
type refused struct{ text string }

func (r *refused) Error() string { return r.text }

// reply is one response as it is read.
type reply struct {
	wire   *wired
	stream *testkit.Stream
	single []byte // instead of a stream
	close  func()
	seen   func(e sse.Event) // of a stream
}

var errOver = errors.New("chaos: the response is over")

// next returns the next message.
func (r *reply) next(ctx context.Context) (testkit.Message, error) {
	if r.stream == nil {
		if r.single == nil {
			return testkit.Message{}, errOver
		}
		one := r.single
		r.single = nil
		return testkit.Parse(one)
	}
	for {
		e, err := r.stream.Next(ctx)
		if err != nil {
			return testkit.Message{}, err
		}
		r.seen(e)
		if len(e.Data) > 0 && e.Type() == "message" {
			return testkit.Parse(e.Data)
		}
	}
}

// answered makes a reply of a response. With an error there is no more to it than
// the connection, if there was one.
func answered(resp *testkit.Response, err error, w **wired, done func(), seen func(sse.Event)) (*reply, error) {
	switch {
	case err != nil:
		done()
		return &reply{wire: *w}, err
	case resp.Stream != nil:
		return &reply{wire: *w, stream: resp.Stream, seen: seen, close: func() { resp.Stream.Close(); done() }}, nil
	case resp.Status != http.StatusOK:
		done()
		return nil, &refused{fmt.Sprintf("%d %.300s", resp.Status, resp.Body)}
	}
	return &reply{wire: *w, single: resp.Body, close: done}, nil
}

// party is what all dialects have in common: who they are, and the way to the
// gateway.
type party struct {
	link    *link
	server  Server
	version era.Version
	name    string
}

// open returns a client whose first connection has a fault. w is that one, once
// it is made.
func (p *party) open(url string, f Fault) (c *testkit.Client, w **wired) {
	w = new(*wired)
	var once sync.Once
	return testkit.NewClient("http://"+p.link.addr()+url, func(ctx context.Context, _, _ string) (net.Conn, error) {
		fault := Fault{}
		first := false
		once.Do(func() { fault, first = f, true })
		wire, conn, err := p.link.dial(ctx, fault)
		if first && err == nil {
			*w = wire
		}
		return conn, err
	}), w
}

// healthy returns a client whose connections have no faults.
func (p *party) healthy(url string) *testkit.Client {
	return testkit.NewClient("http://"+p.link.addr()+url, func(ctx context.Context, _, _ string) (net.Conn, error) {
		_, conn, err := p.link.dial(ctx, Fault{})
		return conn, err
	})
}

// request is the call, in the form of its era.
func (p *party) request(c *call, id string) (body []byte, header http.Header) {
	header = http.Header{}
	meta := ""
	if c.kind == Keyed && c.meta {
		meta = fmt.Sprintf(`,"dev.holdfast/idempotencyKey":%q`, "key "+c.nonce)
	} else if c.kind == Keyed {
		header.Set("Idempotency-Key", "key "+c.nonce)
	}
	if p.version.Modern() {
		header.Set(era.HeaderVersion, string(p.version))
		header.Set("Mcp-Method", "tools/call")
		header.Set("Mcp-Name", c.tool())
		meta += fmt.Sprintf(`,%q:%q,%q:{"name":%q,"version":"1.0.0"},%q:{}`, era.MetaVersion, p.version, era.MetaClient, p.name, era.MetaCapabilities)
	}
	params := fmt.Sprintf(`{"name":%q,"arguments":%s,"_meta":{"progressToken":%s%s}}`, c.tool(), c.arguments(), id, meta)
	return testkit.Request(id, "tools/call", params), header
}

func cancelled(id string) []byte {
	return testkit.Notification("notifications/cancelled", `{"requestId":`+id+`,"reason":"no longer wanted"}`)
}

// newTalk returns a client of the gateway in the call's era.
func newTalk(p party) talk {
	switch {
	case p.version == era.V20241105:
		return &eventsTalk{party: p}
	case p.version.Modern():
		return &statelessTalk{party: p}
	}
	return &sessionTalk{party: p}
}
