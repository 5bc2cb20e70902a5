package showcase

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/lineserver"
)

// steps is how often the tool reports progress.
const steps = 20

const toolList = `{"tools":[{"name":"build_report","title":"Build a report",` +
	`"description":"Builds a report, and reports its progress meanwhile.","inputSchema":{"type":"object"}}]}`

// tool is an MCP server of the handshake era with the tool build_report. It may
// serve many connections at once.
type tool struct {
	step       time.Duration
	executions atomic.Int64 // that have begun
}

// serve is one connection. It returns at the end of r, or when ctx is done.
func (t *tool) serve(ctx context.Context, r io.Reader, w io.Writer) error {
	return lineserver.Serve(ctx, r, w, lineserver.Options{Receive: t.receive})
}

func (t *tool) receive(c *lineserver.Conn, m lineserver.Message) {
	if m.ID == nil {
		return
	}
	var result any = struct{}{}
	var err error
	switch m.Method {
	case "tools/call":
		c.Go(m, func(ctx context.Context) (any, error) { return t.call(ctx, c, m.Params) })
		return
	case "initialize":
		result = welcome(m.Params)
	case "tools/list":
		result = json.RawMessage(toolList)
	case "ping":
	default:
		err = &lineserver.Error{Code: lineserver.MethodNotFound, Message: "unknown method " + m.Method}
	}
	_ = c.Reply(m, result, err) // fails only with the connection
}

func welcome(raw json.RawMessage) any {
	var params struct {
		ProtocolVersion era.Version `json:"protocolVersion"`
	}
	_ = json.Unmarshal(raw, &params) // without a version, the newest is the answer
	return map[string]any{
		"protocolVersion": era.Negotiate(params.ProtocolVersion),
		"capabilities":    map[string]any{"tools": struct{}{}},
		"serverInfo":      map[string]string{"name": "build-report", "version": "1"},
	}
}

var phases = []string{"collecting sources", "reading them", "weighing them", "writing it up"}

// call is build_report. Its progress says which execution it is of, so that a
// caller can tell whether calling again began the work anew.
func (t *tool) call(ctx context.Context, c *lineserver.Conn, raw json.RawMessage) (any, error) {
	var params struct {
		Name string `json:"name"`
		Meta struct {
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	if json.Unmarshal(raw, &params) != nil || params.Name != "build_report" {
		return nil, &lineserver.Error{Code: lineserver.InvalidParams, Message: "the only tool is build_report"}
	}
	execution := t.executions.Add(1)
	tick := time.NewTicker(t.step)
	defer tick.Stop()
	for done := range steps + 1 {
		if done > 0 {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		if params.Meta.ProgressToken == nil {
			continue
		}
		err := c.Notify("notifications/progress", map[string]any{
			"progressToken": params.Meta.ProgressToken, "progress": done, "total": steps,
			"message": fmt.Sprintf("execution %d: %s", execution, phases[min(done*len(phases)/steps, len(phases)-1)]),
		})
		if err != nil {
			return nil, err
		}
	}
	text := fmt.Sprintf("The report, by execution %d.", execution)
	return map[string]any{"content": []any{map[string]string{"type": "text", "text": text}}}, nil
}
