package testkit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/sse"
)

// script is an HTTP server that does what the path says.
func script(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	write := func(block []byte) {
		_, _ = w.Write(block)
		_ = http.NewResponseController(w).Flush()
	}
	message := func(data string) []byte {
		return sse.AppendEvent(nil, sse.Event{ID: "7", Name: "message", Data: []byte(data)})
	}
	stream := func() { w.Header().Set("Content-Type", "text/event-stream; charset=utf-8") }
	switch {
	case r.URL.Path == "/json" && strings.Contains(string(body), `"initialize"`):
		w.Header().Set("Mcp-Session-Id", "s1")
		w.Header().Set("Content-Type", "application/json")
		write([]byte(`{"jsonrpc":"2.0","id":"init","result":{"protocolVersion":"2025-06-18"}}`))
	case strings.Contains(string(body), `"notifications/`):
		w.WriteHeader(http.StatusAccepted)
	case r.URL.Path == "/json" && r.Method == http.MethodGet, r.URL.Path == "/json" && r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusMethodNotAllowed)
		_, _ = fmt.Fprintf(w, "%s %s", r.Header.Get("Accept"), r.Header.Get("Last-Event-ID"))
	case r.URL.Path == "/json":
		write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"text":"%s %s %s"}]}}`,
			r.Header.Get("Mcp-Session-Id"), r.Header.Get("Mcp-Protocol-Version"), r.Host))
	case r.URL.Path == "/stream":
		stream()
		write(sse.AppendComment(nil, ""))
		write(sse.AppendEvent(nil, sse.Event{ID: "6"}))
		write(message(`{"jsonrpc":"2.0","method":"n"}`))
		write(sse.AppendEvent(nil, sse.Event{Name: "ping", Data: []byte("x")}))
		write(message(`{"jsonrpc":"2.0","id":1,"result":{}}`))
	case r.URL.Path == "/silent":
		stream()
		write(message(`{"jsonrpc":"2.0","method":"n"}`))
		<-r.Context().Done()
	case r.URL.Path == "/sse":
		stream()
		write([]byte("event: endpoint\ndata: message?s=1\n\n"))
		write(message(`{"jsonrpc":"2.0","id":"init","result":{}}`))
		<-r.Context().Done()
	case r.URL.Path == "/message":
		w.WriteHeader(http.StatusAccepted)
	default:
		w.WriteHeader(http.StatusTeapot)
	}
}

func start(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(script))
	t.Cleanup(s.Close)
	return s.URL
}

func dialTo(t *testing.T, url string) *Client {
	c := NewClient(url, nil)
	t.Cleanup(c.Close)
	return c
}

func TestClientOverJSON(t *testing.T) {
	ctx := t.Context()
	c := dialTo(t, start(t)+"/json")
	if _, err := c.Initialize(ctx, "2025-11-25", "{}"); err != nil {
		t.Fatal(err)
	}
	c.Header = http.Header{"Host": {"example.com"}}
	m, err := c.Call(ctx, "1", Request("1", "any", ""))
	if err != nil || m.Text() != "s1 2025-06-18 example.com" {
		t.Errorf("got %s, %v", m.Bytes, err)
	}
	resp, err := c.Get(ctx, "5")
	if err != nil || resp.Status != http.StatusMethodNotAllowed || string(resp.Body) != "text/event-stream 5" {
		t.Errorf("got %+v, %v", resp, err)
	}
	if resp, err = c.Delete(ctx); err != nil || resp.Status != http.StatusMethodNotAllowed {
		t.Errorf("got %+v, %v", resp, err)
	}
	if err := c.Deliver(ctx, Reply("5", "{}")); err == nil {
		t.Error("200 with a body was taken for 202 without one")
	}
	if _, err := c.Call(ctx, "2", Request("2", "any", "")); err == nil {
		t.Error("the answer to 1 was taken for that to 2")
	}
	c.URL = strings.Replace(c.URL, "/json", "/other", 1)
	if _, err := c.Call(ctx, "1", Request("1", "any", "")); err == nil || !strings.Contains(err.Error(), "418") {
		t.Errorf("got %v, want it to name the status", err)
	}
}

func TestClientOverStream(t *testing.T) {
	ctx := t.Context()
	c := dialTo(t, start(t)+"/stream")
	if m, err := c.Call(ctx, "1", Request("1", "any", "")); err != nil || !m.IsAnswer("1") {
		t.Errorf("got %s, %v", m.Bytes, err)
	}
	resp, err := c.Post(ctx, Request("1", "any", ""))
	if err != nil || resp.Stream == nil {
		t.Fatalf("got %+v, %v", resp, err)
	}
	m, before, err := resp.Stream.Await(ctx, "1")
	if err != nil || len(before) != 1 || before[0].Method != "n" || !m.IsAnswer("1") {
		t.Errorf("got %s after %v, %v", m.Bytes, before, err)
	}
	if resp.Stream.LastID() != "7" || resp.Stream.Comments() != 1 || resp.Stream.Received() == 0 {
		t.Errorf("id %s, %d comments, %d bytes", resp.Stream.LastID(), resp.Stream.Comments(), resp.Stream.Received())
	}
	if _, _, err = resp.Stream.Await(ctx, "2"); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

func TestClientCuts(t *testing.T) {
	c := dialTo(t, start(t)+"/silent")
	cuts := map[string]func(*Stream){
		"stream": func(s *Stream) { s.Cut() },
		"client": func(*Stream) { c.CutAll() },
	}
	for name, cut := range cuts {
		resp, err := c.Get(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if e, err := resp.Stream.Next(t.Context()); err != nil || e.ID != "7" {
			t.Fatalf("got %+v, %v", e, err)
		}
		cut(resp.Stream)
		if _, err := resp.Stream.Next(t.Context()); err == nil || err == io.EOF {
			t.Errorf("%s: after the cut: %v", name, err)
		}
		if n := c.CutAll(); n != 0 {
			t.Errorf("%s: %d connections after the cut", name, n)
		}
	}
	resp, err := c.Get(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := resp.Stream.Await(ctx, "1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the time: %v", err)
	}
}

func TestClientOverSSE(t *testing.T) {
	url := start(t)
	c := dialTo(t, url+"/sse")
	s, err := c.ConnectSSE(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Endpoint != url+"/message?s=1" {
		t.Errorf("endpoint %s", s.Endpoint)
	}
	if m, err := s.Initialize(t.Context(), "2024-11-05", "{}"); err != nil || !m.IsAnswer(`"init"`) {
		t.Errorf("got %s, %v", m.Bytes, err)
	}
	for _, path := range []string{"/json", "/silent"} {
		c.URL = url + path
		if _, err := c.ConnectSSE(t.Context(), ""); err == nil {
			t.Errorf("%s was taken for an endpoint event", path)
		}
	}
}

func TestMemListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewMemListener()
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for range 5 {
				time.Sleep(time.Hour)
				_, _ = w.Write(sse.AppendComment(nil, r.RemoteAddr))
				_ = http.NewResponseController(w).Flush()
			}
		})}
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(l) }() // ends with the server
		c := NewClient(l.URL("/"), l.Dial)
		resp, err := c.Get(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := resp.Stream.Next(t.Context()); err != io.EOF {
			t.Errorf("got %v", err)
		}
		if n, gap := resp.Stream.Comments(), resp.Stream.Longest(); n != 5 || gap != time.Hour {
			t.Errorf("%d comments, the longest gap %v", n, gap)
		}
		c.Close()
		_ = server.Close()
		if err := <-ended; err != http.ErrServerClosed {
			t.Error(err)
		}
		if _, err := l.Dial(t.Context(), "", ""); err == nil {
			t.Error("dialled a closed listener")
		}
		if _, err := l.Accept(); err == nil {
			t.Error("a closed listener accepts")
		}
	})
}
