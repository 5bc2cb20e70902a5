package holdfast

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/wire"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Endpoint is where one server is reached: paths below the gateway's address.
type Endpoint struct {
	Name       string // of the server
	Streamable string // Streamable HTTP
	SSE        string // the event stream of HTTP+SSE
}

// Endpoints returns where the servers are reached, in the order of Options.
func (g *Gateway) Endpoints() []Endpoint {
	out := make([]Endpoint, 0, len(g.hosts))
	for _, h := range g.hosts {
		prefix := ""
		if len(g.hosts) > 1 {
			prefix = "/" + h.Name
		}
		out = append(out, Endpoint{h.Name, prefix + g.o.Path, prefix + g.o.SSEPath})
	}
	return out
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fate := wire.FateOf(r.Context())
	fate.Heard()
	if fate == nil && r.Body != nil && r.Body != http.NoBody {
		// Not the server that New made, which has a ReadTimeout. Where a request is
		// refused before its body is read, net/http waits for what is left of it.
		// Who reads it all lifts the deadline.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(g.o.Timers.ReadTimeout))
	}
	g.handler.ServeHTTP(w, r)
}

// dispatch finds the handler of a path. A path is matched whole: there is
// nothing below an endpoint.
func (g *Gateway) dispatch(w http.ResponseWriter, r *http.Request) {
	if h := g.routes[r.URL.Path]; h != nil {
		h(w, r)
		return
	}
	var paths []string
	for _, e := range g.Endpoints() {
		paths = append(paths, e.Streamable, e.SSE)
	}
	wire.Refuse(w, http.StatusNotFound, jsonrpc.CodeInvalidRequest, nil, "nothing is served at %.100q; MCP endpoints here: %s",
		r.URL.Path, strings.Join(paths, " "))
}

// healthz tells that the process is alive.
func (g *Gateway) healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = fmt.Fprintln(w, "ok")
}

// readyz tells whether a new session could be served: a server runs or could
// be started, and the gateway is not draining.
func (g *Gateway) readyz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if g.draining.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintln(w, "draining")
		return
	}
	for _, h := range g.hosts {
		if err := h.Pool.Check(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprintf(w, "%s: %v\n", h.Name, err)
			return
		}
	}
	_, _ = fmt.Fprintln(w, "ready")
}

// index tells a person what is served.
func (g *Gateway) index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = fmt.Fprintf(w, "Holdfast %s\n\n", g.o.Version)
	for _, e := range g.Endpoints() {
		_, _ = fmt.Fprintf(w, "%s\n  Streamable HTTP  %s  (%s, %s, %s)\n  HTTP+SSE         %s  (%s)\n\n",
			e.Name, e.Streamable, era.V20250326, era.V20250618, era.V20251125, e.SSE, era.V20241105)
	}
}
