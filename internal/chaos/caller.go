package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/calls"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
)

// record is what became of a call at its client.
type record struct {
	call    *call
	ids     []string       // that it was called under, the newest last
	answers map[string]int // good ones, by id
	errors  int            // in the place of answers
	settled bool           // there is a final outcome
	adopted bool           // an answer said so
	resumes int
	recalls int           // it was called again
	blind   int           // of them, after a connection went half-open whose client had never answered a ping
	passed  int           // of them, after a whole answer had passed the link
	gaveUp  time.Duration // after it began; 0: not
	faults  []Fault
	wrong   []string
	twin    int // which of two
	trace   []string
	began   time.Time
}

func (rec *record) say(format string, args ...any) {
	rec.trace = append(rec.trace, fmt.Sprintf("%7.3fs  ", time.Since(rec.began).Seconds())+fmt.Sprintf(format, args...))
}

func (rec *record) fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	rec.say("WRONG: %s", text)
	rec.wrong = append(rec.wrong, text)
}

func (rec *record) id() string { return rec.ids[len(rec.ids)-1] }

// maxTries is after how many connections a client gives up: more than its call
// has faults.
const maxTries = 12

// settleTime is how long a stream that does not end by itself is read on for
// what must not come.
const settleTime = 20 * time.Millisecond

// caller makes one call.
type caller struct {
	talk talk
	rec  *record
	pong []time.Time // in this session
	rest func() time.Duration
}

func newCaller(c *call, t talk, rest func() time.Duration) *caller {
	return &caller{talk: t, rec: &record{call: c, answers: map[string]int{}, began: time.Now()}, rest: rest}
}

// run makes the call and all it takes until there is an outcome.
func (c *caller) run(ctx context.Context) *record {
	rec := c.rec
	for try := range maxTries {
		f := Fault{}
		if try < len(rec.call.faults) {
			f = rec.call.faults[try]
		}
		rec.faults = append(rec.faults, f)
		r, err := c.begin(ctx, f)
		begun := err == nil
		if begun {
			err = c.read(ctx, r)
		}
		if err == nil || ctx.Err() != nil {
			return rec
		}
		rec.say("broken (%s): %v", f, err)
		if no, ok := errors.AsType[*refused](err); ok {
			rec.fail("refused: %s", no.text)
			return rec
		}
		if rec.call.kind == Cancelling { // even though its stream has gone
			pause(ctx, time.Until(rec.began.Add(rec.call.cancelAt)))
			if err := c.giveUp(ctx); err != nil {
				rec.fail("%v", err)
			}
			return rec
		}
		if r != nil && r.wire != nil && r.wire.answered() {
			rec.say("the whole answer had passed the link")
			rec.passed++
		}
		c.blind(r, f)
		c.comeBack(begun)
		if !pause(ctx, c.rest()) {
			return rec
		}
	}
	rec.fail("no outcome after %d connections", maxTries)
	return rec
}

// begin calls, or resumes.
func (c *caller) begin(ctx context.Context, f Fault) (*reply, error) {
	rec := c.rec
	if rec.call.kind == Resuming && len(rec.ids) > 0 && c.talk.resumable() {
		rec.resumes++
		rec.say("resume")
		return c.talk.resume(ctx, f)
	}
	if len(rec.ids) > 0 {
		rec.recalls++
	}
	rec.ids = append(rec.ids, fmt.Sprintf("%q", fmt.Sprintf("%s/%d/%d", rec.call.nonce, rec.twin, len(rec.ids)+1)))
	rec.say("call %s (%s)", rec.id(), f)
	return c.talk.call(ctx, rec.call, rec.id(), f)
}

// blind notes a half-open connection of a client that the gateway could not
// find out about.
func (c *caller) blind(r *reply, f Fault) {
	if !f.halfOpen() {
		return
	}
	if r != nil && r.wire != nil {
		fired, ok := r.wire.when()
		if !ok {
			return
		}
		if len(c.pong) > 0 && c.pong[0].Before(fired) {
			return
		}
	}
	c.rec.say("the gateway has no sign that this connection is dead")
	c.rec.blind++
}

// comeBack prepares the next connection. begun: the request had been taken.
func (c *caller) comeBack(begun bool) {
	_, events := c.talk.(*eventsTalk)
	stay := false
	switch c.rec.call.kind {
	case Resuming:
		stay = begun || !events
	case Keyed:
		stay = c.rec.call.stay && (!events || !begun)
	}
	if !stay {
		c.talk.leave()
		c.pong = nil
	}
}

// heard is what a reply says next.
type heard struct {
	m   testkit.Message
	err error
}

// listen reads the reply until it ends or quit is closed.
func listen(ctx context.Context, r *reply, quit <-chan struct{}, to chan<- heard) {
	for {
		m, err := r.next(ctx)
		select {
		case to <- heard{m, err}:
		case <-quit:
			return
		}
		if err != nil {
			return
		}
	}
}

// read reads a reply until there is an outcome (nil), or it breaks.
func (c *caller) read(ctx context.Context, r *reply) error {
	rec := c.rec
	messages, quit, stopped := make(chan heard), make(chan struct{}), make(chan struct{})
	go func() { defer close(stopped); listen(ctx, r, quit, messages) }() // ends with quit and the reply
	_, events := c.talk.(*eventsTalk)
	defer func() {
		close(quit)
		if rec.settled || !events {
			r.close()
			<-stopped
		}
	}()
	var limit, cancel <-chan time.Time
	if rec.call.kind == Cancelling {
		cancel = time.After(time.Until(rec.began.Add(rec.call.cancelAt)))
	}
	for {
		select {
		case h := <-messages:
			switch {
			case h.err != nil && rec.settled:
				return nil
			case h.err != nil:
				return h.err
			}
			if c.take(ctx, h.m); rec.settled && limit == nil && events {
				limit = time.After(settleTime)
			}
		case <-cancel:
			cancel = nil
			if rec.settled {
				continue
			}
			if err := c.giveUp(ctx); err != nil {
				return err
			}
			if _, modern := c.talk.(*statelessTalk); modern || rec.settled && !events {
				return nil
			}
			limit = time.After(settleTime)
			if !events {
				limit = time.After(longPatience) // an answer, or an error that says so
			}
		case <-limit:
			if !events {
				return &refused{"nothing came after the call was cancelled"}
			}
			rec.settled = true
			return nil
		}
	}
}

// giveUp cancels the call.
func (c *caller) giveUp(ctx context.Context) error {
	c.rec.say("cancel")
	defer func() { c.rec.gaveUp = time.Since(c.rec.began) }()
	if err := c.talk.cancel(ctx, c.rec.id()); err != nil {
		return &refused{err.Error()}
	}
	return nil
}

// codeCancelled answers a POST whose call was cancelled.
const codeCancelled = -32800

// take looks at one message.
func (c *caller) take(ctx context.Context, m testkit.Message) {
	rec := c.rec
	id := string(m.ID)
	switch {
	case m.Method == "ping":
		if err := c.talk.pong(ctx, id); err == nil {
			c.pong = append(c.pong, time.Now())
		}
	case m.Method == "notifications/progress":
		if !slices.ContainsFunc(rec.ids, func(id string) bool { return strings.Contains(string(m.Params), `"progressToken":`+id) }) ||
			!strings.Contains(string(m.Params), rec.call.nonce) {
			rec.fail("a stranger's progress: %s", m.Bytes)
		}
	case m.Method != "":
		rec.fail("a stranger: %s", m.Bytes)
	case !slices.Contains(rec.ids, id):
		rec.fail("an answer to somebody else: %.200s", m.Bytes)
	case m.Error != nil && m.Error.Code == codeCancelled && rec.call.kind == Cancelling:
		rec.say("cancelled, says the gateway")
		rec.settled = true
	case m.Error != nil && id != rec.id(): // of an earlier try
		rec.say("%s: %v", id, m.Error)
	case m.Error != nil:
		rec.errors++
		rec.settled = true
		rec.fail("an error: %s", m.Bytes)
	default:
		rec.answers[id]++
		rec.settled = true
		rec.adopted = rec.adopted || strings.Contains(string(m.Result), calls.MetaAdopted)
		rec.say("answered %s (adopted: %v)", id, rec.adopted)
		if !strings.HasPrefix(m.Text(), "answer "+rec.call.nonce+" ") || len(m.Text()) != len("answer ")+len(rec.call.nonce)+1+rec.call.pad {
			rec.fail("not its answer: %.200s", m.Bytes)
		}
	}
}
