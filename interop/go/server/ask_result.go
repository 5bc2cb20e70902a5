//go:build !handshake

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// httpOptions makes a call end with its stream, which is how a client of the stateless era cancels.
func httpOptions() *mcp.StreamableHTTPOptions {
	return &mcp.StreamableHTTPOptions{PropagateRequestCancellation: true}
}

// asking is the result that asks. A tool that asked is called again, with the
// answers and the state, and knows nothing else of the first time.
func asking(state string, questions mcp.InputRequestMap) (*mcp.CallToolResult, any, error) {
	return &mcp.CallToolResult{InputRequests: questions, RequestState: state}, nil, nil
}

// answered returns a field of the form that the client filled in, or nil.
func answered(q *mcp.CallToolRequest, question, field string) any {
	if form, ok := q.Params.InputResponses[question].(*mcp.ElicitResult); ok && form.Action == "accept" {
		return form.Content[field]
	}
	return nil
}

func (t *tools) ask(_ context.Context, q *mcp.CallToolRequest, args tagArgs) (*mcp.CallToolResult, any, error) {
	name := answered(q, "who", "name")
	if name == nil {
		return asking("", mcp.InputRequestMap{"who": form("name")})
	}
	return text(fmt.Sprint("accepted: ", name)), nil, t.ledger.Add("executed", args.Tag)
}

func (t *tools) askTwice(_ context.Context, q *mcp.CallToolRequest, args tagArgs) (*mcp.CallToolResult, any, error) {
	if name := answered(q, "who", "name"); name != nil {
		return asking(fmt.Sprint("name:", name), mcp.InputRequestMap{"what": form("color")})
	}
	name, ok := strings.CutPrefix(q.Params.RequestState, "name:")
	color := answered(q, "what", "color")
	if !ok || color == nil {
		return asking("", mcp.InputRequestMap{"who": form("name")})
	}
	return likes(name, color), nil, t.ledger.Add("executed", args.Tag)
}

func (t *tools) askBoth(_ context.Context, q *mcp.CallToolRequest, args tagArgs) (*mcp.CallToolResult, any, error) {
	name, color := answered(q, "who", "name"), answered(q, "what", "color")
	if name == nil || color == nil {
		return asking("", mcp.InputRequestMap{"who": form("name"), "what": form("color")})
	}
	return likes(name, color), nil, t.ledger.Add("executed", args.Tag)
}

func (t *tools) askModel(_ context.Context, q *mcp.CallToolRequest, args tagArgs) (*mcp.CallToolResult, any, error) {
	said, ok := q.Params.InputResponses["model"].(*mcp.CreateMessageWithToolsResult)
	if !ok {
		return asking("", mcp.InputRequestMap{"model": &mcp.CreateMessageParams{
			MaxTokens: 10, Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: "Say something."}}},
		}})
	}
	return &mcp.CallToolResult{Content: said.Content}, nil, t.ledger.Add("executed", args.Tag)
}
