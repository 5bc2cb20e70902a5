package holdfast_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os/signal"
	"strings"
	"syscall"

	"github.com/holdfast-mcp/holdfast"
)

// A gateway with a listener of its own, until it is told to stop. This is the
// program of the README.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	gw, err := holdfast.New(holdfast.Options{
		Server: holdfast.Command("npx", "-y", "@modelcontextprotocol/server-everything"),
		Listen: "127.0.0.1:8080",
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := gw.Run(ctx); err != nil { // returns nil after a signal, once calls in flight have ended
		log.Fatal(err)
	}
}

// greeter is an MCP server with next to nothing in it: one JSON message a line,
// each request answered at once. Real ones come from an SDK; see examples/.
func greeter(_ context.Context, r io.ReadCloser, w io.WriteCloser) error {
	const hello = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"greeter","version":"1"}}`
	in := json.NewDecoder(r)
	for {
		var request struct {
			ID     json.RawMessage
			Method string
		}
		if err := in.Decode(&request); errors.Is(err, io.EOF) {
			return nil // the session is over
		} else if err != nil {
			return err
		}
		result := map[string]string{
			"initialize": hello,
			"tools/call": `{"content":[{"type":"text","text":"Hello!"}]}`,
		}[request.Method]
		if result == "" { // a notification
			continue
		}
		if _, err := fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", request.ID, result); err != nil {
			return err
		}
	}
}

// A server in the same program, behind a gateway that is one handler among
// others.
func ExampleInProcess() {
	gw, err := holdfast.New(holdfast.Options{Server: holdfast.InProcess(greeter)})
	if err != nil {
		log.Fatal(err)
	}
	if err := gw.Start(context.Background()); err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", gw) // and /sse and /message, for clients of HTTP+SSE
	web := httptest.NewServer(mux)
	defer web.Close()
	defer gw.Stop(context.Background()) // before the listener goes: clients are told to come back

	session := ""
	for _, message := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"example","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":"two","method":"tools/call","params":{"name":"greet"}}`,
	} {
		post, _ := http.NewRequest(http.MethodPost, web.URL+"/mcp", strings.NewReader(message))
		post.Header.Set("Content-Type", "application/json")
		post.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			post.Header.Set("Mcp-Session-Id", session)
		}
		answer, err := web.Client().Do(post)
		if err != nil {
			log.Fatal(err)
		}
		if session == "" {
			session = answer.Header.Get("Mcp-Session-Id")
		}
		body, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if len(body) > 0 {
			fmt.Println(string(body))
		}
	}
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"greeter","version":"1"}}}
	// {"jsonrpc":"2.0","id":"two","result":{"content":[{"type":"text","text":"Hello!"}]}}
}
