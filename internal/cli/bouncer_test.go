//go:build unix

package cli_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// bouncer NAME URL FILE puts an HTTP server before the one at URL that lets
// nobody in without the token which is in FILE at that moment, and sets $NAME to
// its URL.
func bouncer(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) == 3, "bouncer NAME URL FILE")
	u, err := url.Parse(args[1])
	ts.Check(err)
	file := ts.MkAbs(args[2])
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }, FlushInterval: -1}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := os.ReadFile(file)
		if err != nil || r.Header.Get("Authorization") != "Bearer "+strings.TrimSpace(string(token)) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	ts.Defer(func() {
		server.CloseClientConnections()
		server.Close()
	})
	ts.Setenv(args[0], server.URL)
}
