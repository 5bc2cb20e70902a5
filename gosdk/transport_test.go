package gosdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/gosdk"
)

// pair is a client's revision ("" leaves it to the SDK) and how the server is.
type pair struct {
	revision string
	options  mcp.StreamableHTTPOptions
}

func (p pair) String() string {
	server := "sessions"
	if p.options.Stateless {
		server = "stateless"
	}
	return p.revision + " before " + server
}

func pairs() (all []pair) {
	for _, revision := range []string{"", "2025-11-25", "2025-06-18"} {
		for _, stateless := range []bool{false, true} {
			all = append(all, pair{revision, mcp.StreamableHTTPOptions{Stateless: stateless}})
		}
	}
	return all
}

func (s *site) transport() *gosdk.Transport {
	return &gosdk.Transport{URL: s.url(), Options: holdfast.Options{
		Server: holdfast.Server{HeaderFunc: s.bearer},
		Timers: holdfast.Timers{ReconnectWait: 5 * time.Second},
	}}
}

func connect(t *testing.T, tr mcp.Transport, revision string, progress chan<- float64) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1.0.0"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, q *mcp.ProgressNotificationClientRequest) {
			if q.Params.ProgressToken == "token" {
				progress <- q.Params.Progress
			}
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel() // what was connected goes on
	session, err := client.Connect(ctx, tr, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := session.Close(); err != nil {
			t.Error(err)
		}
	})
	return session
}

// call calls a tool and returns its text.
func call(ctx context.Context, s *mcp.ClientSession, tool, nonce string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	params := &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"nonce": nonce}}
	if tool == "ask" {
		params.Arguments = map[string]any{}
	}
	params.SetProgressToken("token")
	result, err := s.CallTool(ctx, params)
	if err != nil {
		return "", err
	}
	text, ok := result.Content[0].(*mcp.TextContent)
	if !ok || result.IsError {
		return "", fmt.Errorf("got %+v", result)
	}
	return text.Text, nil
}

func expect(t *testing.T, s *mcp.ClientSession, tool, nonce, want string) {
	t.Helper()
	if got, err := call(t.Context(), s, tool, nonce); err != nil || got != want {
		t.Errorf("%s: %q, %v", tool, got, err)
	}
}

// outcome is how a call ended.
type outcome struct {
	text string
	err  error
}

// start begins a call of wait and returns once it is executed.
func (s *site) start(ctx context.Context, session *mcp.ClientSession, nonce string) <-chan outcome {
	s.t.Helper()
	ended := make(chan outcome, 1)
	go func() { // ends with the call
		text, err := call(ctx, session, "wait", nonce)
		ended <- outcome{text, err}
	}()
	await(s.t, "the call at the server", func() bool { return s.executions(nonce) > 0 })
	return ended
}

// The server is deployed anew under its clients, and the token replaced. They
// notice nothing, but for a call that was in flight.
func TestRedeployed(t *testing.T) {
	for _, p := range pairs() {
		t.Run(p.String(), func(t *testing.T) {
			nothingLeft(t)
			s := newSite(t, p.options)
			session := connect(t, s.transport(), p.revision, make(chan float64, 10))
			expect(t, session, "greet", "before", "Hello, before!")
			asks := p.revision == "" || !p.options.Stateless // the SDK's stateless servers ask nobody of an older revision
			if asks {
				expect(t, session, "ask", "", "You are Ada")
			}
			ended := s.start(t.Context(), session, "in flight")
			s.stop()
			await(t, "the connections to end", func() bool { return s.proxy.Conns() == 0 })
			s.replaceToken("two")
			s.deploy()
			if got := <-ended; gosdk.Outcome(got.err) != gosdk.Unknown {
				t.Errorf("the call in flight ended with %q, %v", got.text, got.err)
			}
			expect(t, session, "greet", "after", "Hello, after!")
			if asks {
				expect(t, session, "ask", "", "You are Ada")
			}
			for _, nonce := range []string{"before", "in flight", "after"} {
				if n := s.executions(nonce); n != 1 {
					t.Errorf("%s was executed %d times", nonce, n)
				}
			}
		})
	}
}

// The network is cut in the middle of a call. A stream that can be resumed
// brings the answer; where the server has no such streams, the error says that
// the call may have been executed. It never is twice.
func TestCutInMidCall(t *testing.T) {
	for _, p := range pairs() {
		t.Run(p.String(), func(t *testing.T) {
			nothingLeft(t)
			s := newSite(t, p.options)
			progress := make(chan float64, 10)
			session := connect(t, s.transport(), p.revision, progress)
			ended := s.start(t.Context(), session, "n")
			select {
			case <-progress: // so the stream has a position
			case <-time.After(bound):
				t.Fatal("no progress")
			}
			if s.proxy.CutAll() == 0 {
				t.Error("nothing was cut")
			}
			close(s.end("n"))
			got := <-ended
			if p.options.Stateless {
				if gosdk.Outcome(got.err) != gosdk.Unknown {
					t.Errorf("%q, %v", got.text, got.err)
				}
			} else if got.text != "Waited for n" {
				t.Errorf("%q, %v", got.text, got.err)
			}
			if n := s.executions("n"); n != 1 {
				t.Errorf("executed %d times", n)
			}
			expect(t, session, "greet", "you", "Hello, you!")
		})
	}
}

// A client that leaves while its call runs leaves nothing behind.
func TestClose(t *testing.T) {
	for _, p := range pairs() {
		t.Run(p.String(), func(t *testing.T) {
			nothingLeft(t)
			s := newSite(t, p.options)
			session := connect(t, s.transport(), p.revision, make(chan float64, 10))
			ctx, cancel := context.WithCancel(t.Context())
			ended := s.start(ctx, session, "n")
			cancel()
			begin := time.Now()
			if err := session.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(begin); took > 6*time.Second {
				t.Errorf("Close took %s", took)
			}
			if got := <-ended; !errors.Is(got.err, context.Canceled) || gosdk.Outcome(got.err) != gosdk.Unknown {
				t.Errorf("%q, %v", got.text, got.err)
			}
			if err := session.Wait(); err != nil {
				t.Errorf("Wait: %v", err)
			}
		})
	}
	t.Run("connection", func(t *testing.T) {
		nothingLeft(t)
		s := newSite(t, mcp.StreamableHTTPOptions{})
		const spelled = `{"n":1.0e0,"s":"\u0041<"}`
		passed := make(chan struct{}, 1)
		tr := s.transport()
		tr.Options.Server.Trace = func(toServer bool, message []byte) {
			if toServer && strings.Contains(string(message), spelled) {
				passed <- struct{}{}
			}
		}
		conn, err := tr.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		write(t, conn, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`)
		if _, err := conn.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		write(t, conn, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		write(t, conn, `{"jsonrpc":"2.0","method":"notifications/of/an/extension","params":`+spelled+`}`)
		select {
		case <-passed:
		case <-time.After(bound):
			t.Error("the message did not arrive as it was spelled")
		}
		write(t, conn, `{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"wait","arguments":{"nonce":"n"}}}`)
		await(t, "the call at the server", func() bool { return s.executions("n") > 0 })
		read := make(chan error, 1)
		go func() { // ends with the connection
			_, err := conn.Read(context.Background())
			read <- err
		}()
		for range 2 {
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := <-read; !errors.Is(err, io.EOF) {
			t.Errorf("Read: %v", err)
		}
	})
}

func write(t *testing.T, c mcp.Connection, line string) {
	t.Helper()
	m, err := jsonrpc.DecodeMessage([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Write(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// A place without a server is told by the handshake, soon enough, and one that
// is no place by Connect.
func TestWrongURL(t *testing.T) {
	nothingLeft(t)
	web := httptest.NewServer(nil)
	defer web.Close()
	for name, tt := range map[string]struct {
		tr      *gosdk.Transport
		options bool   // ErrOptions
		outcome string // else
	}{
		"no MCP there":  {&gosdk.Transport{URL: web.URL + "/none"}, false, gosdk.NotExecuted},
		"nobody there":  {&gosdk.Transport{URL: "http://127.0.0.1:1/mcp"}, false, gosdk.NotExecuted},
		"no URL":        {&gosdk.Transport{}, true, ""},
		"no address":    {&gosdk.Transport{URL: "example.org/mcp"}, true, ""},
		"in the clear":  {&gosdk.Transport{URL: "http://example.org/mcp"}, true, ""},
		"two addresses": {&gosdk.Transport{URL: web.URL, Options: holdfast.Options{Server: holdfast.Upstream(web.URL + "/mcp")}}, true, ""},
		"two ways":      {&gosdk.Transport{URL: web.URL, Options: holdfast.Options{Servers: make([]holdfast.Server, 1)}}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tt.tr.Options.Timers.ReconnectWait = 50 * time.Millisecond
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			defer cancel()
			client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1.0.0"}, nil)
			_, err := client.Connect(ctx, tt.tr, nil)
			if tt.options != errors.Is(err, holdfast.ErrOptions) {
				t.Errorf("%v", err)
			}
			if got := gosdk.Outcome(err); !tt.options && got != tt.outcome {
				t.Errorf("outcome %q of %v", got, err)
			}
		})
	}
}

// Who waits for a server that is away waits no longer than their own context.
func TestConnectEndsWithItsContext(t *testing.T) {
	nothingLeft(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1.0.0"}, nil)
	begin := time.Now()
	_, err := client.Connect(ctx, &gosdk.Transport{URL: "http://127.0.0.1:1/mcp"}, nil)
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > bound {
		t.Errorf("%v after %s", err, time.Since(begin))
	}
	if _, err := (&gosdk.Transport{URL: "http://127.0.0.1:1/mcp"}).Connect(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestOutcome(t *testing.T) {
	answer := func(data string) error {
		return fmt.Errorf("calling: %w", &jsonrpc.Error{Code: -32000, Message: "x", Data: json.RawMessage(data)})
	}
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"none":         {nil, ""},
		"executed":     {answer(`{"outcome":"executed"}`), gosdk.Executed},
		"not executed": {answer(`{"outcome":"not_executed","status":503}`), gosdk.NotExecuted},
		"cancelled":    {answer(`{"outcome":"cancelled"}`), gosdk.Cancelled},
		"unknown":      {answer(`{"outcome":"unknown"}`), gosdk.Unknown},
		"the server's": {answer(``), ""},
		"other data":   {answer(`[1]`), ""},
		"other type":   {answer(`{"outcome":7}`), ""},
		"gave up":      {context.Canceled, gosdk.Unknown},
		"closed":       {mcp.ErrConnectionClosed, gosdk.Unknown},
	} {
		if got := gosdk.Outcome(tt.err); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
