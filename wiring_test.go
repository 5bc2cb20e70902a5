package holdfast

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// boundTo is a listener on an address that nothing listens on.
type boundTo struct{ net.Listener }

func (b boundTo) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero, Port: 8080} }

// A request is taken for one of this machine only if all that is known of it
// says so.
func TestLocal(t *testing.T) {
	at := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 8080} }
	for name, tt := range map[string]struct {
		listener net.Listener
		to       net.Addr
		from     string
		header   string
		want     bool
	}{
		"loopback":             {nil, at("127.0.0.1"), "127.0.0.1:5", "", true},
		"loopback of IPv6":     {nil, at("::1"), "[::1]:5", "", true},
		"another loopback":     {nil, at("127.0.0.2"), "127.8.9.1:5", "", true},
		"to the world":         {nil, at("192.0.2.1"), "127.0.0.1:5", "", false},
		"from the world":       {nil, at("127.0.0.1"), "192.0.2.1:5", "", false},
		"bound to all":         {boundTo{}, at("127.0.0.1"), "127.0.0.1:5", "", false},
		"a Unix socket":        {nil, &net.UnixAddr{Name: "@", Net: "unix"}, "@", "", false},
		"nothing known":        {nil, nil, "127.0.0.1:5", "", false},
		"no address":           {nil, at("127.0.0.1"), "localhost", "", false},
		"X-Forwarded-For":      {nil, at("127.0.0.1"), "127.0.0.1:5", "X-Forwarded-For", false},
		"X-Forwarded-Host":     {nil, at("127.0.0.1"), "127.0.0.1:5", "X-Forwarded-Host", false},
		"X-Forwarded-Proto":    {nil, at("127.0.0.1"), "127.0.0.1:5", "X-Forwarded-Proto", false},
		"Forwarded":            {nil, at("127.0.0.1"), "127.0.0.1:5", "Forwarded", false},
		"Via":                  {nil, at("127.0.0.1"), "127.0.0.1:5", "Via", false},
		"X-Real-IP":            {nil, at("127.0.0.1"), "127.0.0.1:5", "X-Real-IP", false},
		"a header of no proxy": {nil, at("127.0.0.1"), "127.0.0.1:5", "X-Other", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
			r.RemoteAddr = tt.from
			if tt.to != nil {
				r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, tt.to))
			}
			if tt.header != "" {
				r.Header.Set(tt.header, "127.0.0.1")
			}
			g := &Gateway{listener: tt.listener}
			if got := g.local(r); got != tt.want {
				t.Errorf("local: %v", got)
			}
		})
	}
}
