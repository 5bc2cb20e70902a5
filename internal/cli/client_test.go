//go:build unix

package cli_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// client is one session of the scripts' MCP client, over Streamable HTTP.
type client struct {
	url, session string
	transport    *http.Transport
	open         *answer // what begin began
}

// answer is one response on its way.
type answer struct {
	resp   *http.Response
	cancel context.CancelFunc
}

func (c *client) abandon() {
	if c.open != nil {
		c.open.cancel()
		_ = c.open.resp.Body.Close()
	}
	c.transport.CloseIdleConnections()
}

const hello = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"script","version":"1"}}`

// mcp open NAME URL opens a session and writes the answer to stdout.
// mcp call NAME METHOD PARAMS sends a request and writes what is answered.
// mcp begin NAME METHOD PARAMS returns once the answer has become a stream;
// mcp end NAME writes the rest of it.
// With ! the status must be an error.
func mcp(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, len(args) >= 2, "mcp open|call|begin|end NAME …")
	w, verb, name := worldOf(ts), args[0], args[1]
	if verb == "open" {
		need(ts, len(args) == 3, "mcp open NAME URL")
		c := &client{url: args[2], transport: &http.Transport{}}
		w.sessions[name] = c
		a := c.post(ts, "initialize", hello)
		c.session = a.resp.Header.Get("Mcp-Session-Id")
		c.show(ts, neg, a)
		return
	}
	c := w.sessions[name]
	if c == nil {
		ts.Fatalf("no session %s", name)
	}
	switch {
	case verb == "call" && len(args) == 4:
		c.show(ts, neg, c.post(ts, args[2], args[3]))
	case verb == "begin" && len(args) == 4 && !neg:
		c.open = c.post(ts, args[2], args[3])
	case verb == "end" && c.open != nil:
		a := c.open
		c.open = nil
		c.show(ts, neg, a)
	default:
		ts.Fatalf("usage: mcp open|call|begin|end NAME …")
	}
}

// post returns once the headers of the answer are there.
func (c *client) post(ts *testscript.TestScript, method, params string) *answer {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(body))
	ts.Check(err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
	}
	resp, err := (&http.Client{Transport: c.transport}).Do(req)
	if err != nil {
		cancel()
		ts.Fatalf("%s: %v", method, err)
	}
	return &answer{resp, cancel}
}

// show writes the messages of an answer to stdout, one a line.
func (c *client) show(ts *testscript.TestScript, neg bool, a *answer) {
	defer a.cancel()
	defer a.resp.Body.Close()
	if failed := a.resp.StatusCode >= 400; failed != neg {
		text, _ := io.ReadAll(a.resp.Body)
		ts.Fatalf("status %s: %s", a.resp.Status, text)
	}
	events := strings.HasPrefix(a.resp.Header.Get("Content-Type"), "text/event-stream")
	lines := bufio.NewScanner(a.resp.Body)
	for lines.Scan() {
		line := lines.Text()
		data, ok := strings.CutPrefix(line, "data: ")
		if events && ok {
			line = data
		}
		if !events || ok {
			_, err := fmt.Fprintln(ts.Stdout(), line)
			ts.Check(err)
		}
	}
	ts.Check(lines.Err())
}
