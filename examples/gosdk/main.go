// Command gosdk offers an MCP server written with the official Go SDK, in the
// same process, to clients of every transport.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-mcp/holdfast"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	gw, err := newGateway("127.0.0.1:8080")
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("http://%s/mcp (Streamable HTTP), http://%[1]s/sse (HTTP+SSE)", gw.Addr())
	if err := gw.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// newGateway serves one mcp.Server to all clients: the SDK keeps a session for
// each connection, and the gateway makes a connection for each of its sessions.
func newGateway(listen string) (*holdfast.Gateway, error) {
	server := newServer()
	serve := func(ctx context.Context, r io.ReadCloser, w io.WriteCloser) error {
		return server.Run(ctx, &mcp.IOTransport{Reader: r, Writer: w})
	}
	return holdfast.New(holdfast.Options{Server: holdfast.InProcess(serve), Listen: listen})
}

type (
	none      struct{}
	greetArgs struct {
		Name string `json:"name" jsonschema:"who is greeted"`
	}
	countArgs struct {
		To int `json:"to" jsonschema:"where counting ends"`
	}
)

func newServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "gosdk-example", Version: "1.0.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "greet", Description: "Greets somebody."}, greet)
	mcp.AddTool(s, &mcp.Tool{Name: "count", Description: "Counts, with progress."}, count)
	mcp.AddTool(s, &mcp.Tool{Name: "ask", Description: "Asks the user for a name."}, ask)
	return s
}

func text(format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

func greet(_ context.Context, _ *mcp.CallToolRequest, args greetArgs) (*mcp.CallToolResult, any, error) {
	return text("Hello, %s!", args.Name), nil, nil
}

// count takes a twentieth of a second for each step, and ends early when the
// client cancels the call. A connection that breaks does not end it.
func count(ctx context.Context, q *mcp.CallToolRequest, args countArgs) (*mcp.CallToolResult, any, error) {
	for n := 1; n <= args.To; n++ {
		if token := q.Params.GetProgressToken(); token != nil {
			p := &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(n), Total: float64(args.To)}
			if err := q.Session.NotifyProgress(ctx, p); err != nil {
				return nil, nil, err
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
	return text("Counted to %d.", args.To), nil, nil
}

// ask puts a question to the user in the middle of the call: it returns the
// question, and is called again with the answer. This way works in every
// revision; the SDK turns it into a request of its own where that is needed.
func ask(_ context.Context, q *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, any, error) {
	answer, ok := q.Params.InputResponses["name"].(*mcp.ElicitResult)
	if !ok {
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"name": &mcp.ElicitParams{
			Message: "What is your name?",
			RequestedSchema: map[string]any{
				"type":       "object",
				"properties": map[string]any{"name": map[string]any{"type": "string"}},
			},
		}}}, nil, nil
	}
	name, ok := answer.Content["name"].(string)
	if answer.Action != "accept" || !ok {
		return nil, nil, errors.New("no name was given")
	}
	return text("Hello, %s!", name), nil, nil
}
