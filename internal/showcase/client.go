package showcase

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

const (
	maxBegun = 3  // executions that the client has seen begin, then it gives up
	maxBlind = 50 // connections in a row without a word of the call, likewise
)

// token is the progress token of the call.
const token = "report"

// dialect is how the client talks in one era.
type dialect interface {
	// call sends the call with the given id, on a session of its own where the
	// era has sessions, and returns the stream that the answer comes on. An
	// error leaves open whether the call has arrived.
	call(ctx context.Context, id int) (*stream, error)
	// resume returns what comes after the event lastID on the stream of the
	// newest call.
	resume(ctx context.Context, lastID string) (*stream, error)
}

// refusal is an answer that no connection is to blame for.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

// client makes one call and does what it can to have it answered: it resumes
// where the server gave it an event id to resume from, and calls again where
// not. It knows nothing of who serves it.
type client struct {
	talk   dialect
	pause  time.Duration // before it comes back
	report func(Event)
	called func() // the first call has been accepted

	id     int    // of the newest call
	lastID string // of the newest event of its stream
	begun  map[int]bool
	blind  int // connections in a row on which nothing was heard of the call
	fresh  bool
	at     Event // execution and progress
}

func newClient(v era.Version, addr string, pause time.Duration, report func(Event)) *client {
	w := newWire(addr, v)
	c := &client{pause: pause, report: report, called: func() {}, begun: map[int]bool{}}
	switch {
	case v == era.V20241105:
		c.talk = &eventsDialect{wire: w}
	case v.Modern():
		c.talk = &statelessDialect{wire: w}
	default:
		c.talk = &sessionDialect{wire: w}
	}
	return c
}

// run returns the number of answers, one or none.
func (c *client) run(ctx context.Context) int {
	for {
		err := c.connection(ctx)
		if err == nil {
			return 1
		}
		if ctx.Err() != nil {
			return 0
		}
		if no, ok := errors.AsType[*refusal](err); ok {
			c.lastID = ""
			c.tell(Refused, no.text)
		} else {
			c.tell(Cut, "")
		}
		if c.lastID == "" && len(c.begun) >= maxBegun || c.blind >= maxBlind {
			c.tell(GaveUp, "")
			return 0
		}
		wait := time.NewTimer(c.pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return 0
		}
	}
}

func (c *client) tell(kind Kind, text string) {
	e := c.at
	e.Kind, e.Text = kind, text
	c.report(e)
}

// connection resumes or calls again, and reads until the answer. The error says
// why there is none.
func (c *client) connection(ctx context.Context) error {
	c.blind++
	var s *stream
	var err error
	if c.lastID != "" {
		if s, err = c.talk.resume(ctx, c.lastID); err != nil {
			return err
		}
		defer s.close()
		c.tell(Resumed, c.lastID)
	} else {
		c.id++
		c.fresh = true
		if s, err = c.talk.call(ctx, c.id); err != nil {
			return err
		}
		defer s.close()
		c.called()
		c.lastID = s.lastID()
	}
	defer context.AfterFunc(ctx, s.close)()
	for {
		message, err := s.next()
		if id := s.lastID(); id != "" {
			c.lastID = id
		}
		if err != nil {
			return err
		}
		if answered, err := c.take(message); answered || err != nil {
			return err
		}
	}
}

// take looks at one message and reports whether it is the answer. The error is
// an answer that is one.
func (c *client) take(message []byte) (answered bool, err error) {
	m, err := jsonrpc.Parse(message)
	switch {
	case err != nil:
		return false, fmt.Errorf("showcase: a message: %w", err)
	case m.Is("notifications/progress") && string(m.Text(jsonrpc.Token)) == token:
		c.progress(m.Raw(jsonrpc.Params))
	case m.Kind() == jsonrpc.Response && string(m.Raw(jsonrpc.ID)) == fmt.Sprint(c.id):
		if m.Has(jsonrpc.Error) {
			return false, &refusal{string(jsonrpc.Get(m.Raw(jsonrpc.Error), "message"))}
		}
		c.tell(Answered, firstLine(m.Raw(jsonrpc.Result)))
		return true, nil
	}
	return false, nil
}

func (c *client) progress(raw []byte) {
	var p struct {
		Progress int    `json:"progress"`
		Total    int    `json:"total"`
		Message  string `json:"message"`
	}
	var execution int
	if json.Unmarshal(raw, &p) != nil {
		return
	}
	if _, err := fmt.Sscanf(p.Message, "execution %d:", &execution); err != nil {
		return
	}
	c.blind = 0
	news := !c.begun[execution]
	if news {
		c.begun[execution] = true
		c.at = Event{Execution: execution}
	}
	// A call that joined one which was running may be told all of it again.
	c.at.Done, c.at.Total = max(c.at.Done, p.Progress), p.Total
	_, text, _ := strings.Cut(p.Message, ": ")
	switch {
	case news:
		c.tell(Began, text)
	case c.fresh:
		c.tell(Joined, text)
	default:
		c.tell(Progress, text)
	}
	c.fresh = false
}

// firstLine is the first line of a result's text.
func firstLine(result []byte) string {
	var r struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	if json.Unmarshal(result, &r) != nil || len(r.Content) == 0 {
		return string(bytes.TrimSpace(result))
	}
	line, _, _ := strings.Cut(r.Content[0].Text, "\n")
	return line
}
