package httpclient

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func client(t *testing.T, address string, o Options) (*Client, *url.URL) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	if o.Proxy == nil {
		o.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	}
	c, err := New(u, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, u
}

func post(u *url.URL) Request {
	return Request{Method: http.MethodPost, URL: u, Body: []byte("{}"), Header: http.Header{"Content-Type": {"application/json"}}}
}

func TestPooledConnectionThatDiedIsNotUsed(t *testing.T) {
	var times atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		times.Add(1)
	}))
	defer server.Close()
	c, u := client(t, server.URL, Options{})
	for range 20 {
		resp, err := c.Do(t.Context(), post(u))
		if err != nil {
			if f, ok := errors.AsType[*Failure](err); !ok || !f.Sent { // one that crossed with the closing: nobody can know
				t.Fatal(err)
			}
			times.Add(1)
			continue
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		server.CloseClientConnections()
	}
	if n := times.Load(); n != 20 {
		t.Errorf("20 requests, %d executions", n)
	}
}

func TestRefusedConnectionWasNotSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	c, u := client(t, "http://"+l.Addr().String(), Options{})
	_, err = c.Do(t.Context(), post(u))
	if f, ok := errors.AsType[*Failure](err); !ok || f.Sent {
		t.Errorf("%v: sent", err)
	}
}

// fragile is a connection whose writes fail once it is broken.
type fragile struct {
	net.Conn
	broken *atomic.Bool
}

func (f fragile) Write(b []byte) (int, error) {
	if f.broken.Load() {
		return 0, errors.New("broken pipe")
	}
	return f.Conn.Write(b)
}

func TestNothingWrittenAndRefusedWasNotSent(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	var broken atomic.Bool
	c, u := client(t, server.URL, Options{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if broken.Load() {
			return nil, errors.New("refused")
		}
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return fragile{conn, &broken}, err
	}})
	resp, err := c.Do(t.Context(), post(u))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	broken.Store(true)
	_, err = c.Do(t.Context(), post(u))
	if f, ok := errors.AsType[*Failure](err); !ok || f.Sent {
		t.Errorf("sent: %v", err)
	}
}

func TestCAAndHTTP2Reset(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Proto", r.Proto)
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler) // RST_STREAM
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	c, u := client(t, server.URL, Options{})
	if _, err := c.Do(t.Context(), post(u)); err == nil {
		t.Fatal("an unknown certificate was trusted")
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := LoadCA(file)
	if err != nil {
		t.Fatal(err)
	}
	c, u = client(t, server.URL, Options{TLS: config})
	resp, err := c.Do(t.Context(), post(u))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.ReadAll(resp.Body); err == nil || resp.Header.Get("X-Proto") != "HTTP/2.0" {
		t.Errorf("over %s: %v", resp.Header.Get("X-Proto"), err)
	}
	if _, err := LoadCA(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there was loaded")
	}
}

func TestProxyIsUsed(t *testing.T) {
	var asked atomic.Value
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked.Store(r.RequestURI) }))
	defer proxy.Close()
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	c, u := client(t, "http://mcp.invalid/x?y", Options{Proxy: http.ProxyURL(at)})
	resp, err := c.Do(t.Context(), post(u))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if got := asked.Load(); got != "http://mcp.invalid/x?y" {
		t.Errorf("the proxy was asked for %v", got)
	}
}

func TestCookiesAreKept(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := r.Cookie("replica"); err == nil {
			w.Header().Set("X-Replica", c.Value)
		}
		http.SetCookie(w, &http.Cookie{Name: "replica", Value: "7", Path: "/"})
	}))
	defer server.Close()
	c, u := client(t, server.URL+"/mcp", Options{})
	for _, want := range []string{"", "7"} {
		resp, err := c.Do(t.Context(), post(u))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := resp.Header.Get("X-Replica"); got != want {
			t.Errorf("replica %q, want %q", got, want)
		}
	}
}

func TestWritesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		c, u := client(t, "http://127.0.0.1/", Options{WriteTimeout: 5 * time.Second, Dial: func(context.Context, string, string) (net.Conn, error) { return near, nil }})
		began := time.Now()
		_, err := c.Do(t.Context(), post(u))
		_ = far.Close()
		if f, ok := errors.AsType[*Failure](err); !ok || !f.Sent || time.Since(began) != 5*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

func TestNew(t *testing.T) {
	for address, good := range map[string]bool{"http://h/mcp": true, "https://h": true, "ftp://h": false, "/mcp": false, "http://": false, "": false} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(u, Options{}); (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
	}
}
