// Package plan says what a client does in one cell of the interop table and reports how each step went.
package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

// stepLimit ends a step that hangs early enough that its cell still reports it, unless the plan says when.
const stepLimit = 15 * time.Second

// Plan is what one server offers to the clients; see plans.mjs, which writes it.
type Plan struct {
	Text     string // the message to echo
	Echo     Tool
	Progress Tool // sends progress 1, 2 … Count
	Elicit   Tool // asks for a name, which Answer has
	Cancel   Tool // sends one progress notification and then waits
	Counter  Tool // tells that one call was cancelled; no name: the server cannot tell
	Resource string
	Prompt   string

	Only        []string   // the checks to make; none: all
	Questions   *Questions // instead of all the checks
	StepSeconds int        // for each check; 0: 15
}

// Tool is one tool call with what it has to give.
type Tool struct {
	Name      string         `json:"name"`
	Arguments map[string]any `json:"arguments"`
	Count     int            `json:"count"`
	Answer    map[string]any `json:"answer"`
	Expect    string         `json:"expect"` // what the text of the result contains
}

// Load reads the plan from the environment variable INTEROP_PLAN.
func Load() (*Plan, error) {
	var p Plan
	if err := json.Unmarshal([]byte(os.Getenv("INTEROP_PLAN")), &p); err != nil {
		return nil, fmt.Errorf("read INTEROP_PLAN: %w", err)
	}
	return &p, nil
}

// Report is the line that a client prints. Its methods are for one goroutine.
type Report struct {
	Client     string            `json:"client"`
	Version    string            `json:"version"`
	Transport  string            `json:"transport"`
	Negotiated string            `json:"negotiated"`
	Server     string            `json:"server"`
	Checks     map[string]string `json:"checks"`
	Error      string            `json:"error,omitempty"`

	limit time.Duration // of each step
}

// NewReport starts the report of the client made with the module at path.
func NewReport(client, path, transport string) *Report {
	r := &Report{Client: client, Transport: transport, Checks: map[string]string{}, limit: stepLimit}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				r.Version = strings.TrimPrefix(m.Version, "v")
			}
		}
	}
	return r
}

// step runs one check under its limit and keeps its outcome under name.
func (r *Report) step(ctx context.Context, name string, f func(context.Context) error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.limit, fmt.Errorf("no answer within %v", r.limit))
	defer cancel()
	err := f(ctx)
	switch {
	case err == nil:
		r.Checks[name] = "ok"
	case ctx.Err() != nil:
		r.Checks[name] = fmt.Sprintf("FAIL %v (%v)", context.Cause(ctx), err)
	default:
		r.Checks[name] = "FAIL " + err.Error()
	}
}

// Print writes the line to standard output and returns the exit code.
func (r *Report) Print() int {
	line, err := json.Marshal(r)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	fmt.Println(string(line))
	for _, v := range r.Checks {
		if v != "ok" {
			return 1
		}
	}
	if r.Error != "" {
		return 1
	}
	return 0
}

// Notes collects the progress notifications of one call at a time. Safe for concurrent use.
type Notes struct {
	mu    sync.Mutex // guards the fields below
	token string
	seen  []float64
	first chan struct{}
}

// expect forgets what was seen, and returns a channel that is closed by the first notification for token.
func (n *Notes) expect(token string) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.token, n.seen, n.first = token, nil, make(chan struct{})
	return n.first
}

// Add keeps one notification, if it belongs to the awaited call.
func (n *Notes) Add(token any, progress float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.first == nil || fmt.Sprint(token) != n.token {
		return
	}
	if n.seen == nil {
		close(n.first)
	}
	n.seen = append(n.seen, progress)
}

// await waits until count notifications came and fails unless they were 1, 2 … count.
// Clients hand notifications on beside the result, so the last ones may come after it.
func (n *Notes) await(ctx context.Context, count int) error {
	want := make([]float64, count)
	for i := range want {
		want[i] = float64(i + 1)
	}
	for deadline := time.Now().Add(2 * time.Second); ; {
		n.mu.Lock()
		seen := slices.Clone(n.seen)
		n.mu.Unlock()
		if slices.Equal(seen, want) {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("progress %v, want 1 to %d", seen, count)
		}
		pause(ctx)
	}
}

func pause(ctx context.Context) {
	select {
	case <-time.After(50 * time.Millisecond):
	case <-ctx.Done():
	}
}
