package main

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-mcp/holdfast/examples/internal/leak"
)

// asServer, as the first argument, makes this test's binary the MCP server.
const asServer = "an-mcp-server-on-stdio"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asServer {
		s := mcp.NewServer(&mcp.Implementation{Name: "child", Version: "1.0.0"}, nil)
		mcp.AddTool(s, &mcp.Tool{Name: "pid"}, pid)
		if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			log.Fatal(err)
		}
		return
	}
	os.Exit(m.Run())
}

type (
	none   struct{}
	number struct {
		PID int `json:"pid"`
	}
)

func pid(ctx context.Context, q *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, number, error) {
	if token := q.Params.GetProgressToken(); token != nil {
		p := &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1, Total: 1}
		if err := q.Session.NotifyProgress(ctx, p); err != nil {
			return nil, number{}, err
		}
	}
	return nil, number{os.Getpid()}, nil
}

// command runs this test's binary as the server.
func command(t *testing.T) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{self, asServer}
}

func TestInAMux(t *testing.T) {
	leak.Check(t)
	gw, err := newGateway(command(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := gw.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(newMux(gw))
	defer web.Close()
	defer func() {
		if err := gw.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if page := get(t, web.URL+"/"); page != "The tools are at /tools/mcp and /tools/sse.\n" {
		t.Errorf("the web server's own page is %q", page)
	}
	pool := &http.Transport{}
	defer pool.CloseIdleConnections()
	streamable := &mcp.StreamableClientTransport{Endpoint: web.URL + "/tools/mcp", HTTPClient: &http.Client{Transport: pool}}
	sse := &mcp.SSEClientTransport{Endpoint: web.URL + "/tools/sse", HTTPClient: &http.Client{Transport: pool}}
	first, second := use(t, streamable, "2025-11-25"), use(t, sse, "2024-11-05")
	if first == second {
		t.Errorf("both sessions were served by process %v", first)
	}
	use(t, streamable, "") // as client and server like it best
	use(t, sse, "")
}

// use connects, lists the tools and calls one, and returns the process id of
// the server.
func use(t *testing.T, transport mcp.Transport, version string) any {
	t.Helper()
	heard := make(chan any, 8)
	client := mcp.NewClient(&mcp.Implementation{Name: "example", Version: "1.0.0"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, q *mcp.ProgressNotificationClientRequest) { heard <- q.Params.ProgressToken },
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	session, err := client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	tools, err := session.ListTools(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(tools.Tools) != 1 || tools.Tools[0].Name != "pid" {
		t.Errorf("tools %+v", tools.Tools)
	}
	params := &mcp.CallToolParams{Name: "pid"}
	params.SetProgressToken("p")
	result, err := session.CallTool(ctx, params)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case token := <-heard:
		if token != "p" {
			t.Errorf("progress for %v", token)
		}
	case <-ctx.Done():
		t.Fatal("no progress was heard")
	}
	content, _ := result.StructuredContent.(map[string]any)
	if id, ok := content["pid"].(float64); !ok || int(id) == os.Getpid() {
		t.Fatalf("got %+v", result)
	}
	return content["pid"]
}

// The whole program, from its start to the signal.
func TestServe(t *testing.T) {
	leak.Check(t)
	listener := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, listener, command(t)) }() // ends with cancel
	if page := get(t, "http://"+listener.Addr().String()); page == "" {
		t.Error("an empty page")
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("did not end")
	}
	if err := serve(t.Context(), listen(t), []string{"no-such-program"}); err == nil {
		t.Error("a program that does not exist was served")
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func get(t *testing.T, url string) string {
	t.Helper()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
