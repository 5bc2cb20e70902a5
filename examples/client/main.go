// Command client calls a tool of a remote server with the official Go SDK, over a
// connection that outlives the network and the server, and says what became of
// the call.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/gosdk"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: client URL TOOL ARGUMENTS")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	options := holdfast.Options{Logger: slog.Default()}
	if token := os.Getenv("TOKEN"); token != "" {
		options.Server.HeaderFunc = bearer(token)
	}
	if err := call(ctx, os.Stdout, &gosdk.Transport{URL: os.Args[1], Options: options}, os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
}

// bearer is asked before every request, so it could as well return what a file
// has at that moment.
func bearer(token string) func() http.Header {
	return func() http.Header { return http.Header{"Authorization": {"Bearer " + token}} }
}

// tries is how often a call is made that is not executed.
const tries = 3

// call calls a tool and writes the texts that it answers with.
func call(ctx context.Context, out io.Writer, transport mcp.Transport, tool, arguments string) error {
	client := mcp.NewClient(&mcp.Implementation{Name: "client-example", Version: "1.0.0"}, nil)
	session, err := client.Connect(ctx, transport, nil)
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }()
	params := &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)}
	params.SetProgressToken("call") // a stream that progress has begun can be resumed
	result, err := session.CallTool(ctx, params)
	for try := 1; try < tries && gosdk.Outcome(err) == gosdk.NotExecuted; try++ { // calling again does no harm
		select {
		case <-time.After(time.Duration(try) * 500 * time.Millisecond):
			result, err = session.CallTool(ctx, params)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	switch {
	case gosdk.Outcome(err) == gosdk.Unknown:
		return fmt.Errorf("it may have been executed, look before you call again: %w", err)
	case err != nil:
		return err
	}
	for _, part := range result.Content {
		if text, ok := part.(*mcp.TextContent); ok {
			if _, err := fmt.Fprintln(out, text.Text); err != nil {
				return err
			}
		}
	}
	if result.IsError {
		return fmt.Errorf("%s says that it failed", tool)
	}
	return nil
}
