package guard

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// ask sends a request through a guard. reached tells that it was passed on.
func ask(o Options, method, host string, header http.Header) (w *httptest.ResponseRecorder, reached bool) {
	h := New(o, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	r := httptest.NewRequest(method, "/mcp", nil)
	r.Host = host
	if header != nil {
		r.Header = header
	}
	w = httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w, reached
}

// TestHost: C58.
func TestHost(t *testing.T) {
	some := Options{Hosts: []string{"mcp.example.com", "[2001:DB8::1]"}}
	for _, tc := range []struct {
		o    Options
		host string
		want bool
	}{
		{Options{}, "localhost", true},
		{Options{}, "localhost:8080", true},
		{Options{}, "LOCALHOST:8080", true},
		{Options{}, "localhost.", true},
		{Options{}, "app.localhost:1", true},
		{Options{}, "127.0.0.1:8080", true},
		{Options{}, "127.8.9.10", true},
		{Options{}, "[::1]:8080", true},
		{Options{}, "[::1]", true},
		{Options{}, "", false},
		{Options{}, ":8080", false},
		{Options{}, "0.0.0.0:8080", false},
		{Options{}, "127.0.0.1.evil.example", false},
		{Options{}, "localhost.evil.example:8080", false},
		{Options{}, "evil.example", false},
		{Options{}, "evillocalhost", false},
		{Options{}, "10.0.0.1", false},
		{Options{}, "[::2]:80", false},
		{Options{}, "2130706433", false},
		{Options{}, "localhost:8080@evil.example", false},
		{Options{}, "mcp.example.com", false},
		{some, "mcp.example.com", true},
		{some, "MCP.Example.com.:443", true},
		{some, "[2001:db8::1]:443", true},
		{some, "localhost", true},
		{some, "www.mcp.example.com", false},
		{some, "example.com", false},
		{Options{Hosts: []string{"*"}}, "whatever.example:9", true},
	} {
		w, reached := ask(tc.o, http.MethodGet, tc.host, nil)
		if reached != tc.want {
			t.Errorf("Host %q with %v: passed on %v", tc.host, tc.o.Hosts, reached)
		}
		if !tc.want && (w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "--allow-host") || !json.Valid(w.Body.Bytes())) {
			t.Errorf("Host %q: %d %s", tc.host, w.Code, w.Body)
		}
	}
	// Who forwards is not known, so what it says does not count.
	if _, reached := ask(Options{}, http.MethodGet, "evil.example", http.Header{"X-Forwarded-Host": {"localhost"}, "Forwarded": {"host=localhost"}}); reached {
		t.Error("a forwarded host was believed")
	}
}

// TestOrigin: C58.
func TestOrigin(t *testing.T) {
	configured := Options{Hosts: []string{"mcp.example.com"}, Origins: []string{"https://App.example/", "http://10.0.0.1:3000"}}
	for _, tc := range []struct {
		o      Options
		host   string
		origin []string
		want   bool
	}{
		{Options{}, "localhost:8080", nil, true},
		{Options{}, "localhost:8080", []string{"http://localhost:6274"}, true},
		{Options{}, "localhost:8080", []string{"https://127.0.0.1"}, true},
		{Options{}, "localhost:8080", []string{"http://[::1]:3"}, true},
		{Options{}, "localhost:8080", []string{"https://evil.example"}, false},
		{Options{}, "localhost:8080", []string{"http://localhost.evil.example"}, false},
		{Options{}, "localhost:8080", []string{"null"}, false},
		{Options{}, "localhost:8080", []string{""}, false},
		{Options{}, "localhost:8080", []string{"file://"}, false},
		{Options{}, "localhost:8080", []string{"chrome-extension://localhost"}, false},
		{Options{}, "localhost:8080", []string{"http://localhost\x00.evil.example"}, false},
		{Options{}, "localhost:8080", []string{"http://localhost:1", "https://evil.example"}, false},
		// The name was made to resolve to loopback: Origin and Host agree.
		{Options{}, "evil.example:8080", []string{"http://evil.example:8080"}, false},
		{configured, "mcp.example.com", []string{"https://mcp.example.com"}, true},
		{configured, "mcp.example.com", []string{"https://mcp.example.com:8443"}, false},
		{configured, "localhost", []string{"https://mcp.example.com"}, false},
		{configured, "localhost", []string{"https://app.example"}, true},
		{configured, "localhost", []string{"https://app.example:444"}, false},
		{configured, "localhost", []string{"http://app.example"}, false},
		{configured, "localhost", []string{"http://10.0.0.1:3000"}, true},
		{configured, "localhost", []string{"http://10.0.0.1:3001"}, false},
		{configured, "localhost", []string{"null"}, false},
		{Options{Origins: []string{"*"}}, "localhost", []string{"https://any.example"}, true},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			header := http.Header{}
			if tc.origin != nil {
				header["Origin"] = tc.origin
			}
			w, reached := ask(tc.o, method, tc.host, header)
			if reached != tc.want {
				t.Errorf("%s, Host %q, Origin %q: passed on %v", method, tc.host, tc.origin, reached)
			}
			if !tc.want && w.Code != http.StatusForbidden {
				t.Errorf("%s, Host %q, Origin %q: %d", method, tc.host, tc.origin, w.Code)
			}
			if !tc.want && w.Header().Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("Origin %q was refused, yet told that it may read", tc.origin)
			}
		}
	}
}

// TestCORS: a page of a configured origin may read the headers of MCP.
func TestCORS(t *testing.T) {
	o := Options{Origins: []string{"https://app.example"}}
	w, reached := ask(o, http.MethodOptions, "localhost", http.Header{
		"Origin": {"https://app.example"}, "Access-Control-Request-Method": {"DELETE"},
		"Access-Control-Request-Headers": {"authorization,content-type,last-event-id,mcp-protocol-version,mcp-session-id"},
	})
	if reached || w.Code/100 != 2 || w.Header().Get("Access-Control-Allow-Origin") != "https://app.example" ||
		!strings.Contains(w.Header().Get("Access-Control-Allow-Methods"), "DELETE") ||
		!strings.Contains(w.Header().Get("Access-Control-Allow-Headers"), "mcp-session-id") {
		t.Errorf("preflight: %d %v, passed on %v", w.Code, w.Header(), reached)
	}
	w, reached = ask(o, http.MethodPost, "localhost", http.Header{"Origin": {"https://app.example"}})
	exposed := strings.Split(strings.ToLower(strings.ReplaceAll(w.Header().Get("Access-Control-Expose-Headers"), " ", "")), ",")
	if !reached || w.Header().Get("Access-Control-Allow-Origin") != "https://app.example" ||
		!slices.Contains(exposed, "mcp-session-id") || !slices.Contains(w.Header().Values("Vary"), "Origin") {
		t.Errorf("request: %v, passed on %v", w.Header(), reached)
	}
	w, reached = ask(o, http.MethodOptions, "localhost", http.Header{"Origin": {"https://evil.example"}, "Access-Control-Request-Method": {"POST"}})
	if reached || w.Code != http.StatusForbidden || w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("preflight of another origin: %d %v", w.Code, w.Header())
	}
	w, _ = ask(Options{Origins: []string{"*"}}, http.MethodPost, "localhost", http.Header{"Origin": {"https://any.example"}})
	if w.Header().Get("Access-Control-Allow-Credentials") != "" {
		t.Error("every origin may call with the user's credentials")
	}
}

// FuzzHost: what is admitted without configuration means this machine, for
// whoever reads the name as a browser does.
func FuzzHost(f *testing.F) {
	for _, s := range []string{"localhost:8080", "[::1]:1", "127.0.0.1", "a.localhost.", "localhost.evil", "127.0.0.1:80@x", "[[::1]]", "[::1%25lo]:1", "::ffff:127.0.0.1"} {
		f.Add(s, "http://"+s)
	}
	f.Fuzz(func(t *testing.T, host, origin string) {
		local := func(name string) bool {
			name = strings.ToLower(strings.TrimSuffix(name, "."))
			ip, err := netip.ParseAddr(name)
			return name == "localhost" || strings.HasSuffix(name, ".localhost") || err == nil && ip.IsLoopback()
		}
		_, reached := ask(Options{}, http.MethodGet, host, nil)
		if u, err := url.Parse("http://" + host + "/"); err == nil && reached && u.User == nil && !local(u.Hostname()) {
			t.Errorf("Host %q, which is %q, was admitted", host, u.Hostname())
		}
		_, reached = ask(Options{}, http.MethodGet, "localhost", http.Header{"Origin": {origin}})
		u, err := url.Parse(origin)
		if reached && (err != nil || !local(u.Hostname())) {
			t.Errorf("Origin %q was admitted", origin)
		}
		for _, o := range []Options{{Hosts: []string{host}, Origins: []string{origin}}, {Hosts: []string{"*"}, Origins: []string{"*"}}} {
			ask(o, http.MethodOptions, host, http.Header{"Origin": {origin}, "Access-Control-Request-Method": {origin}})
		}
	})
}
