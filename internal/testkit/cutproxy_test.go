package testkit

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/sse"
)

// ticker sends a comment each interval, at first at once, until it is cut.
func ticker(t *testing.T, interval time.Duration) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			_, _ = w.Write(sse.AppendComment(nil, ""))
			_ = http.NewResponseController(w).Flush()
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// through connects to s by a proxy and opens a stream.
func through(t *testing.T, s *httptest.Server, o CutOptions) (*CutProxy, *Client, *Stream) {
	p, err := NewCutProxy(strings.TrimPrefix(s.URL, "http://"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	c := dialTo(t, p.URL("/"))
	resp, err := c.Get(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return p, c, resp.Stream
}

// fails waits for the stream to be cut, and returns after how long it was.
func fails(t *testing.T, s *Stream) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	begin := time.Now()
	if _, err := s.Next(ctx); err == nil || err == io.EOF || ctx.Err() != nil {
		t.Errorf("got %v, want a cut", err)
	}
	return time.Since(begin)
}

func TestCutProxyCuts(t *testing.T) {
	quick, slow := ticker(t, 20*time.Millisecond), ticker(t, time.Minute)
	tests := []struct {
		name   string
		server *httptest.Server
		opts   CutOptions
	}{
		{"idle", slow, CutOptions{Idle: 100 * time.Millisecond}},
		{"age", quick, CutOptions{Age: 300 * time.Millisecond, Idle: 200 * time.Millisecond}},
		{"reset", slow, CutOptions{Age: 100 * time.Millisecond, Reset: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, _, s := through(t, tt.server, tt.opts)
			least := max(tt.opts.Age, tt.opts.Idle)
			if after := fails(t, s); after < least/2 {
				t.Errorf("cut after %v, want about %v", after, least)
			}
			if p.Cuts() != 1 || p.Conns() != 0 {
				t.Errorf("%d cuts, %d connections", p.Cuts(), p.Conns())
			}
		})
	}
}

func TestCutProxyOnCommand(t *testing.T) {
	p, c, s := through(t, ticker(t, 10*time.Millisecond), CutOptions{})
	if p.Conns() != 1 {
		t.Errorf("%d connections", p.Conns())
	}
	if n := p.CutAll(); n != 1 || p.Cuts() != 1 {
		t.Errorf("cut %d, counted %d", n, p.Cuts())
	}
	fails(t, s)

	p.Refuse(true)
	if _, err := c.Get(t.Context(), ""); err == nil {
		t.Error("connected to a proxy that refuses")
	}
	p.Refuse(false)
	p.Hide()
	p.Hide()
	if conn, err := net.Dial("tcp", p.Addr()); err == nil {
		_ = conn.Close()
		t.Error("connected to a proxy that is hidden")
	}
	Eventually(t, 5*time.Second, "the proxy is shown", func() bool { return p.Show() == nil })
	nowhere, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = nowhere.Close()
	target := p.target
	p.Retarget(nowhere.Addr().String())
	if _, err := c.Get(t.Context(), ""); err == nil {
		t.Error("connected to a server that is not there")
	}
	p.Retarget(target)
	resp, err := c.Get(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // ends with the proxy
		defer close(done)
		_, _ = resp.Stream.Next(t.Context())
	}()
	grows := func() bool {
		before := resp.Stream.Received()
		begin := time.Now()
		Eventually(t, 5*time.Second, "a while passes", func() bool { return time.Since(begin) > 100*time.Millisecond })
		return resp.Stream.Received() > before
	}
	Eventually(t, 5*time.Second, "bytes pass", grows)
	p.Stall(true)
	Eventually(t, 5*time.Second, "nothing passes any more", func() bool { return !grows() })
	p.Stall(false)
	Eventually(t, 5*time.Second, "bytes pass again", grows)
	p.Stall(true)
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	<-done
}

func TestCutProxyHoldsHeaders(t *testing.T) {
	body := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		<-body
		_, _ = w.Write(sse.AppendComment(nil, ""))
	}))
	t.Cleanup(s.Close)
	p, err := NewCutProxy(strings.TrimPrefix(s.URL, "http://"), CutOptions{HoldHeaders: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	got := make(chan *Response, 1)
	c := dialTo(t, p.URL("/"))
	go func() { // ends with its request
		resp, err := c.Get(t.Context(), "")
		if err != nil {
			t.Error(err)
		}
		got <- resp
	}()
	select {
	case <-got:
		t.Fatal("the header came before the body")
	case <-time.After(100 * time.Millisecond):
	}
	close(body)
	if resp := <-got; resp == nil || resp.Status != http.StatusOK {
		t.Errorf("got %+v", resp)
	}
}
