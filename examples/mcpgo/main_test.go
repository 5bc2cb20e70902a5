package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/holdfast-mcp/holdfast/examples/internal/leak"
)

// gateway returns a running gateway's URL. All ends with the test.
func gateway(t *testing.T) string {
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
	return web.URL
}

// peer is a client of the SDK, and the progress that it hears.
type peer struct {
	*client.Client
	token string

	mu    sync.Mutex // guards the field below
	heard []float64
}

func (p *peer) notified(n mcp.JSONRPCNotification) {
	fields := n.Params.AdditionalFields
	if n.Method != "notifications/progress" || fields["progressToken"] != p.token {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if value, ok := fields["progress"].(float64); ok {
		p.heard = append(p.heard, value)
	}
}

func (p *peer) all() []float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.heard)
}

// transports are the ways to the gateway that the SDK's client has.
func transports(t *testing.T, url string) map[string]func() (transport.Interface, error) {
	pool := &http.Transport{}
	t.Cleanup(pool.CloseIdleConnections)
	web := &http.Client{Transport: pool}
	return map[string]func() (transport.Interface, error){
		"Streamable HTTP": func() (transport.Interface, error) {
			return transport.NewStreamableHTTP(url+"/mcp", transport.WithHTTPBasicClient(web))
		},
		"HTTP+SSE": func() (transport.Interface, error) {
			return transport.NewSSE(url+"/sse", transport.WithHTTPClient(web))
		},
	}
}

func connect(t *testing.T, dial func() (transport.Interface, error), token string) *peer {
	t.Helper()
	way, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{Client: client.NewClient(way), token: token}
	p.OnNotification(p.notified)
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	hello := mcp.InitializeRequest{}
	hello.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
	hello.Params.ClientInfo = mcp.Implementation{Name: "example", Version: "1.0.0"}
	started, err := p.Initialize(t.Context(), hello)
	if err != nil {
		t.Fatal(err)
	}
	if started.ServerInfo.Name != "mcpgo-example" {
		t.Errorf("connected to %q", started.ServerInfo.Name)
	}
	return p
}

func (p *peer) call(ctx context.Context, tool string, args map[string]any) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	q := mcp.CallToolRequest{}
	q.Params.Name, q.Params.Arguments = tool, args
	q.Params.Meta = &mcp.Meta{ProgressToken: p.token}
	result, err := p.CallTool(ctx, q)
	if err != nil {
		return "", err
	}
	text, ok := mcp.AsTextContent(result.Content[0])
	if !ok || result.IsError {
		return "", fmt.Errorf("got %+v", result)
	}
	return text.Text, nil
}

func TestEveryTransport(t *testing.T) {
	leak.Check(t)
	url := gateway(t)
	for name, dial := range transports(t, url) {
		t.Run(name, func(t *testing.T) {
			p := connect(t, dial, "counting")
			tools, err := p.ListTools(t.Context(), mcp.ListToolsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if len(tools.Tools) != 2 || tools.Tools[0].Name != "count" || tools.Tools[1].Name != "greet" {
				t.Errorf("tools %+v", tools.Tools)
			}
			if got, err := p.call(t.Context(), "greet", map[string]any{"name": "Ada"}); got != "Hello, Ada!" {
				t.Errorf("greet: %q, %v", got, err)
			}
			if got, err := p.call(t.Context(), "count", map[string]any{"to": 4}); got != "Counted to 4." {
				t.Errorf("count: %q, %v", got, err)
			}
			p.checkProgress(t, 4)
		})
	}
}

// All clients share one connection. Their tokens are the same, and still each
// hears of its own calls alone.
func TestClientsAreKeptApart(t *testing.T) {
	leak.Check(t)
	url := gateway(t)
	var clients sync.WaitGroup
	for name, dial := range transports(t, url) {
		for n := range 3 {
			p := connect(t, dial, "same")
			clients.Go(func() { // ends with its calls
				to := n + 2
				if got, err := p.call(t.Context(), "count", map[string]any{"to": to}); got != fmt.Sprintf("Counted to %d.", to) {
					t.Errorf("%s: count to %d: %q, %v", name, to, got, err)
				}
				p.checkProgress(t, to)
			})
		}
	}
	clients.Wait()
}

// checkProgress looks at what was heard of one count, after its answer. mcp-go
// writes progress and answers from different goroutines: the last progress may
// come too late, and what comes after its answer is dropped.
func (p *peer) checkProgress(t *testing.T, to int) {
	t.Helper()
	heard := p.all()
	for i, n := range heard {
		if n != float64(i+1) || i >= to {
			t.Errorf("progress %v of a count to %d", heard, to)
			return
		}
	}
	if len(heard) < to-1 {
		t.Errorf("progress %v of a count to %d: some is missing", heard, to)
	}
}
