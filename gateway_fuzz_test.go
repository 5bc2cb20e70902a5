package holdfast_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/internal/sse"
)

// FuzzRequest sends requests with any headers and bodies to a gateway with a
// live session, whose id "$" stands for. Whatever they are, they are answered
// with a status and a body that a client can read, and the session lives on.
func FuzzRequest(f *testing.F) {
	const both = "application/json, text/event-stream"
	ping := []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	f.Add("POST", "/mcp", "$", "2025-06-18", both, "", ping)
	f.Add("POST", "/mcp", "$", "2026-07-28", "text/event-stream", "", []byte(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"y"}}`))
	f.Add("POST", "/mcp", "", "1", "*/*;q=0", "", []byte(`[{"jsonrpc":"2.0","id":1.0,"method":"x"},{}]`))
	f.Add("GET", "/mcp", "$", "", "text/event-stream", "0-0", []byte(nil))
	f.Add("GET", "/mcp", "gone", "", "text/event-stream", "1-1", []byte(nil))
	f.Add("GET", "/sse", "", "", "text/event-stream", "$.1", []byte(nil))
	f.Add("POST", "/message?sessionId=$", "", "", "", "", ping)
	f.Add("DELETE", "/mcp", "x", "", "", "", []byte(nil))
	g, err := holdfast.New(holdfast.Options{
		Server: holdfast.InProcess(mirror), MaxSessions: 50,
		Timers: holdfast.Timers{SessionTimeout: time.Second, ReconnectGrace: time.Second},
	})
	if err != nil {
		f.Fatal(err)
	}
	if err := g.Start(f.Context()); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = g.Stop(stopped()) })
	session := ""
	f.Fuzz(func(t *testing.T, method, path, id, version, accept, last string, body []byte) {
		w := &sink{header: http.Header{}}
		if !alive(g, w, session) {
			newPost("", both, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"fuzz","version":"1"}}}`).send(g, w)
			if session = w.header.Get("Mcp-Session-Id"); session == "" { // it was full
				return
			}
		}
		fill := func(s string) string { return strings.ReplaceAll(s, "$", session) }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if method == http.MethodGet { // a stream would be read until then
			cancel()
		}
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, method, "http://localhost"+fill(path), bytes.NewReader(body))
		if err != nil {
			return // no request that a server would be given
		}
		r.RemoteAddr = "127.0.0.1:1"
		for name, value := range map[string]string{
			"Content-Type": "application/json", "Mcp-Session-Id": id, "Mcp-Protocol-Version": version, "Accept": accept, "Last-Event-Id": last,
		} {
			if value != "" {
				r.Header.Set(name, fill(value))
			}
		}
		w.reset()
		g.ServeHTTP(w, r)
		readable(t, w)
		if method != http.MethodDelete && ctx.Err() == nil && !alive(g, w, session) {
			t.Error("the session has ended")
		}
	})
}

// alive asks whether a session is.
func alive(g *holdfast.Gateway, w *sink, session string) bool {
	if session == "" {
		return false
	}
	newPost(session, "application/json", `{"jsonrpc":"2.0","id":"alive","method":"ping"}`).send(g, w)
	return w.status == http.StatusOK
}

// readable holds a response against what clients can take.
func readable(t *testing.T, w *sink) {
	t.Helper()
	statuses := []int{0, 200, 202, 204, 400, 403, 404, 405, 406, 408, 413, 415, 503}
	if !slices.Contains(statuses, w.status) {
		t.Errorf("status %d", w.status)
	}
	switch kind := w.header.Get("Content-Type"); kind {
	case "application/json":
		if !json.Valid(w.body.Bytes()) {
			t.Errorf("%d with the body %q", w.status, &w.body)
		}
	case "text/event-stream":
		for d := sse.NewDecoder(&w.body, 0); ; {
			e, err := d.Next()
			if err == io.EOF {
				return
			}
			if err != nil || len(e.Data) > 0 && e.Type() == "message" && !json.Valid(e.Data) {
				t.Errorf("event %+v, %v", e, err)
				return
			}
		}
	}
}
