// Command mcpgo offers an MCP server written with mark3labs/mcp-go, in the same
// process, to clients of every transport.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

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

// newGateway lets all clients share one connection to the server. mcp-go's
// stdio server keeps its session in a variable of the package, so that a
// program can have one connection at a time and no more.
func newGateway(listen string) (*holdfast.Gateway, error) {
	mcpServer := newServer()
	s := holdfast.InProcess(func(ctx context.Context, r io.ReadCloser, w io.WriteCloser) error {
		return server.NewStdioServer(mcpServer).Listen(ctx, r, w)
	})
	s.Isolation = holdfast.Shared
	return holdfast.New(holdfast.Options{Server: s, Listen: listen})
}

func newServer() *server.MCPServer {
	s := server.NewMCPServer("mcpgo-example", "1.0.0", server.WithToolCapabilities(false))
	s.AddTool(mcp.NewTool("greet", mcp.WithDescription("Greets somebody."), mcp.WithString("name", mcp.Required())), greet)
	s.AddTool(mcp.NewTool("count", mcp.WithDescription("Counts, with progress."), mcp.WithNumber("to", mcp.Required())), count)
	return s
}

func greet(_ context.Context, q mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return mcp.NewToolResultText(fmt.Sprintf("Hello, %s!", q.GetString("name", "world"))), nil
}

// count takes a twentieth of a second for each step.
func count(ctx context.Context, q mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	to := q.GetInt("to", 3)
	for n := 1; n <= to; n++ {
		if q.Params.Meta != nil && q.Params.Meta.ProgressToken != nil {
			err := server.ServerFromContext(ctx).SendNotificationToClient(ctx, "notifications/progress", map[string]any{
				"progressToken": q.Params.Meta.ProgressToken, "progress": n, "total": to,
			})
			if err != nil {
				return nil, err
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return mcp.NewToolResultText(fmt.Sprintf("Counted to %d.", to)), nil
}
