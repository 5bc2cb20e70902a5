package holdfast

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/conversation"
	"github.com/holdfast-mcp/holdfast/internal/guard"
	"github.com/holdfast-mcp/holdfast/internal/httpclient"
	"github.com/holdfast-mcp/holdfast/internal/remote"
	"github.com/holdfast-mcp/holdfast/internal/stdio"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Upstream describes a server that is on the network already, at the URL of its
// MCP endpoint or of its HTTP+SSE stream. Which revision and transport it speaks
// is found out.
func Upstream(url string) Server { return Server{URL: url} }

// kinds returns how many kinds of server it says to be.
func (s Server) kinds() int {
	n := 0
	for _, is := range []bool{s.Command != "", s.Serve != nil, s.URL != ""} {
		if is {
			n++
		}
	}
	return n
}

// host is the URL's host name, "" without one.
func (s Server) host() string {
	u, err := url.Parse(s.URL)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// checkURL returns what is wrong with the URL and what belongs to it, "" if it
// is right.
func (s Server) checkURL() string {
	if s.URL == "" {
		if len(s.Header) > 0 || s.HeaderFunc != nil || s.CA != "" {
			return "headers and certificates are for a URL"
		}
		return ""
	}
	u, err := url.Parse(s.URL)
	switch {
	case err != nil: // its text may hold credentials
		return "the URL cannot be read: it must be http(s)://host[:port]/path"
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return fmt.Sprintf("URL %q must be http(s)://host[:port]/path", u.Redacted())
	case u.User != nil:
		return fmt.Sprintf("URL %q: user and password belong into an Authorization header", u.Redacted())
	case u.Scheme == "http" && !s.InsecureHTTP && !guard.Loopback(u.Hostname()):
		return fmt.Sprintf("%s://%s sends everything in the clear, credentials too: use https, or allow it (--insecure-http)", u.Scheme, u.Host)
	case len(s.Args) > 0 || len(s.Env) > 0 || s.Dir != "":
		return "arguments, environment and directory are for a command"
	}
	return ""
}

// header returns what goes with each request.
func (s Server) header() func() http.Header {
	fixed := s.Header.Clone()
	if s.HeaderFunc == nil {
		return func() http.Header { return fixed }
	}
	return func() http.Header {
		h := fixed.Clone()
		if h == nil {
			h = http.Header{}
		}
		for name, values := range s.HeaderFunc() {
			h[http.CanonicalHeaderKey(name)] = values
		}
		return h
	}
}

// remoteOptions are those of a link to the URL.
func (s Server) remoteOptions() (remote.Options, error) {
	o := remote.Options{URL: s.URL, Header: s.header()}
	if s.CA != "" {
		tls, err := httpclient.LoadCA(s.CA)
		if err != nil {
			return o, fmt.Errorf("%w: server %q: %w", ErrOptions, s.Name, err)
		}
		o.TLS = tls
	}
	return o, nil
}

// dialUpstream returns how to begin a relationship with a remote server. What
// is found out about it is remembered for all of them.
func (g *Gateway) dialUpstream(s Server) (conversation.Dial, error) {
	o, err := s.remoteOptions()
	if err != nil {
		return nil, err
	}
	o.Memory, o.MaxMessage, o.Version, o.Log = &remote.Memory{}, g.o.MaxBody, g.o.Version, g.log.With("server", s.Name)
	o.ReconnectWait = g.o.Timers.ReconnectWait
	return func(h stdio.Handler) (conversation.Link, error) {
		link, err := remote.Dial(o, h)
		if err != nil {
			return nil, err
		}
		return link, nil
	}, nil
}

// Reach finds out whether the server, one with a URL, can be reached and speaks
// MCP. It tries until ctx is done, and returns why not.
func (s Server) Reach(ctx context.Context) error {
	if s.URL == "" {
		return fmt.Errorf("%w: server %q has no URL", ErrOptions, s.Name)
	}
	if wrong := s.checkURL(); wrong != "" {
		return fmt.Errorf("%w: %s", ErrOptions, wrong)
	}
	o, err := s.remoteOptions()
	if err != nil {
		return err
	}
	if until, ok := ctx.Deadline(); ok {
		o.ReconnectWait = max(time.Until(until), time.Millisecond)
	}
	if err := remote.Probe(ctx, o); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return errors.New("holdfast: no answer in time")
		}
		return fmt.Errorf("holdfast: %w", err)
	}
	return nil
}

// traced returns a dial whose links tell of every message.
func traced(tell func(toServer bool, message []byte), dial conversation.Dial) conversation.Dial {
	if tell == nil {
		return dial
	}
	return func(h stdio.Handler) (conversation.Link, error) {
		heard := tracedHandler{h, tell}
		if _, ok := h.(remote.Renewer); ok {
			h = tracedRenewer{heard}
		} else {
			h = heard
		}
		link, err := dial(h)
		if err != nil {
			return nil, err
		}
		if child, ok := link.(*stdio.Link); ok {
			return tracedChild{child, tell}, nil
		}
		return tracedLink{link, tell}, nil
	}
}

type tracedHandler struct {
	stdio.Handler
	tell func(toServer bool, message []byte)
}

// Line implements stdio.Handler.
func (t tracedHandler) Line(line []byte) {
	t.tell(false, line)
	t.Handler.Line(line)
}

type tracedRenewer struct{ tracedHandler }

// Renewed implements remote.Renewer.
func (t tracedRenewer) Renewed() { t.Handler.(remote.Renewer).Renewed() }

type tracedLink struct {
	conversation.Link
	tell func(toServer bool, message []byte)
}

// Send implements conversation.Link.
func (t tracedLink) Send(m *jsonrpc.Message, edits ...jsonrpc.Edit) error {
	return t.SendRaw(m.Append(nil, edits...))
}

// Reached tells when a remote server was reached.
func (t tracedLink) Reached() time.Time {
	if far, ok := t.Link.(*remote.Link); ok {
		return far.Reached()
	}
	return time.Unix(0, 0) // a server in this process is there
}

// SendRaw implements conversation.Link.
func (t tracedLink) SendRaw(line []byte) error {
	t.tell(true, line)
	return t.Link.SendRaw(line)
}

// tracedChild is a link to a process, which can still be looked at.
type tracedChild struct {
	*stdio.Link
	tell func(toServer bool, message []byte)
}

// Send implements conversation.Link.
func (t tracedChild) Send(m *jsonrpc.Message, edits ...jsonrpc.Edit) error {
	return t.SendRaw(m.Append(nil, edits...))
}

// SendRaw implements conversation.Link.
func (t tracedChild) SendRaw(line []byte) error {
	t.tell(true, line)
	return t.Link.SendRaw(line)
}
