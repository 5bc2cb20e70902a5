package holdfast_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// mirror is the quickest server there is: it answers with the params.
func mirror(_ context.Context, r io.ReadCloser, w io.WriteCloser) error {
	in := bufio.NewReaderSize(r, 1<<20)
	var out []byte
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return nil // the end of the benchmark
		}
		m, err := jsonrpc.Parse(line)
		switch {
		case err != nil:
			return err
		case m.Is("initialize"):
			out = jsonrpc.AppendResult(out[:0], m.Raw(jsonrpc.ID), []byte(`{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"mirror","version":"1"}}`))
		case m.Kind() == jsonrpc.Request:
			out = jsonrpc.AppendResult(out[:0], m.Raw(jsonrpc.ID), m.Raw(jsonrpc.Params))
		default:
			continue
		}
		if _, err := w.Write(append(out, '\n')); err != nil {
			return err
		}
	}
}

// sink is a ResponseWriter with deadlines that keeps the body for one look.
type sink struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (s *sink) Header() http.Header              { return s.header }
func (s *sink) WriteHeader(status int)           { s.status = status }
func (s *sink) Write(b []byte) (int, error)      { return s.body.Write(b) }
func (s *sink) Flush()                           {}
func (s *sink) SetReadDeadline(time.Time) error  { return nil }
func (s *sink) SetWriteDeadline(time.Time) error { return nil }

func (s *sink) reset() {
	clear(s.header)
	s.status = 0
	s.body.Reset()
}

// post is a request that can be sent again and again.
type post struct {
	r    *http.Request
	body *bytes.Reader
}

func newPost(session, accept, message string) *post {
	body := bytes.NewReader([]byte(message))
	r := httptest.NewRequest(http.MethodPost, "/mcp", body)
	r.Host = "127.0.0.1:8080"
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", accept)
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	return &post{r, body}
}

func (p *post) send(h http.Handler, w *sink) {
	_, _ = p.body.Seek(0, io.SeekStart)
	p.r.Body = io.NopCloser(p.body)
	w.reset()
	h.ServeHTTP(w, p.r)
}

// BenchmarkCall is one tools/call through the gateway in this process: from the
// handler to the server and back, without a network.
func BenchmarkCall(b *testing.B) {
	for _, kind := range []struct{ name, accept string }{{"JSON", "application/json, text/event-stream"}, {"SSE", "text/event-stream"}} {
		for _, size := range []int{256, 64 << 10} {
			b.Run(fmt.Sprintf("%s/%d", kind.name, size), func(b *testing.B) { benchmarkCall(b, kind.accept, size) })
		}
	}
}

func benchmarkCall(b *testing.B, accept string, size int) {
	g, err := holdfast.New(holdfast.Options{Server: holdfast.InProcess(mirror)})
	if err != nil {
		b.Fatal(err)
	}
	if err := g.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = g.Stop(stopped()) }()
	w := &sink{header: http.Header{}}
	newPost("", "application/json", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`).send(g, w)
	session := w.header.Get("Mcp-Session-Id")
	if session == "" {
		b.Fatalf("initialize: %d %s", w.status, &w.body)
	}
	const head = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"`
	message := head + strings.Repeat("lorem ipsum ", (size-len(head))/12) + `"}}}`
	call := newPost(session, accept, message)
	call.send(g, w)
	if want := `"name":"echo","arguments"`; w.status != 200 || !strings.Contains(w.body.String(), want) || w.body.Len() < len(message)-100 {
		b.Fatalf("the call: %d %.200s", w.status, &w.body)
	}
	b.SetBytes(int64(len(message)))
	b.ReportAllocs()
	for b.Loop() {
		call.send(g, w)
	}
}
