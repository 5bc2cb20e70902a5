package showcase

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/sse"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// requestTime bounds what must not take long: to connect, and to be answered
// with headers.
const requestTime = 10 * time.Second

// maxMessage bounds, in bytes, what the client takes for one.
const maxMessage = 1 << 20

// wire is what all eras have in common.
type wire struct {
	base    *url.URL
	version era.Version
	http    *http.Client
}

func newWire(addr string, v era.Version) *wire {
	return &wire{
		base: &url.URL{Scheme: "http", Host: addr}, version: v,
		http: &http.Client{Transport: &http.Transport{
			DialContext:           (&net.Dialer{Timeout: requestTime}).DialContext,
			DisableKeepAlives:     true, // a connection that was cut is no place for the next request
			ResponseHeaderTimeout: requestTime,
		}},
	}
}

// stream is one response as it is read: an event stream, or one message.
type stream struct {
	body   io.ReadCloser
	events *sse.Decoder
	single []byte // instead of events
}

// do sends a request and returns its response; a *refusal if its status is no
// success.
func (w *wire) do(ctx context.Context, method, path string, body []byte, header http.Header) (*stream, http.Header, error) {
	to, err := w.base.Parse(path)
	if err != nil {
		return nil, nil, fmt.Errorf("showcase: address: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, nil, fmt.Errorf("showcase: request: %w", err)
	}
	if header != nil {
		req.Header = header
	}
	req.Header.Set("Accept", "text/event-stream")
	if method == http.MethodPost {
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return nil, nil, fmt.Errorf("showcase: %s: %w", method, err)
	}
	s := &stream{body: resp.Body}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") && resp.StatusCode == http.StatusOK {
		s.events = sse.NewDecoder(resp.Body, maxMessage)
		return s, resp.Header, nil
	}
	defer s.close()
	if s.single, err = io.ReadAll(io.LimitReader(resp.Body, maxMessage)); err != nil {
		return nil, nil, fmt.Errorf("showcase: %s: %w", method, err)
	}
	if resp.StatusCode >= 300 {
		return nil, nil, &refusal{fmt.Sprintf("%s: %.200s", resp.Status, bytes.TrimSpace(s.single))}
	}
	return s, resp.Header, nil
}

// post sends a message and wants no stream.
func (w *wire) post(ctx context.Context, path string, message []byte, header http.Header) error {
	s, _, err := w.do(ctx, http.MethodPost, path, message, header)
	if err == nil {
		s.close()
	}
	return err
}

func (s *stream) close() { _ = s.body.Close() }

// lastID is the newest event id, "" without one.
func (s *stream) lastID() string {
	if s.events == nil {
		return ""
	}
	return s.events.LastID()
}

// next returns the next message. It is valid until the next call.
func (s *stream) next() ([]byte, error) {
	if s.events == nil {
		if s.single == nil {
			return nil, io.EOF
		}
		one := s.single
		s.single = nil
		return one, nil
	}
	for {
		e, err := s.events.Next()
		if err != nil {
			return nil, err
		}
		if e.Type() == "message" && len(e.Data) > 0 {
			return e.Data, nil
		}
	}
}

// await reads up to the answer to a request.
func (s *stream) await(id string) error {
	for {
		message, err := s.next()
		if err != nil {
			return err
		}
		if m, err := jsonrpc.Parse(message); err == nil && m.Kind() == jsonrpc.Response && string(m.Raw(jsonrpc.ID)) == id {
			if m.Has(jsonrpc.Error) {
				return &refusal{string(m.Raw(jsonrpc.Error))}
			}
			return nil
		}
	}
}

const (
	clientInfo  = `{"name":"holdfast-demo","version":"1"}`
	initID      = `"init"`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

func (w *wire) initialize() []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":%s}}`,
		initID, w.version, clientInfo)
}

// request is the call. meta is added to its _meta.
func request(id int, meta string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"build_report","arguments":{},"_meta":{"progressToken":%q%s}}}`,
		id, token, meta)
}

// eventsDialect is HTTP+SSE (2024-11-05): everything comes on one stream, whose
// events have ids if the server is so kind.
type eventsDialect struct {
	*wire
	endpoint string // where the session's messages go
}

// open opens the stream and learns its endpoint.
func (d *eventsDialect) open(ctx context.Context, lastID string) (*stream, string, error) {
	header := http.Header{}
	if lastID != "" {
		header.Set("Last-Event-Id", lastID)
	}
	s, _, err := d.do(ctx, http.MethodGet, "/sse", nil, header)
	if err != nil {
		return nil, "", err
	}
	if s.events == nil {
		s.close()
		return nil, "", &refusal{"no event stream"}
	}
	e, err := s.events.Next()
	if err != nil {
		s.close()
		return nil, "", err
	}
	return s, string(e.Data), nil
}

func (d *eventsDialect) call(ctx context.Context, id int) (*stream, error) {
	s, endpoint, err := d.open(ctx, "")
	if err != nil {
		return nil, err
	}
	d.endpoint = endpoint
	if err = d.post(ctx, endpoint, d.initialize(), nil); err == nil {
		err = s.await(initID)
	}
	for _, message := range [][]byte{[]byte(initialized), request(id, "")} {
		if err == nil {
			err = d.post(ctx, endpoint, message, nil)
		}
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (d *eventsDialect) resume(ctx context.Context, lastID string) (*stream, error) {
	s, endpoint, err := d.open(ctx, lastID)
	if err != nil {
		return nil, err
	}
	if endpoint != d.endpoint {
		s.close()
		return nil, &refusal{"the session is gone"}
	}
	return s, nil
}

// sessionDialect is Streamable HTTP of the handshake era: the call's answer
// comes on the stream that its POST is answered with, and a GET reads on where
// it broke.
type sessionDialect struct {
	*wire
	session string // its id; "" if the server has none
}

func (d *sessionDialect) header() http.Header {
	h := http.Header{}
	if d.version != era.Assumed {
		h.Set(era.HeaderVersion, string(d.version))
	}
	if d.session != "" {
		h.Set("Mcp-Session-Id", d.session)
	}
	return h
}

func (d *sessionDialect) call(ctx context.Context, id int) (*stream, error) {
	s, header, err := d.do(ctx, http.MethodPost, "/mcp", d.initialize(), nil)
	if err != nil {
		return nil, err
	}
	err = s.await(initID)
	s.close()
	if err != nil {
		return nil, err
	}
	d.session = header.Get("Mcp-Session-Id")
	if err := d.post(ctx, "/mcp", []byte(initialized), d.header()); err != nil {
		return nil, err
	}
	s, _, err = d.do(ctx, http.MethodPost, "/mcp", request(id, ""), d.header())
	return s, err
}

func (d *sessionDialect) resume(ctx context.Context, lastID string) (*stream, error) {
	h := d.header()
	h.Set("Last-Event-Id", lastID)
	s, _, err := d.do(ctx, http.MethodGet, "/mcp", nil, h)
	return s, err
}

// statelessDialect is 2026-07-28. Its streams cannot be resumed, and closing
// one cancels its call. A key says that calling again means the same call.
type statelessDialect struct {
	*wire
	key string
}

func (d *statelessDialect) call(ctx context.Context, id int) (*stream, error) {
	if d.key == "" {
		d.key = rand.Text()
	}
	h := http.Header{}
	h.Set(era.HeaderVersion, string(d.version))
	h.Set("Mcp-Method", "tools/call")
	h.Set("Mcp-Name", "build_report")
	h.Set("Idempotency-Key", d.key)
	meta := fmt.Sprintf(`,%q:%q,%q:%s,%q:{}`, era.MetaVersion, d.version, era.MetaClient, clientInfo, era.MetaCapabilities)
	s, _, err := d.do(ctx, http.MethodPost, "/mcp", request(id, meta), h)
	return s, err
}

func (d *statelessDialect) resume(context.Context, string) (*stream, error) {
	return nil, &refusal{"streams of this era are not resumed"}
}
