package main

import (
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-mcp/holdfast/examples/internal/leak"
	"github.com/holdfast-mcp/holdfast/gosdk"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
)

// remote is a server of the SDK behind a network that can be cut.
func remote(t *testing.T, work func()) (*testkit.CutProxy, *atomic.Int32) {
	t.Helper()
	var executed atomic.Int32
	server := mcp.NewServer(&mcp.Implementation{Name: "remote", Version: "1.0.0"}, nil)
	type none struct{}
	mcp.AddTool(server, &mcp.Tool{Name: "work"}, func(ctx context.Context, q *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, any, error) {
		executed.Add(1)
		if token := q.Params.GetProgressToken(); token != nil {
			_ = q.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token})
		}
		work()
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
	})
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{EventStore: mcp.NewMemoryEventStore(nil)}))
	t.Cleanup(web.Close)
	proxy, err := testkit.NewCutProxy(strings.TrimPrefix(web.URL, "http://"), testkit.CutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = proxy.Close()
		for session := range server.Sessions() {
			_ = session.Close()
		}
	})
	return proxy, &executed
}

// The call is answered although the network is cut while it runs, and was
// executed once.
func TestCallThroughACut(t *testing.T) {
	leak.Check(t)
	end, progress := make(chan struct{}), make(chan struct{}, 1)
	proxy, executed := remote(t, func() { <-end })
	tr := &gosdk.Transport{URL: proxy.URL("/")}
	tr.Options.Server.Trace = func(toServer bool, message []byte) {
		if !toServer && bytes.Contains(message, []byte(`"notifications/progress"`)) {
			progress <- struct{}{}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var out bytes.Buffer
	ended := make(chan error, 1)
	go func() { ended <- call(ctx, &out, tr, "work", `{}`) }() // ends with ctx
	select {
	case <-progress:
	case err := <-ended:
		t.Fatalf("no progress before the end: %v", err)
	}
	proxy.CutAll()
	close(end)
	if err := <-ended; err != nil || out.String() != "done\n" || executed.Load() != 1 {
		t.Errorf("%q, %v, executed %d times", out.String(), err, executed.Load())
	}
}

// A call that was not executed is made again.
func TestCallAgain(t *testing.T) {
	leak.Check(t)
	proxy, executed := remote(t, func() {})
	through := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: proxy.Addr()})
	pool := &http.Transport{}
	defer pool.CloseIdleConnections()
	through.Transport, through.ErrorLog = pool, log.New(io.Discard, "", 0)
	var refused atomic.Int32
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte(`"tools/call"`)) && refused.Add(1) <= 2 {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		through.ServeHTTP(w, r)
	}))
	defer busy.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var out bytes.Buffer
	err := call(ctx, &out, &gosdk.Transport{URL: busy.URL}, "work", `{}`)
	if err != nil || out.String() != "done\n" || executed.Load() != 1 || refused.Load() != 3 {
		t.Errorf("%q, %v, called %d times, executed %d times", out.String(), err, refused.Load(), executed.Load())
	}
}

// What the server is asked with has the token.
func TestToken(t *testing.T) {
	if got := bearer("t")().Get("Authorization"); got != "Bearer t" {
		t.Error(got)
	}
}
