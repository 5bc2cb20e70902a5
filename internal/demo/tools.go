package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/lineserver"
)

const (
	defaultSeconds = 20
	maxSeconds     = 3600
)

func (s *server) callTool(ctx context.Context, c *lineserver.Conn, raw json.RawMessage) (any, error) {
	var params struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      struct {
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	if err := decode(raw, &params); err != nil {
		return nil, err
	}
	switch params.Name {
	case "hello_world":
		return helloWorld(params.Arguments)
	case "build_report":
		return buildReport(ctx, c, params.Arguments, params.Meta.ProgressToken)
	case "ask_name":
		return s.askName(ctx, c)
	}
	return nil, invalid("unknown tool " + params.Name)
}

func toolText(s string) any { return map[string]any{"content": []any{text(s)}} }

// toolError is a failure that the model behind the client gets to see.
func toolError(format string, args ...any) any {
	return map[string]any{"content": []any{text(fmt.Sprintf(format, args...))}, "isError": true}
}

func helloWorld(raw json.RawMessage) (any, error) {
	var args struct {
		Name string `json:"name"`
	}
	if err := decode(raw, &args); err != nil {
		return toolError("hello_world: name must be a string"), nil
	}
	return toolText("Hello, " + cmp.Or(args.Name, "world") + "!"), nil
}

// buildReport works for the seconds asked for. It reports progress each second
// to a caller that gave a token, and only to such a one.
func buildReport(ctx context.Context, c *lineserver.Conn, raw, token json.RawMessage) (any, error) {
	args := struct {
		Seconds int    `json:"seconds"`
		Topic   string `json:"topic"`
	}{defaultSeconds, "keeping connections"}
	if err := decode(raw, &args); err != nil {
		return toolError("build_report: seconds must be a whole number, topic a string"), nil
	}
	if args.Seconds < 1 || args.Seconds > maxSeconds {
		return toolError("build_report: seconds must be 1 to %d", maxSeconds), nil
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for done := 1; done <= args.Seconds; done++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if token == nil {
			continue
		}
		err := c.Notify("notifications/progress", struct {
			ProgressToken json.RawMessage `json:"progressToken"`
			Progress      int             `json:"progress"`
			Total         int             `json:"total"`
			Message       string          `json:"message"`
		}{token, done, args.Seconds, phase(done, args.Seconds)})
		if err != nil {
			return nil, err
		}
	}
	return toolText(report(args.Topic, args.Seconds)), nil
}

var phases = []string{"collecting sources", "reading them", "weighing them", "writing it up"}

func phase(done, total int) string { return phases[(done-1)*len(phases)/total] }

func report(topic string, seconds int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Report on %s\n\n", topic)
	for i, p := range phases {
		fmt.Fprintf(&b, "%d. %s\n", i+1, p)
	}
	fmt.Fprintf(&b, "\nThis took %d s. That you read it means that the call outlived every "+
		"connection that was cut in the meantime.\n", seconds)
	return b.String()
}

// askName is a tool that cannot go on without an answer from the user.
func (s *server) askName(ctx context.Context, c *lineserver.Conn) (any, error) {
	if !s.canAsk.Load() {
		return toolError("ask_name needs a client that can ask its user: " +
			"this one did not declare the capability elicitation with forms."), nil
	}
	raw, err := c.Call(ctx, "elicitation/create", json.RawMessage(askNameParams))
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return toolError("ask_name: the question failed: %v", err), nil
	}
	var answer struct {
		Action  string `json:"action"`
		Content struct {
			Name string `json:"name"`
		} `json:"content"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return toolError("ask_name: the answer was not understood: %v", err), nil
	}
	switch {
	case answer.Action == "decline":
		return toolText("You would rather not say. Hello all the same!"), nil
	case answer.Action == "cancel":
		return toolText("The question was dismissed."), nil
	case answer.Action != "accept" || answer.Content.Name == "":
		return toolError("ask_name: the answer holds no name: %s", raw), nil
	}
	return toolText("Hello, " + answer.Content.Name + "!"), nil
}
