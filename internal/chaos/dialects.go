package chaos

import (
	"context"
	"fmt"
	"net/http"

	"github.com/holdfast-mcp/holdfast/internal/sse"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
)

// sessionTalk is Streamable HTTP of the handshake era.
type sessionTalk struct {
	party
	side *testkit.Client // the session, and all that is said beside the call
	last string          // event id
}

func (t *sessionTalk) seen(e sse.Event) {
	if e.HasID {
		t.last = e.ID
	}
}

// beside returns a client of the same session, with a connection of its own.
func (t *sessionTalk) beside(f Fault) (*testkit.Client, **wired) {
	c, w := t.open(t.server.Path, f)
	c.SessionID, c.Version = t.side.SessionID, t.side.Version
	return c, w
}

func (t *sessionTalk) call(ctx context.Context, c *call, id string, f Fault) (*reply, error) {
	kept := t.side != nil
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	client, w := t.beside(f)
	body, header := t.request(c, id)
	resp, err := client.Do(ctx, http.MethodPost, client.URL, body, header)
	if kept && err == nil && resp.Status == http.StatusNotFound { // it has ended, idle
		client.Close()
		t.leave()
		return t.call(ctx, c, id, f)
	}
	return answered(resp, err, w, client.Close, t.seen)
}

// begin opens a session, unless there is one.
func (t *sessionTalk) begin(ctx context.Context) error {
	t.last = ""
	if t.side != nil {
		return nil
	}
	side := t.healthy(t.server.Path)
	if _, err := side.InitializeAs(ctx, string(t.version), `{}`, t.name); err != nil {
		side.Close()
		return &refused{err.Error()}
	}
	t.side = side
	return nil
}

func (t *sessionTalk) resume(ctx context.Context, f Fault) (*reply, error) {
	client, w := t.beside(f)
	resp, err := client.Get(ctx, t.last)
	return answered(resp, err, w, client.Close, t.seen)
}

func (t *sessionTalk) resumable() bool { return t.last != "" }

func (t *sessionTalk) cancel(ctx context.Context, id string) error {
	resp, err := t.side.Post(ctx, cancelled(id))
	if err == nil && resp.Status != http.StatusAccepted && resp.Status != http.StatusNotFound { // the session may have ended, idle
		err = fmt.Errorf("%d %.300s", resp.Status, resp.Body)
	}
	return err
}

func (t *sessionTalk) pong(ctx context.Context, id string) error {
	return t.side.Deliver(ctx, testkit.Reply(id, `{}`))
}

func (t *sessionTalk) leave() {
	if t.side != nil {
		t.side.Close()
	}
	t.side, t.last = nil, ""
}

func (t *sessionTalk) done(ctx context.Context) {
	if t.side != nil {
		_, _ = t.side.Delete(ctx) // the session would end by itself, too
	}
	t.leave()
}

// eventsTalk is HTTP+SSE. Its session is one call's.
type eventsTalk struct {
	party
	side     *testkit.Client // posts
	endpoint string
	last     string // event id
	stream   *reply // of the session, until it breaks
}

func (t *eventsTalk) seen(e sse.Event) {
	if e.HasID {
		t.last = e.ID
	}
}

// open begins or resumes the stream.
func (t *eventsTalk) connect(ctx context.Context, f Fault) error {
	client, w := t.open(t.server.SSE, f)
	s, err := client.ConnectSSE(ctx, t.last)
	if err != nil {
		client.Close()
		return err
	}
	t.stream = &reply{wire: *w, stream: s.Stream, seen: t.seen, close: func() { s.Close(); client.Close() }}
	if t.endpoint != "" && t.endpoint != s.Endpoint {
		return &refused{"resumed to another session"}
	}
	t.endpoint = s.Endpoint
	return nil
}

func (t *eventsTalk) call(ctx context.Context, c *call, id string, f Fault) (*reply, error) {
	if t.stream == nil {
		if err := t.begin(ctx); err != nil {
			t.leave()
			return nil, &refused{err.Error()}
		}
	}
	body, header := t.request(c, id)
	poster := t.side
	if f.When == InRequest {
		poster, _ = t.open("", f)
		defer poster.Close()
	} else {
		t.stream.wire.arm(f)
	}
	resp, err := poster.Do(ctx, http.MethodPost, t.endpoint, body, header)
	if err == nil && resp.Status != http.StatusAccepted {
		err = &refused{fmt.Sprintf("%d %.300s", resp.Status, resp.Body)}
	}
	return t.stream, err
}

// begin opens a session.
func (t *eventsTalk) begin(ctx context.Context) error {
	if err := t.connect(ctx, Fault{}); err != nil {
		return err
	}
	t.side = t.healthy("")
	t.side.URL = t.endpoint
	if _, err := t.side.Post(ctx, testkit.Request(`"init"`, "initialize", testkit.InitializeParams(string(t.version), `{}`, t.name))); err != nil {
		return err
	}
	for {
		m, err := t.stream.next(ctx)
		if err != nil {
			return err
		}
		if m.IsAnswer(`"init"`) {
			break
		}
	}
	return t.side.Notify(ctx, "notifications/initialized", "")
}

func (t *eventsTalk) resume(ctx context.Context, f Fault) (*reply, error) {
	if t.stream != nil {
		t.stream.close()
		t.stream = nil
	}
	if err := t.connect(ctx, f); err != nil {
		return nil, err
	}
	return t.stream, nil
}

func (t *eventsTalk) resumable() bool { return t.last != "" }

func (t *eventsTalk) cancel(ctx context.Context, id string) error {
	return t.side.Deliver(ctx, cancelled(id))
}

func (t *eventsTalk) pong(ctx context.Context, id string) error {
	return t.side.Deliver(ctx, testkit.Reply(id, `{}`))
}

func (t *eventsTalk) leave() {
	if t.stream != nil {
		t.stream.close()
	}
	if t.side != nil {
		t.side.Close()
	}
	t.stream, t.side, t.endpoint, t.last = nil, nil, "", ""
}

func (t *eventsTalk) done(context.Context) { t.leave() }

// statelessTalk is 2026-07-28: nothing but calls.
type statelessTalk struct{ party }

func (t *statelessTalk) call(ctx context.Context, c *call, id string, f Fault) (*reply, error) {
	client, w := t.open(t.server.Path, f)
	body, header := t.request(c, id)
	resp, err := client.Do(ctx, http.MethodPost, client.URL, body, header)
	return answered(resp, err, w, client.Close, func(sse.Event) {})
}

func (t *statelessTalk) resume(context.Context, Fault) (*reply, error) { return nil, errOver }
func (t *statelessTalk) resumable() bool                               { return false }
func (t *statelessTalk) cancel(context.Context, string) error          { return nil } // closing is all
func (t *statelessTalk) pong(context.Context, string) error            { return nil } // nobody asks
func (t *statelessTalk) leave()                                        {}
func (t *statelessTalk) done(context.Context)                          {}
