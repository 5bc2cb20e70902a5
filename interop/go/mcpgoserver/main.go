// Command mcpgoserver is an MCP server of mark3labs/mcp-go with the same tools as those of go-sdk:
// mcpgoserver http|sse ADDRESS
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/holdfast-mcp/holdfast/interop/go/ledger"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

type tools struct {
	ledger ledger.Ledger
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: mcpgoserver http|sse ADDRESS")
		os.Exit(2)
	}
	s := server.NewMCPServer("interop-mcp-go", "1.0.0", server.WithElicitation())
	s.EnableSampling()
	t := &tools{ledger.Ledger(os.Getenv("INTEROP_LEDGER"))}
	tag := mcp.WithString("tag", mcp.Required())
	s.AddTool(mcp.NewTool("echo", mcp.WithString("message", mcp.Required())), echo)
	s.AddTool(mcp.NewTool("count", mcp.WithNumber("steps", mcp.Required())), count)
	s.AddTool(mcp.NewTool("wait", mcp.WithNumber("seconds", mcp.Required()), tag), t.wait)
	s.AddTool(mcp.NewTool("ask", tag), t.ask)
	s.AddTool(mcp.NewTool("ask_twice", tag), t.askTwice)
	s.AddTool(mcp.NewTool("ask_both", tag), t.askBoth)
	s.AddTool(mcp.NewTool("ask_model", tag), t.askModel)
	s.AddTool(mcp.NewTool("cancelled", tag), t.counted("cancelled"))
	s.AddTool(mcp.NewTool("executed", tag), t.counted("executed"))
	s.AddResource(mcp.NewResource("memo://greeting", "greeting"), greeting)
	s.AddPrompt(mcp.NewPrompt("greet"), greet)
	var h http.Handler = server.NewStreamableHTTPServer(s, server.WithStateful(true))
	if os.Args[1] == "sse" {
		h = server.NewSSEServer(s)
	}
	log.Fatal(http.ListenAndServe(os.Args[2], h))
}

func echo(_ context.Context, q mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return mcp.NewToolResultText(q.GetString("message", "")), nil
}

func progress(ctx context.Context, q mcp.CallToolRequest, now, total int) error {
	if q.Params.Meta == nil || q.Params.Meta.ProgressToken == nil {
		return nil
	}
	return server.ServerFromContext(ctx).SendNotificationToClient(ctx, "notifications/progress", map[string]any{
		"progressToken": q.Params.Meta.ProgressToken, "progress": now, "total": total, "message": fmt.Sprint("step ", now),
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

func count(ctx context.Context, q mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	steps := q.GetInt("steps", 0)
	for step := range steps {
		if err := errors.Join(progress(ctx, q, step+1, steps), pause(ctx, 20*time.Millisecond)); err != nil {
			return nil, err
		}
	}
	return mcp.NewToolResultText(fmt.Sprint("counted to ", steps)), nil
}

func (t *tools) wait(ctx context.Context, q mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if err := progress(ctx, q, 1, 2); err != nil {
		return nil, err
	}
	if err := pause(ctx, time.Duration(q.GetFloat("seconds", 0)*float64(time.Second))); err != nil {
		return nil, errors.Join(err, t.ledger.Add("cancelled", q.GetString("tag", "")))
	}
	return mcp.NewToolResultText("waited"), nil
}

func (t *tools) counted(what string) server.ToolHandlerFunc {
	return func(_ context.Context, q mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		n, err := t.ledger.Count(what, q.GetString("tag", ""))
		return mcp.NewToolResultText(n), err
	}
}

// executed is the result of a tool that has all its answers.
func (t *tools) executed(q mcp.CallToolRequest, said ...any) (*mcp.CallToolResult, error) {
	return mcp.NewToolResultText(fmt.Sprint(said...)), t.ledger.Add("executed", q.GetString("tag", ""))
}

// form is a question with one text field.
func form(field string) mcp.ElicitationParams {
	return mcp.ElicitationParams{Mode: mcp.ElicitationModeForm, Message: "Please tell: " + field, RequestedSchema: map[string]any{
		"type": "object", "properties": map[string]any{field: map[string]any{"type": "string"}}, "required": []string{field},
	}}
}

// answered returns a field of the form that the client filled in, or nil.
func answered(q mcp.CallToolRequest, question, field string) any {
	answer := server.ElicitationResponse(q.Params.InputResponses, question)
	if answer == nil || answer.Action != mcp.ElicitationResponseActionAccept {
		return nil
	}
	content, _ := answer.Content.(map[string]any)
	return content[field]
}

func (t *tools) ask(_ context.Context, q mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if name := answered(q, "who", "name"); name != nil {
		return t.executed(q, "accepted: ", name)
	}
	return server.NewInputRequestBuilder("").Elicit("who", form("name")).ToolResult(), nil
}

func (t *tools) askTwice(_ context.Context, q mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if name := answered(q, "who", "name"); name != nil {
		return server.NewInputRequestBuilder(fmt.Sprint("name:", name)).Elicit("what", form("color")).ToolResult(), nil
	}
	name, known := strings.CutPrefix(q.Params.RequestState, "name:")
	if color := answered(q, "what", "color"); known && color != nil {
		return t.executed(q, name+" likes ", color)
	}
	return server.NewInputRequestBuilder("").Elicit("who", form("name")).ToolResult(), nil
}

func (t *tools) askBoth(_ context.Context, q mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if name, color := answered(q, "who", "name"), answered(q, "what", "color"); name != nil && color != nil {
		return t.executed(q, name, " likes ", color)
	}
	return server.NewInputRequestBuilder("").Elicit("who", form("name")).Elicit("what", form("color")).ToolResult(), nil
}

func (t *tools) askModel(_ context.Context, q mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if said := server.SamplingResponse(q.Params.InputResponses, "model"); said != nil {
		return t.executed(q, mcp.GetTextFromContent(said.Content))
	}
	question := mcp.SamplingMessage{Role: mcp.RoleUser, Content: mcp.NewTextContent("Say something.")}
	return server.NewInputRequestBuilder("").Sample("model", mcp.CreateMessageParams{
		Messages: []mcp.SamplingMessage{question}, MaxTokens: 10,
	}).ToolResult(), nil
}

func greeting(_ context.Context, q mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
	return []mcp.ResourceContents{
		mcp.TextResourceContents{URI: q.Params.URI, MIMEType: "text/plain", Text: "hello from a resource"},
	}, nil
}

func greet(context.Context, mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	return &mcp.GetPromptResult{Messages: []mcp.PromptMessage{
		{Role: mcp.RoleUser, Content: mcp.NewTextContent("Greet the reader.")},
	}}, nil
}
