package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/examples/internal/leak"
)

// gateway returns a running gateway's URL. All ends with the test.
func gateway(t *testing.T) (*holdfast.Gateway, string) {
	t.Helper()
	gw, err := newGateway("")
	if err != nil {
		t.Fatal(err)
	}
	if err := gw.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(gw)
	t.Cleanup(func() {
		if err := gw.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		web.Close()
	})
	return gw, web.URL
}

// progress collects what a client hears of its calls.
type progress struct {
	mu    sync.Mutex // guards the field below
	heard []float64
}

func (p *progress) add(_ context.Context, q *mcp.ProgressNotificationClientRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if q.Params.ProgressToken == "counting" {
		p.heard = append(p.heard, q.Params.Progress)
	}
}

func (p *progress) all() []float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.heard)
}

func connect(t *testing.T, way way, name string) (*mcp.ClientSession, *progress) {
	t.Helper()
	heard := &progress{}
	client := mcp.NewClient(&mcp.Implementation{Name: "example", Version: "1.0.0"}, &mcp.ClientOptions{
		ProgressNotificationHandler: heard.add,
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": name}}, nil
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	session, err := client.Connect(ctx, way.transport(), &mcp.ClientSessionOptions{ProtocolVersion: way.version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := session.Close(); err != nil {
			t.Error(err)
		}
	})
	return session, heard
}

func call(t *testing.T, s *mcp.ClientSession, params *mcp.CallToolParams) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	result, err := s.CallTool(ctx, params)
	if err != nil {
		t.Fatal(err)
	}
	text, ok := result.Content[0].(*mcp.TextContent)
	if !ok || result.IsError {
		t.Fatalf("got %+v", result)
	}
	return text.Text
}

// way is one way to the gateway that the SDK's client has.
type way struct {
	name      string
	version   string // "" leaves the choice to client and server
	transport func() mcp.Transport
}

func ways(t *testing.T, url string) []way {
	pool := &http.Transport{}
	t.Cleanup(pool.CloseIdleConnections)
	web := &http.Client{Transport: pool}
	streamable := func() mcp.Transport {
		return &mcp.StreamableClientTransport{Endpoint: url + "/mcp", HTTPClient: web}
	}
	sse := func() mcp.Transport {
		return &mcp.SSEClientTransport{Endpoint: url + "/sse", HTTPClient: web}
	}
	return []way{
		{"Streamable HTTP", "", streamable},
		{"Streamable HTTP, 2025-11-25", "2025-11-25", streamable},
		{"HTTP+SSE", "", sse},
		{"HTTP+SSE, 2024-11-05", "2024-11-05", sse},
	}
}

func TestEveryTransport(t *testing.T) {
	leak.Check(t)
	_, url := gateway(t)
	for _, way := range ways(t, url) {
		t.Run(way.name, func(t *testing.T) {
			session, heard := connect(t, way, "Grace")
			tools, err := session.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, tool := range tools.Tools {
				names = append(names, tool.Name)
			}
			slices.Sort(names)
			if want := []string{"ask", "count", "greet"}; !slices.Equal(names, want) {
				t.Errorf("tools %v, want %v", names, want)
			}
			if got := call(t, session, &mcp.CallToolParams{Name: "greet", Arguments: map[string]any{"name": "Ada"}}); got != "Hello, Ada!" {
				t.Errorf("greet: %q", got)
			}
			if got := call(t, session, &mcp.CallToolParams{Name: "ask"}); got != "Hello, Grace!" {
				t.Errorf("ask: %q", got)
			}
			counting := &mcp.CallToolParams{Name: "count", Arguments: map[string]any{"to": 4}}
			counting.SetProgressToken("counting")
			if got := call(t, session, counting); got != "Counted to 4." {
				t.Errorf("count: %q", got)
			}
			await(t, "all progress, in order", func() bool { return slices.Equal(heard.all(), []float64{1, 2, 3, 4}) })
		})
	}
}

// Two clients at once are asked, each hears its own question.
func TestQuestionsReachTheirClients(t *testing.T) {
	leak.Check(t)
	_, url := gateway(t)
	var clients sync.WaitGroup
	for _, way := range ways(t, url) {
		session, _ := connect(t, way, way.name)
		clients.Go(func() { // ends with its calls
			for range 10 {
				if got := call(t, session, &mcp.CallToolParams{Name: "ask"}); got != "Hello, "+way.name+"!" {
					t.Errorf("%s: %q", way.name, got)
				}
			}
		})
	}
	clients.Wait()
}

// A cancelled call ends for its client, and nothing else does.
func TestCancel(t *testing.T) {
	leak.Check(t)
	_, url := gateway(t)
	for _, way := range ways(t, url) {
		t.Run(way.name, func(t *testing.T) {
			session, heard := connect(t, way, "")
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { // ends with the call
				params := &mcp.CallToolParams{Name: "count", Arguments: map[string]any{"to": 1000}}
				params.SetProgressToken("counting")
				_, err := session.CallTool(ctx, params)
				ended <- err
			}()
			await(t, "progress", func() bool { return len(heard.all()) > 1 })
			cancel()
			if err := <-ended; err == nil {
				t.Error("a cancelled call was answered")
			}
			if got := call(t, session, &mcp.CallToolParams{Name: "greet", Arguments: map[string]any{"name": "you"}}); got != "Hello, you!" {
				t.Errorf("greet: %q", got)
			}
		})
	}
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(10 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
