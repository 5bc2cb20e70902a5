package gosdk_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-mcp/holdfast/internal/testkit"
)

// bound is the longest that anything may take that a test waits for.
const bound = 20 * time.Second

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(bound)
	for !done() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// nothingLeft fails the test if in the end a goroutine works for a connection.
func nothingLeft(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		var left []string
		await(t, "the goroutines of connections to end", func() bool {
			left = nil
			stacks := make([]byte, 4<<20)
			for one := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
				if strings.Contains(one, "holdfast-mcp/holdfast/internal/") || strings.Contains(one, "holdfast-mcp/holdfast.") || strings.Contains(one, "newIOConnLimited") {
					left = append(left, one)
				}
			}
			return len(left) == 0
		})
	})
}

// site is an address at which one server of the SDK follows another, each with
// sessions of its own and a token that it wants to see. Clients come through a
// proxy that can cut.
type site struct {
	t       *testing.T
	options mcp.StreamableHTTPOptions
	proxy   *testkit.CutProxy
	address string
	http    *http.Server
	served  chan struct{}
	server  *mcp.Server

	mu      sync.Mutex // guards the fields below
	token   string
	ran     map[string]int           // executions by nonce
	release map[string]chan struct{} // ends an execution of wait
}

func newSite(t *testing.T, o mcp.StreamableHTTPOptions) *site {
	t.Helper()
	s := &site{t: t, options: o, address: "127.0.0.1:0", token: "one", ran: map[string]int{}, release: map[string]chan struct{}{}}
	s.deploy()
	t.Cleanup(s.stop)
	proxy, err := testkit.NewCutProxy(s.address, testkit.CutOptions{Reset: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	s.proxy = proxy
	return s
}

func (s *site) url() string { return s.proxy.URL("/") }

// deploy starts a server that knows nothing of those before it.
func (s *site) deploy() {
	s.t.Helper()
	var l net.Listener
	await(s.t, "the port", func() (ok bool) {
		var err error
		l, err = net.Listen("tcp", s.address)
		return err == nil
	})
	s.address = l.Addr().String()
	s.server = mcp.NewServer(&mcp.Implementation{Name: "site", Version: "1.0.0"}, nil)
	mcp.AddTool(s.server, &mcp.Tool{Name: "greet"}, s.greet)
	mcp.AddTool(s.server, &mcp.Tool{Name: "wait"}, s.wait)
	mcp.AddTool(s.server, &mcp.Tool{Name: "ask"}, ask)
	server := s.server
	options := s.options
	if !options.Stateless {
		options.EventStore = mcp.NewMemoryEventStore(nil)
	}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &options)
	s.http = &http.Server{Handler: s.guard(handler)}
	s.served = make(chan struct{})
	go func() { defer close(s.served); _ = s.http.Serve(l) }() // ends with stop
}

// stop ends the server as a crash would: at once.
func (s *site) stop() {
	_ = s.http.Close()
	<-s.served
	for session := range s.server.Sessions() {
		go func() { _ = session.Close() }() // ends with the session's calls
	}
}

func (s *site) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		token := s.token
		s.mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "not you", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// replaceToken replaces the token that the server wants and that bearer has.
func (s *site) replaceToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

func (s *site) bearer() http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	return http.Header{"Authorization": {"Bearer " + s.token}}
}

func (s *site) executions(nonce string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ran[nonce]
}

// end lets the execution of wait end, now or as soon as it begins.
func (s *site) end(nonce string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.release[nonce] == nil {
		s.release[nonce] = make(chan struct{})
	}
	return s.release[nonce]
}

type args struct {
	Nonce string `json:"nonce"`
}

func say(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

func (s *site) note(nonce string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran[nonce]++
}

func (s *site) greet(_ context.Context, _ *mcp.CallToolRequest, a args) (*mcp.CallToolResult, any, error) {
	s.note(a.Nonce)
	return say("Hello, " + a.Nonce + "!"), nil, nil
}

// wait goes on until it is told to end, or cancelled.
func (s *site) wait(ctx context.Context, q *mcp.CallToolRequest, a args) (*mcp.CallToolResult, any, error) {
	s.note(a.Nonce)
	if token := q.Params.GetProgressToken(); token != nil {
		if err := q.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1}); err != nil {
			return nil, nil, err
		}
	}
	select {
	case <-s.end(a.Nonce):
		return say("Waited for " + a.Nonce), nil, nil
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
}

// ask puts a question in the middle of a call.
func ask(_ context.Context, q *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
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
	if !ok {
		return nil, nil, errors.New("no name was given")
	}
	return say("You are " + name), nil, nil
}
