package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"
)

// Questions is the plan of a cell in which tools ask: each of two clients makes
// each call at the same time as the other, and answers in its own way.
type Questions struct {
	Tag     string           // names this cell's calls to the server
	Answers []map[string]any // of each client: a value for each field, and what its model says
	Asking  []Asking
	Counter Tool // tells how often the call with a tag was executed
}

// Asking is a tool that asks.
type Asking struct {
	Check  string // what the outcome is called in the report
	Tool   string
	Expect string // what the result contains; {name} stands for the answer to name
}

// askedLimit is how long a question waits until every client has been asked.
const askedLimit = 10 * time.Second

// Answerer answers what one client is asked, but not before the other clients
// are being asked as well: whatever mixes them up has its chance. Safe for
// concurrent use.
type Answerer struct {
	answers map[string]any
	all     *gathering
}

// gathering is where the clients of one step wait for each other.
type gathering struct {
	clients int

	mu   sync.Mutex // guards the fields below
	here map[*Answerer]bool
	full chan struct{} // closed once all are here
}

// step makes all wait for each other anew.
func (g *gathering) step() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.here, g.full = map[*Answerer]bool{}, make(chan struct{})
}

func (g *gathering) arrive(ctx context.Context, a *Answerer) error {
	g.mu.Lock()
	if full := g.full; !g.here[a] {
		g.here[a] = true
		if len(g.here) == g.clients {
			close(full)
		}
	}
	full := g.full
	g.mu.Unlock()
	select {
	case <-full:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(askedLimit):
		return errors.New("only one client was asked")
	}
}

// Form returns the answers to the fields of a form's schema.
func (a *Answerer) Form(ctx context.Context, schema any) (map[string]any, error) {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	b, err := json.Marshal(schema)
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	if a.all != nil {
		if err := a.all.arrive(ctx, a); err != nil {
			return nil, err
		}
	}
	form := maps.Clone(a.answers)
	maps.DeleteFunc(form, func(name string, _ any) bool { return s.Properties[name] == nil })
	return form, nil
}

// Model returns what the client's model says.
func (a *Answerer) Model(ctx context.Context) (string, error) {
	if a.all != nil {
		if err := a.all.arrive(ctx, a); err != nil {
			return "", err
		}
	}
	return fmt.Sprint(a.answers["model"]), nil
}

// Connected is a client and the version that it negotiated.
type Connected struct {
	Peer       Peer
	Negotiated string
	Server     string
	Close      func()
}

// Drive connects as many clients as the plan wants, each with its own
// Answerer, and makes the checks, but not those that the kind of client cannot
// make.
func (r *Report) Drive(ctx context.Context, p *Plan, connect func(context.Context, *Answerer, *Notes) (*Connected, error),
	cannot ...string) error {
	if p.StepSeconds > 0 {
		r.limit = time.Duration(p.StepSeconds) * time.Second
	}
	notes := &Notes{}
	answers := []map[string]any{p.Elicit.Answer}
	var all *gathering
	if p.Questions != nil {
		answers = p.Questions.Answers
		all = &gathering{clients: len(answers)}
	}
	clients := make([]*Connected, 0, len(answers))
	for _, own := range answers {
		c, err := connect(ctx, &Answerer{own, all}, notes)
		if err != nil {
			return err
		}
		defer c.Close()
		clients = append(clients, c)
	}
	r.Negotiated, r.Server = clients[0].Negotiated, clients[0].Server
	if p.Questions == nil {
		r.Run(ctx, p, clients[0].Peer, notes, cannot...)
		return nil
	}
	for _, q := range p.Questions.Asking {
		r.step(ctx, q.Check, func(ctx context.Context) error {
			all.step()
			return ask(ctx, p.Questions, q, clients)
		})
	}
	return nil
}

// ask makes one call with each client at once.
func ask(ctx context.Context, p *Questions, q Asking, clients []*Connected) error {
	errs := make([]error, len(clients))
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() {
			tag := map[string]any{"tag": fmt.Sprint(p.Tag, "-", q.Check, "-", i)}
			want := q.Expect
			for field, answer := range p.Answers[i] {
				want = strings.ReplaceAll(want, "{"+field+"}", fmt.Sprint(answer))
			}
			if err := c.asked(ctx, p, Tool{Name: q.Tool, Arguments: tag, Expect: want}); err != nil {
				errs[i] = fmt.Errorf("client %d: %w", i, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// asked makes a call in which the tool asks, and has the server count its executions.
func (c *Connected) asked(ctx context.Context, p *Questions, t Tool) error {
	text, err := c.Peer.Call(ctx, t, "")
	if err != nil {
		return err
	}
	if !strings.Contains(text, t.Expect) {
		return fmt.Errorf("got %.120q, want %q in it", text, t.Expect)
	}
	text, err = c.Peer.Call(ctx, Tool{Name: p.Counter.Name, Arguments: t.Arguments}, "")
	if err == nil && text != p.Counter.Expect {
		err = fmt.Errorf("the server counts %.60q executions", text)
	}
	return err
}
