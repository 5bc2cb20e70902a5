package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// The eras, by the revision that a client speaks.
const (
	eraSSE       = "HTTP+SSE"
	era202506    = "2025-06-18"
	era202511    = "2025-11-25"
	eraStateless = "2026-07-28"
)

// client speaks one era through a proxy. It knows what its revision says about
// streams that break, and no more.
type client struct {
	era     string
	base    string // with the prefix
	http    *http.Client
	session string

	endpoint string       // HTTP+SSE
	next     func() error // HTTP+SSE: reads on until the answer to take
	stream   io.Closer    // HTTP+SSE
	lastID   string
	answers  map[string]int // how often each id was answered
	failed   string         // the last error that was an answer
	streamed int            // event streams that the opening took: a slow start is answered by one
}

// outcome is what became of one call.
type outcome struct {
	answers  int // under all ids that the call had
	cuts     int // streams that broke before the answer
	closed   int // streams that ended in order before it
	resumes  int // by Last-Event-ID
	recalls  int // the same again, under a new id
	err      error
	duration time.Duration
}

// broke counts a stream that ended before the answer.
func (o *outcome) broke(err error) {
	if err == nil {
		o.closed++
	} else {
		o.cuts++
	}
}

func newClient(era, addr, base string) *client {
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, addr) // whatever the name is
	}, DisableKeepAlives: true} // so that a connection is as old as its stream
	return &client{era: era, base: base, http: &http.Client{Transport: transport}, answers: map[string]int{}}
}

func (c *client) close() {
	if c.stream != nil {
		c.stream.Close()
	}
	c.http.CloseIdleConnections()
}

const clientInfo = `{"name":"paths","version":"1"}`

// open begins a session, where the era has such a thing.
func (c *client) open(ctx context.Context) error {
	version := map[string]string{eraSSE: "2024-11-05", era202506: era202506, era202511: era202511}[c.era]
	initialize := `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"` + version + `","capabilities":{},"clientInfo":` + clientInfo + `}}`
	switch c.era {
	case eraStateless:
		return nil
	case eraSSE:
		if err := c.connect(ctx); err != nil {
			return err
		}
		if err := c.send(ctx, initialize); err != nil {
			return err
		}
		for c.answers["init"] == 0 {
			if err := c.next(); err != nil {
				return fmt.Errorf("initialize: %w", err)
			}
		}
	default:
		resp, err := c.post(ctx, initialize)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if c.session = resp.Header.Get("Mcp-Session-Id"); c.session == "" {
			return fmt.Errorf("initialize: %s", resp.Status)
		}
		if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
			c.streamed++
		}
		if err := c.read(resp); err != nil {
			return fmt.Errorf("initialize: %w", err)
		}
	}
	return c.send(ctx, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func (c *client) request(ctx context.Context, method, url, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
		req.GetBody = nil // net/http must not send it again by itself
	}
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
		req.Header.Set("MCP-Protocol-Version", c.era)
	}
	if c.era == eraStateless {
		req.Header.Set("MCP-Protocol-Version", c.era)
		req.Header.Set("Mcp-Method", "tools/call")
		req.Header.Set("Mcp-Name", "work")
	}
	return c.http.Do(req)
}

func (c *client) post(ctx context.Context, body string) (*http.Response, error) {
	url := c.base + "/mcp"
	if c.era == eraSSE {
		url = c.endpoint
	}
	return c.request(ctx, http.MethodPost, url, body)
}

// send posts what is not answered on the response.
func (c *client) send(ctx context.Context, body string) error {
	resp, err := c.post(ctx, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		return fmt.Errorf("got %s where 202 is due", resp.Status)
	}
	return nil
}

// connect opens the stream of HTTP+SSE, or opens it again.
func (c *client) connect(ctx context.Context) error {
	resp, err := c.get(ctx, c.base+"/sse")
	if err != nil {
		return err
	}
	c.stream = resp.Body
	read := events(resp.Body, &c.lastID)
	c.next = func() error {
		e, err := read()
		if err == nil && e.name == "message" {
			c.take(e.data)
		}
		return err
	}
	first, err := read()
	if err != nil || first.name != "endpoint" {
		return fmt.Errorf("no endpoint, but %q, %w", first.name, err)
	}
	c.endpoint = first.data
	if i := strings.LastIndex(first.data, "sessionId="); i >= 0 {
		c.session = ""
	}
	return nil
}

func (c *client) get(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if c.lastID != "" {
		req.Header.Set("Last-Event-ID", c.lastID)
	}
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
		req.Header.Set("MCP-Protocol-Version", c.era)
	}
	resp, err := c.http.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		err = fmt.Errorf("GET: %s", resp.Status)
	}
	return resp, err
}

// take counts an answer.
func (c *client) take(message string) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Error  json.RawMessage `json:"error"`
	}
	if json.Unmarshal([]byte(message), &m) != nil || m.ID == nil || m.Method != "" {
		return
	}
	c.answers[strings.Trim(string(m.ID), `"`)]++
	if m.Error != nil {
		c.failed = string(m.Error)
	}
}

// read reads a response to its end. The error is how its stream broke.
func (c *client) read(resp *http.Response) error {
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		body, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%w: %s %.200s", errRefused, resp.Status, body)
		}
		c.take(string(bytes.TrimSpace(body)))
		return err
	}
	for read := events(resp.Body, &c.lastID); ; {
		e, err := read()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		c.take(e.data)
	}
}

var errRefused = errors.New("refused")

// toolCall is the message, with a token where progress is wanted.
func (c *client) toolCall(id string, w work) string {
	args, _ := json.Marshal(w)
	var meta []string
	if w.Every > 0 {
		meta = append(meta, `"progressToken":"`+id+`"`)
	}
	if c.era == eraStateless {
		meta = append(meta, `"io.modelcontextprotocol/protocolVersion":"`+c.era+`"`, `"io.modelcontextprotocol/clientInfo":`+clientInfo,
			`"io.modelcontextprotocol/clientCapabilities":{}`)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"tools/call","params":{"name":"work","arguments":%s,"_meta":{%s}}}`, id, args, strings.Join(meta, ","))
}

// call makes one call and does what its era allows to get its answer: it
// resumes where it was given an event id, and else, in the handshake era, asks
// the same again. A stateless client gives up when its stream breaks.
func (c *client) call(ctx context.Context, w work, again bool) (o outcome) {
	begin := time.Now()
	defer func() {
		o.duration = time.Since(begin)
		for id, n := range c.answers {
			if id != "init" {
				o.answers += n
			}
		}
		if o.err == nil && c.failed != "" {
			o.err = errors.New(c.failed)
		}
	}()
	answered := func() bool { return len(c.answers) > 1 || len(c.answers) == 1 && c.answers["init"] == 0 }
	id := w.Key
	if c.era == eraSSE {
		o.err = c.callSSE(ctx, id, w, again, &o, answered)
		return o
	}
	c.lastID = ""
	resp, err := c.post(ctx, c.toolCall(id, w))
	for {
		if err == nil {
			err = c.read(resp)
			resp.Body.Close()
		}
		switch {
		case answered():
			return o
		case ctx.Err() != nil || errors.Is(err, errRefused):
			o.err = err
			return o
		}
		o.broke(err)
		if c.era == eraStateless || !again {
			o.err = fmt.Errorf("cut: %v", err)
			return o
		}
		pause(ctx, 100*time.Millisecond)
		if c.lastID != "" {
			o.resumes++
			resp, err = c.get(ctx, c.base+"/mcp")
			continue
		}
		o.recalls++
		resp, err = c.post(ctx, c.toolCall(fmt.Sprintf("%s-%d", id, o.recalls), w))
	}
}

func (c *client) callSSE(ctx context.Context, id string, w work, again bool, o *outcome, answered func() bool) error {
	if err := c.send(ctx, c.toolCall(id, w)); err != nil {
		return err
	}
	for !answered() {
		err := c.next()
		if err == nil {
			continue
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		o.broke(err)
		c.stream.Close()
		if ctx.Err() != nil || !again {
			return fmt.Errorf("cut: %v", err)
		}
		pause(ctx, 100*time.Millisecond)
		o.resumes++
		if err := c.connect(ctx); err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
