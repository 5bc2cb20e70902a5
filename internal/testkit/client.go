package testkit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
)

// maxBody is the largest body, and the largest event, that a Client takes.
const maxBody = 64 << 20

// Client is a raw MCP client over HTTP: it sends what it is told to and hides
// nothing of what comes back. Its methods are safe for concurrent use, once
// the session has begun; its fields are not to be changed meanwhile.
type Client struct {
	URL    string      // of the endpoint
	Header http.Header // added to every request; replaces what the client would say itself

	SessionID string // sent when not empty; set by Initialize
	Version   string // MCP-Protocol-Version, sent when not empty; set by Initialize

	http *http.Client

	mu    sync.Mutex // guards conns
	conns map[net.Conn]struct{}
}

// DialFunc makes a connection, as net.Dialer.DialContext does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// NewClient returns a client of the endpoint url that connects by dial, or if
// that is nil over TCP. Close it.
func NewClient(url string, dial DialFunc) *Client {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	c := &Client{URL: url, conns: map[net.Conn]struct{}{}}
	c.http = &http.Client{
		Transport: &http.Transport{
			DisableCompression: true, // what is on the wire is what a test sees
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := dial(ctx, network, address)
				if err != nil {
					return nil, err
				}
				return c.track(conn), nil
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// Close cuts every connection and lets the client's goroutines end.
func (c *Client) Close() {
	c.CutAll()
	c.http.CloseIdleConnections()
}

// CutAll cuts every connection of the client and returns how many there were.
func (c *Client) CutAll() int {
	c.mu.Lock()
	conns := maps.Clone(c.conns)
	c.mu.Unlock()
	for conn := range conns {
		cut(conn, true)
	}
	return len(conns)
}

// trackedConn leaves its client's list when it is closed.
type trackedConn struct {
	net.Conn
	client *Client
}

func (c *Client) track(conn net.Conn) net.Conn {
	t := &trackedConn{conn, c}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns[t] = struct{}{}
	return t
}

func (t *trackedConn) Close() error {
	t.client.mu.Lock()
	delete(t.client.conns, t)
	t.client.mu.Unlock()
	return t.Conn.Close()
}

// cut ends a connection at once; with reset, unsent data is lost and a TCP
// peer gets a RST.
func cut(conn net.Conn, reset bool) {
	if t, ok := conn.(*trackedConn); ok {
		defer func() { _ = t.Close() }()
		conn = t.Conn
	}
	if tcp, ok := conn.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close() // that it may be closed already is fine
}

// Response is what came back for one request.
type Response struct {
	Status int
	Header http.Header
	Body   []byte  // all of it, unless there is a Stream
	Stream *Stream // of a text/event-stream body; close or cut it
}

// Message parses a JSON body.
func (r *Response) Message() (Message, error) { return Parse(r.Body) }

// Post sends body to the endpoint. ctx lives as long as the stream that may
// come back: its end cuts it.
func (c *Client) Post(ctx context.Context, body []byte) (*Response, error) {
	return c.Do(ctx, http.MethodPost, c.URL, body, nil)
}

// Get opens the session's stream, or with a lastEventID resumes one. As for
// ctx, see Post.
func (c *Client) Get(ctx context.Context, lastEventID string) (*Response, error) {
	header := http.Header{"Accept": {"text/event-stream"}}
	if lastEventID != "" {
		header.Set("Last-Event-ID", lastEventID)
	}
	return c.Do(ctx, http.MethodGet, c.URL, nil, header)
}

// Delete ends the session.
func (c *Client) Delete(ctx context.Context) (*Response, error) {
	return c.Do(ctx, http.MethodDelete, c.URL, nil, nil)
}

// Do sends any request; its headers replace those of the client, and an empty
// list of values removes one. As for ctx, see Post.
func (c *Client) Do(ctx context.Context, method, url string, body []byte, header http.Header) (*Response, error) {
	var conn net.Conn
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { conn = info.Conn },
	})
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("testkit: %w", err)
	}
	c.setHeader(req, header)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("testkit: %w", err)
	}
	r := &Response{Status: resp.StatusCode, Header: resp.Header}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "text/event-stream" {
		r.Stream = newStream(resp.Body, conn)
		return r, nil
	}
	r.Body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if closeErr := resp.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return r, fmt.Errorf("testkit: body of %s: %w", resp.Status, err)
	}
	return r, nil
}

func (c *Client) setHeader(req *http.Request, header http.Header) {
	if req.Method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	if c.SessionID != "" {
		req.Header.Set("Mcp-Session-Id", c.SessionID)
	}
	if c.Version != "" {
		req.Header.Set("Mcp-Protocol-Version", c.Version)
	}
	maps.Copy(req.Header, c.Header)
	maps.Copy(req.Header, header)
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host // net/http does not take it from the header
	}
}

// Initialize begins a session: initialize, with capabilities in JSON and the
// name "testkit", then notifications/initialized. It returns the answer.
func (c *Client) Initialize(ctx context.Context, version, capabilities string) (Message, error) {
	return c.InitializeAs(ctx, version, capabilities, "testkit")
}

// InitializeAs is Initialize under a client name of one's own.
func (c *Client) InitializeAs(ctx context.Context, version, capabilities, name string) (Message, error) {
	resp, err := c.Post(ctx, Request(`"init"`, "initialize", InitializeParams(version, capabilities, name)))
	if err != nil {
		return Message{}, err
	}
	m, err := resp.answer(ctx, `"init"`)
	if err != nil {
		return m, err
	}
	if m.Error != nil {
		return m, fmt.Errorf("testkit: initialize: %w", m.Error)
	}
	var result struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	if err := json.Unmarshal(m.Result, &result); err != nil {
		return m, fmt.Errorf("testkit: initialize: %w", err)
	}
	c.SessionID = cmp.Or(resp.Header.Get("Mcp-Session-Id"), c.SessionID)
	c.Version = result.ProtocolVersion
	return m, c.Notify(ctx, "notifications/initialized", "")
}

// Notify posts a notification and demands the 202 that it is due.
func (c *Client) Notify(ctx context.Context, method, params string) error {
	return c.Deliver(ctx, Notification(method, params))
}

// Deliver posts what has no answer, a notification or a response, and demands
// the 202 that it is due.
func (c *Client) Deliver(ctx context.Context, body []byte) error {
	resp, err := c.Post(ctx, body)
	if err != nil {
		return err
	}
	return resp.accepted()
}

func (r *Response) accepted() error {
	if r.Stream != nil {
		r.Stream.Close()
	}
	if r.Status != http.StatusAccepted || len(r.Body) > 0 {
		return fmt.Errorf("testkit: got %d %.200q where 202 without a body is due", r.Status, r.Body)
	}
	return nil
}

// Call posts a request and returns its answer, be it the body or on a stream,
// where other messages before it are passed over.
func (c *Client) Call(ctx context.Context, id string, body []byte) (Message, error) {
	resp, err := c.Post(ctx, body)
	if err != nil {
		return Message{}, err
	}
	return resp.answer(ctx, id)
}

// answer reads the answer to id and drains the response, so that its
// connection can be used again.
func (r *Response) answer(ctx context.Context, id string) (Message, error) {
	if r.Stream != nil {
		defer r.Stream.Close()
		m, _, err := r.Stream.Await(ctx, id)
		return m, err
	}
	m, err := r.Message()
	if err == nil && r.Status == http.StatusOK && !m.IsAnswer(id) {
		err = fmt.Errorf("testkit: %.200q does not answer %s", r.Body, id)
	}
	if r.Status != http.StatusOK {
		err = fmt.Errorf("testkit: got %d %.200q", r.Status, r.Body)
	}
	return m, err
}
