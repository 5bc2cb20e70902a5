// Command mcpgo drives an MCP server with the client of mark3labs/mcp-go: mcpgo http|sse|stdio URL-or-command…
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/holdfast-mcp/holdfast/interop/go/plan"
	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

type peer struct {
	answers *plan.Answerer
	notes   *plan.Notes
	client  *client.Client
}

// coldStart is how long the client waits for the answer that tells the era,
// also of a server that is only started for it.
const coldStart = 30 * time.Second

func main() {
	p, err := plan.Load()
	if err != nil || len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: mcpgo http|sse|stdio URL-or-command…", err)
		os.Exit(2)
	}
	r := plan.NewReport("mcp-go", "github.com/mark3labs/mcp-go", os.Args[1])
	connect := func(ctx context.Context, a *plan.Answerer, notes *plan.Notes) (*plan.Connected, error) {
		return connect(ctx, r.Version, a, notes)
	}
	var cannot []string
	if r.Transport == "sse" { // over HTTP it ends a stream to cancel, and here is none of the call's own
		cannot = append(cannot, "cancel")
	}
	if err := r.Drive(context.Background(), p, connect, cannot...); err != nil {
		r.Error = err.Error()
	}
	os.Exit(r.Print())
}

func connect(ctx context.Context, version string, a *plan.Answerer, notes *plan.Notes) (*plan.Connected, error) {
	t, err := newTransport(os.Args[1], os.Args[2:])
	if err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	c := &peer{answers: a, notes: notes}
	c.client = client.NewClient(t, client.WithElicitationHandler(c), client.WithSamplingHandler(c), client.WithDiscoverTimeout(coldStart))
	c.client.OnNotification(c.notified)
	if err := c.client.Start(ctx); err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	q := mcp.InitializeRequest{}
	q.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
	q.Params.ClientInfo = mcp.Implementation{Name: "interop-mcp-go", Version: version}
	init, err := c.client.Initialize(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	// The error of Close is how the other side ended a process or a stream; the checks are done by then.
	end := func() { _ = c.client.Close() }
	return &plan.Connected{Peer: c, Negotiated: init.ProtocolVersion, Server: init.ServerInfo.Name, Close: end}, nil
}

func newTransport(kind string, target []string) (transport.Interface, error) {
	switch kind {
	case "http":
		return transport.NewStreamableHTTP(target[0])
	case "sse":
		return transport.NewSSE(target[0])
	default:
		toStderr := transport.WithCommandStderrWriter(os.Stderr)
		return transport.NewStdioWithOptions(target[0], nil, target[1:], toStderr), nil
	}
}

// Elicit answers what the server asks the user.
func (c *peer) Elicit(ctx context.Context, q mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	form, err := c.answers.Form(ctx, q.Params.RequestedSchema)
	return &mcp.ElicitationResult{ElicitationResponse: mcp.ElicitationResponse{
		Action: mcp.ElicitationResponseActionAccept, Content: form,
	}}, err
}

// CreateMessage answers what the server asks the model.
func (c *peer) CreateMessage(ctx context.Context, _ mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
	said, err := c.answers.Model(ctx)
	message := mcp.SamplingMessage{Role: mcp.RoleAssistant, Content: mcp.NewTextContent(said)}
	return &mcp.CreateMessageResult{SamplingMessage: message, Model: "interop"}, err
}

func (c *peer) notified(n mcp.JSONRPCNotification) {
	fields := n.Params.AdditionalFields
	if progress, ok := fields["progress"].(float64); ok && n.Method == "notifications/progress" {
		c.notes.Add(fields["progressToken"], progress)
	}
}

// Call implements plan.Peer.
func (c *peer) Call(ctx context.Context, t plan.Tool, token string) (string, error) {
	q := mcp.CallToolRequest{}
	q.Params.Name, q.Params.Arguments = t.Name, t.Arguments
	if token != "" {
		q.Params.Meta = &mcp.Meta{ProgressToken: token}
	}
	result, err := c.client.CallTool(ctx, q)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, part := range result.Content {
		if t, ok := part.(mcp.TextContent); ok {
			text.WriteString(t.Text)
		}
	}
	if result.IsError {
		return "", fmt.Errorf("tool error: %s", text.String())
	}
	return text.String(), nil
}

// List implements plan.Peer.
func (c *peer) List(ctx context.Context, what string) ([]string, error) {
	var names []string
	switch what {
	case "tools":
		result, err := c.client.ListTools(ctx, mcp.ListToolsRequest{})
		if err != nil {
			return nil, err
		}
		for _, t := range result.Tools {
			names = append(names, t.Name)
		}
	case "prompts":
		result, err := c.client.ListPrompts(ctx, mcp.ListPromptsRequest{})
		if err != nil {
			return nil, err
		}
		for _, p := range result.Prompts {
			names = append(names, p.Name)
		}
	default:
		result, err := c.client.ListResources(ctx, mcp.ListResourcesRequest{})
		if err != nil {
			return nil, err
		}
		for _, r := range result.Resources {
			names = append(names, r.URI)
		}
	}
	return names, nil
}

// Read implements plan.Peer.
func (c *peer) Read(ctx context.Context, uri string) (string, error) {
	q := mcp.ReadResourceRequest{}
	q.Params.URI = uri
	result, err := c.client.ReadResource(ctx, q)
	if err != nil || len(result.Contents) == 0 {
		return "", err
	}
	text, _ := mcp.AsTextResourceContents(result.Contents[0])
	if text == nil {
		return "", nil
	}
	return text.Text, nil
}
