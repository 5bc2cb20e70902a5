package holdfast_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
)

// TestReadTimeoutIsForTheBody: on a real connection a body must arrive within the
// read time-out; what comes after it, a call or a stream, may take longer.
func TestReadTimeoutIsForTheBody(t *testing.T) {
	const limit = 200 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	t.Cleanup(cancel) // after the parallel parts
	base := gate(t, holdfast.Options{Server: scriptedServer(testkit.Options{}), Timers: holdfast.Timers{ReadTimeout: limit}})
	long := testkit.CallTool(`"c"`, "sleep", `{"ms":600}`) // three times as long

	t.Run("a call by POST", func(t *testing.T) {
		t.Parallel()
		c := testkit.NewClient(base+"/mcp", nil)
		defer c.Close()
		if _, err := c.Initialize(ctx, "2025-06-18", `{}`); err != nil {
			t.Fatal(err)
		}
		if m, err := c.Call(ctx, `"c"`, long); err != nil || m.Error != nil {
			t.Errorf("%+v, %v", m, err)
		}
	})
	t.Run("a stream", func(t *testing.T) {
		t.Parallel()
		c := testkit.NewClient(base+"/sse", nil)
		defer c.Close()
		s, err := c.ConnectSSE(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Initialize(ctx, "2024-11-05", `{}`); err != nil {
			t.Fatal(err)
		}
		if m, err := s.Call(ctx, `"c"`, long); err != nil || m.Error != nil {
			t.Errorf("%+v, %v", m, err)
		}
	})
	t.Run("a body that does not arrive", func(t *testing.T) {
		t.Parallel()
		conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(soon))
		begin := time.Now()
		if _, err := io.WriteString(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		if took := time.Since(begin); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 408 ") || took < limit {
			t.Errorf("after %v: %q, %v", took, got, err)
		}
	})
}
