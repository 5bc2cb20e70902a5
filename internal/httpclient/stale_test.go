//go:build linux || darwin

package httpclient

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
)

// A connection that the server closed after its answer is not used for the next
// request, however soon that comes: the server says that it has closed it before
// the request is made.
func TestConnectionThatWasJustClosedIsNotUsed(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	closed := make(chan struct{}, 1)
	go func() { // ends with the listener
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			r, err := http.ReadRequest(bufio.NewReader(conn))
			if err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
			}
			_ = conn.Close()
			closed <- struct{}{}
		}
	}()
	c, u := client(t, "http://"+ln.Addr().String(), Options{})
	for i := range 500 {
		resp, err := c.Do(t.Context(), post(u))
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		<-closed
	}
}
