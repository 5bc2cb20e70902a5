package plan

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Peer is a connected client.
type Peer interface {
	// Call returns the text of the tool's result. With a token it asks for progress.
	Call(ctx context.Context, tool Tool, token string) (string, error)
	// List returns the names of the server's "tools" or "prompts", or the URIs of its "resources".
	List(ctx context.Context, what string) ([]string, error)
	// Read returns the text of a resource.
	Read(ctx context.Context, uri string) (string, error)
}

// Run makes every check of p with peer, which hands the progress that it is
// told to notes; but not those that the kind of peer cannot make.
func (r *Report) Run(ctx context.Context, p *Plan, peer Peer, notes *Notes, cannot ...string) {
	step := func(name string, f func(context.Context) error) {
		if wanted := len(p.Only) == 0 || slices.Contains(p.Only, name); wanted && !slices.Contains(cannot, name) {
			r.step(ctx, name, f)
		}
	}
	call := func(t Tool, token string) func(context.Context) error {
		return func(ctx context.Context) error {
			text, err := peer.Call(ctx, t, token)
			if err == nil && !strings.Contains(text, t.Expect) {
				err = fmt.Errorf("got %.120q, want %.120q in it", text, t.Expect)
			}
			return err
		}
	}
	list := func(what, name string) func(context.Context) error {
		return func(ctx context.Context) error {
			names, err := peer.List(ctx, what)
			if err == nil && !slices.Contains(names, name) {
				err = fmt.Errorf("no %s among %d %s", name, len(names), what)
			}
			return err
		}
	}
	p.Echo.Expect = fmt.Sprintf("%s %s %d", p.Text, r.Transport, os.Getpid())
	p.Echo.Arguments = map[string]any{"message": p.Echo.Expect}
	step("list", list("tools", p.Echo.Name))
	step("call", call(p.Echo, ""))
	step("progress", func(ctx context.Context) error {
		notes.expect("progress-1")
		return errors.Join(call(p.Progress, "progress-1")(ctx), notes.await(ctx, p.Progress.Count))
	})
	step("elicitation", call(p.Elicit, ""))
	step("cancel", func(ctx context.Context) error {
		if err := cancelled(ctx, notes.expect("cancel-1"), call(p.Cancel, "cancel-1")); err != nil {
			return err
		}
		if p.Counter.Name == "" {
			return call(p.Echo, "")(ctx)
		}
		return eventually(ctx, call(p.Counter, ""))
	})
	step("resources", func(ctx context.Context) error {
		if err := list("resources", p.Resource)(ctx); err != nil {
			return err
		}
		text, err := peer.Read(ctx, p.Resource)
		if err == nil && text == "" {
			err = fmt.Errorf("%s is empty", p.Resource)
		}
		return err
	})
	step("prompts", list("prompts", p.Prompt))
}

// cancelled runs call, cancels it once started is closed and fails unless call then ends with an error.
func cancelled(ctx context.Context, started <-chan struct{}, call func(context.Context) error) error {
	callCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- call(callCtx) }() // ends with the call, at the latest with ctx
	select {
	case <-started:
	case err := <-done:
		return fmt.Errorf("the call ended before it was cancelled: %w", err)
	case <-ctx.Done():
		return errors.New("the call sent no progress")
	}
	cancel()
	select {
	case err := <-done:
		if err == nil {
			return errors.New("the cancelled call has a result")
		}
		return nil
	case <-ctx.Done():
		return errors.New("the cancelled call does not end")
	}
}

// eventually repeats f for ten seconds, until it succeeds.
func eventually(ctx context.Context, f func(context.Context) error) error {
	for deadline := time.Now().Add(10 * time.Second); ; {
		err := f(ctx)
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		pause(ctx)
	}
}
