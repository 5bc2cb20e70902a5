// Command server is an MCP server of go-sdk with one tool for each thing that the interop clients check:
//
//	server                              on stdio
//	server http|stateless|sse ADDRESS   on the network; stateless keeps no sessions and answers with plain JSON
//
// It is built twice, and asks its questions in the way of the newest era that the go-sdk at hand knows:
// with the one of go.mod by results, with the older one of go16.mod (-tags handshake) by requests.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/holdfast-mcp/holdfast/interop/go/ledger"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type (
	echoArgs struct {
		Message string `json:"message"`
	}
	countArgs struct {
		Steps int `json:"steps"`
	}
	waitArgs struct {
		Seconds float64 `json:"seconds"`
		Tag     string  `json:"tag"`
	}
	tagArgs struct {
		Tag string `json:"tag"`
	}
)

// tools are those that write to, or tell of, the ledger.
type tools struct {
	ledger ledger.Ledger
}

func main() {
	s := mcp.NewServer(&mcp.Implementation{Name: "interop-go-sdk", Version: "1.0.0"}, nil)
	t := &tools{ledger.Ledger(os.Getenv("INTEROP_LEDGER"))}
	mcp.AddTool(s, &mcp.Tool{Name: "echo", Description: "Returns the message."}, echo)
	mcp.AddTool(s, &mcp.Tool{Name: "count", Description: "Sends one progress notification a step."}, count)
	mcp.AddTool(s, &mcp.Tool{Name: "ask", Description: "Asks the client's user for a name."}, t.ask)
	mcp.AddTool(s, &mcp.Tool{Name: "ask_twice", Description: "Asks for a name, then for a color."}, t.askTwice)
	mcp.AddTool(s, &mcp.Tool{Name: "ask_both", Description: "Asks for a name and a color at once."}, t.askBoth)
	mcp.AddTool(s, &mcp.Tool{Name: "ask_model", Description: "Asks the client's model."}, t.askModel)
	mcp.AddTool(s, &mcp.Tool{Name: "wait", Description: "Says that it runs, then waits."}, t.wait)
	mcp.AddTool(s, &mcp.Tool{Name: "cancelled", Description: "Returns how many calls of wait with the tag were cancelled."}, t.cancelled)
	mcp.AddTool(s, &mcp.Tool{Name: "executed", Description: "Returns how often a call with the tag was executed."}, t.executed)
	s.AddResource(&mcp.Resource{URI: "memo://greeting", Name: "greeting"}, greeting)
	s.AddPrompt(&mcp.Prompt{Name: "greet"}, greet)
	if err := serve(s, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

// serve is the server on stdio, or where args say.
func serve(s *mcp.Server, args []string) error {
	if len(args) == 0 {
		return s.Run(context.Background(), &mcp.StdioTransport{})
	}
	if len(args) != 2 {
		return errors.New("usage: server [http|stateless|sse ADDRESS]")
	}
	one := func(*http.Request) *mcp.Server { return s }
	o := httpOptions()
	o.Stateless, o.JSONResponse = args[0] == "stateless", args[0] == "stateless"
	var h http.Handler = mcp.NewStreamableHTTPHandler(one, o)
	if args[0] == "sse" {
		h = mcp.NewSSEHandler(one, nil)
	}
	return http.ListenAndServe(args[1], h)
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

func echo(_ context.Context, _ *mcp.CallToolRequest, args echoArgs) (*mcp.CallToolResult, any, error) {
	return text(args.Message), nil, nil
}

func progress(ctx context.Context, q *mcp.CallToolRequest, now, total int) error {
	token := q.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	return q.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
		ProgressToken: token, Progress: float64(now), Total: float64(total), Message: fmt.Sprint("step ", now),
	})
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func count(ctx context.Context, q *mcp.CallToolRequest, args countArgs) (*mcp.CallToolResult, any, error) {
	for step := range args.Steps {
		if err := progress(ctx, q, step+1, args.Steps); err != nil {
			return nil, nil, err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return nil, nil, err
		}
	}
	return text(fmt.Sprint("counted to ", args.Steps)), nil, nil
}

// form is a question with one text field for each name.
func form(fields ...string) *mcp.ElicitParams {
	properties := map[string]any{}
	for _, name := range fields {
		properties[name] = map[string]any{"type": "string"}
	}
	return &mcp.ElicitParams{
		Message:         fmt.Sprint("Please tell: ", fields),
		RequestedSchema: map[string]any{"type": "object", "properties": properties, "required": fields},
	}
}

func likes(name, color any) *mcp.CallToolResult { return text(fmt.Sprint(name, " likes ", color)) }

func (t *tools) wait(ctx context.Context, q *mcp.CallToolRequest, args waitArgs) (*mcp.CallToolResult, any, error) {
	if err := progress(ctx, q, 1, 2); err != nil {
		return nil, nil, err
	}
	if err := pause(ctx, time.Duration(args.Seconds*float64(time.Second))); err != nil {
		return nil, nil, errors.Join(err, t.ledger.Add("cancelled", args.Tag))
	}
	return text("waited"), nil, nil
}

func (t *tools) cancelled(_ context.Context, _ *mcp.CallToolRequest, args tagArgs) (*mcp.CallToolResult, any, error) {
	n, err := t.ledger.Count("cancelled", args.Tag)
	return text(n), nil, err
}

func (t *tools) executed(_ context.Context, _ *mcp.CallToolRequest, args tagArgs) (*mcp.CallToolResult, any, error) {
	n, err := t.ledger.Count("executed", args.Tag)
	return text(n), nil, err
}

func greeting(_ context.Context, q *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{
		{URI: q.Params.URI, MIMEType: "text/plain", Text: "hello from a resource"},
	}}, nil
}

func greet(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{
		{Role: "user", Content: &mcp.TextContent{Text: "Greet the reader."}},
	}}, nil
}
