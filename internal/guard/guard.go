// Package guard is HTTP middleware that refuses a request before any MCP code sees it: by Host and by Origin.
package guard

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/rs/cors"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Options of the guard. The zero value admits loopback names only.
type Options struct {
	// Hosts are names, without port, that a request may be addressed to beside
	// the loopback ones; "*" admits all.
	Hosts []string
	// Origins are web origins ("https://app.example") whose pages may call,
	// beside those on loopback names; "*" admits all. They are answered with
	// the headers of CORS, too.
	Origins []string
}

// New returns a handler that passes on to next what o admits, and answers the
// rest with 403. A page on the web must not reach a server behind a browser:
// neither by a name that was made to resolve to loopback (DNS rebinding), nor
// across origins (2025-11-25 basic/transports, "Security Warning").
func New(o Options, next http.Handler) http.Handler {
	g := &guard{next: next, hosts: map[string]bool{}, origins: map[string]bool{}}
	for _, h := range o.Hosts {
		g.hosts[normalize(h)] = true
	}
	for _, origin := range o.Origins {
		g.origins[strings.ToLower(strings.TrimSuffix(origin, "/"))] = true
	}
	if len(o.Origins) > 0 {
		g.cors = cors.New(cors.Options{
			AllowOriginFunc:  g.shared,
			AllowedMethods:   []string{http.MethodGet, http.MethodPost, http.MethodDelete},
			AllowedHeaders:   []string{"*"},
			ExposedHeaders:   []string{"Mcp-Session-Id", "Mcp-Protocol-Version", "WWW-Authenticate", "Retry-After"},
			AllowCredentials: !g.origins["*"],
			MaxAge:           7200,
		})
	}
	return g
}

type guard struct {
	next    http.Handler
	hosts   map[string]bool
	origins map[string]bool
	cors    *cors.Cors

	lastHost atomic.Pointer[string] // allowed; the next request's is the same, mostly
}

// ServeHTTP implements http.Handler.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host := r.Host
	if !g.hostAllowed(host) {
		refuse(w, fmt.Sprintf("host %.100q is not served here: start holdfast with --allow-host %.100s", host, hostname(host)))
		return
	}
	origins := r.Header["Origin"]
	if len(origins) == 0 {
		g.next.ServeHTTP(w, r)
		return
	}
	if len(origins) > 1 || !g.originAllowed(origins[0], host) {
		refuse(w, fmt.Sprintf("origin %.100q may not call this server: start holdfast with --allow-origin %.100s", origins[0], origins[0]))
		return
	}
	if g.cors != nil {
		g.cors.ServeHTTP(w, r, g.next.ServeHTTP)
		return
	}
	g.next.ServeHTTP(w, r)
}

func refuse(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	_, _ = w.Write(jsonrpc.AppendError(nil, nil, jsonrpc.CodeInvalidRequest, text, nil))
}

func (g *guard) hostAllowed(host string) bool {
	if last := g.lastHost.Load(); last != nil && *last == host {
		return true
	}
	name := hostname(host)
	allowed := Loopback(name) || g.hosts[name] || g.hosts["*"]
	if allowed {
		last := host // a copy, so that only this branch allocates
		g.lastHost.Store(&last)
	}
	return allowed
}

// originAllowed admits pages of loopback names, of the host itself if it was
// configured, and of configured origins.
func (g *guard) originAllowed(origin, host string) bool {
	if g.shared(origin) {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return false // "null", too
	}
	name := normalize(u.Hostname())
	return Loopback(name) || g.hosts[name] && strings.EqualFold(u.Host, host)
}

// shared reports whether an origin was configured.
func (g *guard) shared(origin string) bool {
	return g.origins["*"] || g.origins[strings.ToLower(origin)]
}

// hostname returns the host without port, brackets and trailing dot.
func hostname(host string) string {
	if name, port, err := net.SplitHostPort(host); err == nil && strings.Trim(port, "0123456789") == "" {
		host = name
	}
	return normalize(host)
}

func normalize(host string) string {
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// Loopback reports whether a host name, without port, means this machine.
func Loopback(name string) bool {
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.IsLoopback()
}
