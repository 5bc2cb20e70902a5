// Command command puts an MCP server that is a program behind a path of a web
// server, beside whatever else that serves: command [program args…].
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-mcp/holdfast"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	command := []string{"npx", "-y", "@modelcontextprotocol/server-everything"}
	if len(os.Args) > 1 {
		command = os.Args[1:]
	}
	listener, err := net.Listen("tcp", "127.0.0.1:8080")
	if err != nil {
		log.Fatal(err)
	}
	if err := serve(ctx, listener, command); err != nil {
		log.Fatal(err)
	}
}

// newGateway has no listener of its own, and its paths below /tools/.
func newGateway(command []string) (*holdfast.Gateway, error) {
	return holdfast.New(holdfast.Options{
		Server:  holdfast.Command(command[0], command[1:]...),
		Path:    "/tools/mcp",
		SSEPath: "/tools/sse", // and so /tools/message
	})
}

// newMux is a web server's own, with the gateway in it.
func newMux(gw http.Handler) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("/tools/", gw)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "The tools are at /tools/mcp and /tools/sse.")
	})
	return mux
}

// serve runs the gateway and the web server until ctx is done, and stops them
// in the order in which they need each other: the gateway ends its streams and
// processes, then the connections go.
func serve(ctx context.Context, listener net.Listener, command []string) error {
	defer listener.Close()
	gw, err := newGateway(command)
	if err != nil {
		return err
	}
	if err := gw.Start(ctx); err != nil {
		return err
	}
	web := &http.Server{
		Handler:           newMux(gw),
		ReadHeaderTimeout: 10 * time.Second, // and no WriteTimeout: an event stream is one long response
	}
	failed := make(chan error, 1)
	var serving sync.WaitGroup
	serving.Go(func() { failed <- web.Serve(listener) }) // ends with Close
	select {
	case err = <-failed:
	case err = <-gw.Failed():
	case <-ctx.Done():
	}
	err = errors.Join(err, gw.Stop(context.Background()), web.Close())
	serving.Wait()
	return err
}
