// Command client drives an MCP server with the client of go-sdk: client http|sse|stdio URL-or-command…
// It is built twice: with the go-sdk of go.mod and with the older one of go16.mod.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/holdfast-mcp/holdfast/interop/go/plan"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type peer struct {
	session *mcp.ClientSession
}

func main() {
	p, err := plan.Load()
	if err != nil || len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: client http|sse|stdio URL-or-command…", err)
		os.Exit(2)
	}
	r := plan.NewReport("go-sdk", "github.com/modelcontextprotocol/go-sdk", os.Args[1])
	connect := func(ctx context.Context, a *plan.Answerer, notes *plan.Notes) (*plan.Connected, error) {
		return connect(ctx, r.Version, a, notes)
	}
	if err := r.Drive(context.Background(), p, connect); err != nil {
		r.Error = err.Error()
	}
	os.Exit(r.Print())
}

func connect(ctx context.Context, version string, a *plan.Answerer, notes *plan.Notes) (*plan.Connected, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "interop-go-sdk", Version: version}, &mcp.ClientOptions{
		ElicitationHandler: func(ctx context.Context, q *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			form, err := a.Form(ctx, q.Params.RequestedSchema)
			return &mcp.ElicitResult{Action: "accept", Content: form}, err
		},
		CreateMessageHandler: func(ctx context.Context, _ *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			said, err := a.Model(ctx)
			return &mcp.CreateMessageResult{Role: "assistant", Model: "interop", Content: &mcp.TextContent{Text: said}}, err
		},
		ProgressNotificationHandler: func(_ context.Context, q *mcp.ProgressNotificationClientRequest) {
			notes.Add(q.Params.ProgressToken, q.Params.Progress)
		},
	})
	session, err := client.Connect(ctx, transport(os.Args[1], os.Args[2:]), nil)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	// The error of Close is how the other side ended a process or a stream; the checks are done by then.
	c := &plan.Connected{Peer: peer{session}, Close: func() { _ = session.Close() }}
	if init := session.InitializeResult(); init != nil {
		c.Negotiated = init.ProtocolVersion
		if init.ServerInfo != nil {
			c.Server = init.ServerInfo.Name
		}
	}
	return c, nil
}

func transport(kind string, target []string) mcp.Transport {
	switch kind {
	case "http":
		return &mcp.StreamableClientTransport{Endpoint: target[0]}
	case "sse":
		return &mcp.SSEClientTransport{Endpoint: target[0]}
	default:
		cmd := exec.Command(target[0], target[1:]...)
		cmd.Stderr = os.Stderr
		return &mcp.CommandTransport{Command: cmd}
	}
}

// Call implements plan.Peer.
func (c peer) Call(ctx context.Context, t plan.Tool, token string) (string, error) {
	params := &mcp.CallToolParams{Name: t.Name, Arguments: t.Arguments}
	if token != "" {
		params.SetProgressToken(token)
	}
	result, err := c.session.CallTool(ctx, params)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, part := range result.Content {
		if t, ok := part.(*mcp.TextContent); ok {
			text.WriteString(t.Text)
		}
	}
	if result.IsError {
		return "", fmt.Errorf("tool error: %s", text.String())
	}
	return text.String(), nil
}

// List implements plan.Peer.
func (c peer) List(ctx context.Context, what string) ([]string, error) {
	var names []string
	switch what {
	case "tools":
		for t, err := range c.session.Tools(ctx, nil) {
			if err != nil {
				return nil, err
			}
			names = append(names, t.Name)
		}
	case "prompts":
		for p, err := range c.session.Prompts(ctx, nil) {
			if err != nil {
				return nil, err
			}
			names = append(names, p.Name)
		}
	default:
		for r, err := range c.session.Resources(ctx, nil) {
			if err != nil {
				return nil, err
			}
			names = append(names, r.URI)
		}
	}
	return names, nil
}

// Read implements plan.Peer.
func (c peer) Read(ctx context.Context, uri string) (string, error) {
	result, err := c.session.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
	if err != nil || len(result.Contents) == 0 {
		return "", err
	}
	return result.Contents[0].Text, nil
}
