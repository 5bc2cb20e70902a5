//go:build handshake

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func httpOptions() *mcp.StreamableHTTPOptions { return &mcp.StreamableHTTPOptions{} }

// elicit returns the field that the client's user filled in.
func elicit(ctx context.Context, q *mcp.CallToolRequest, field string) (any, error) {
	answer, err := q.Session.Elicit(ctx, form(field))
	if err != nil {
		return nil, err
	}
	if answer.Action != "accept" {
		return nil, fmt.Errorf("the user does not accept: %s", answer.Action)
	}
	return answer.Content[field], nil
}

func (t *tools) ask(ctx context.Context, q *mcp.CallToolRequest, args tagArgs) (*mcp.CallToolResult, any, error) {
	if err := t.ledger.Add("executed", args.Tag); err != nil {
		return nil, nil, err
	}
	name, err := elicit(ctx, q, "name")
	return text(fmt.Sprint("accepted: ", name)), nil, err
}

func (t *tools) askTwice(ctx context.Context, q *mcp.CallToolRequest, args tagArgs) (*mcp.CallToolResult, any, error) {
	if err := t.ledger.Add("executed", args.Tag); err != nil {
		return nil, nil, err
	}
	name, err := elicit(ctx, q, "name")
	if err != nil {
		return nil, nil, err
	}
	color, err := elicit(ctx, q, "color")
	return likes(name, color), nil, err
}

func (t *tools) askBoth(ctx context.Context, q *mcp.CallToolRequest, args tagArgs) (*mcp.CallToolResult, any, error) {
	if err := t.ledger.Add("executed", args.Tag); err != nil {
		return nil, nil, err
	}
	var wg sync.WaitGroup
	var name, color any
	var errName, errColor error
	wg.Go(func() { name, errName = elicit(ctx, q, "name") })
	wg.Go(func() { color, errColor = elicit(ctx, q, "color") })
	wg.Wait()
	return likes(name, color), nil, errors.Join(errName, errColor)
}

func (t *tools) askModel(ctx context.Context, q *mcp.CallToolRequest, args tagArgs) (*mcp.CallToolResult, any, error) {
	if err := t.ledger.Add("executed", args.Tag); err != nil {
		return nil, nil, err
	}
	said, err := q.Session.CreateMessage(ctx, &mcp.CreateMessageParams{
		MaxTokens: 10, Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: "Say something."}}},
	})
	if err != nil {
		return nil, nil, err
	}
	return &mcp.CallToolResult{Content: []mcp.Content{said.Content}}, nil, nil
}
