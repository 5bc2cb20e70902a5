// Package httpclient sends requests to one HTTP server whose answers may last for ever, and none of them twice.
//
// A client is bound to one origin. What carries credentials never leaves it,
// and a request that may have reached the server is never sent again behind the
// caller's back.
package httpclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"time"
)

// Errors of a request. Match with errors.Is.
var (
	// ErrOrigin: the address, or what the server redirects to, is of another
	// origin. Nothing was sent there.
	ErrOrigin = errors.New("httpclient: another origin")
	// ErrRedirect: a redirect that would lose the method or the body, that names
	// no address, or one too many.
	ErrRedirect = errors.New("httpclient: redirect not followed")
	// ErrEncoding: the body is encoded in a way that was not asked for and is
	// not known here. Returned by reads of a body.
	ErrEncoding = errors.New("httpclient: unknown content encoding")
)

// Options of a client. Zero fields mean the default.
type Options struct {
	// Header is read for each request, so that credentials may change: nil for
	// none. What it returns is not changed.
	Header func() http.Header
	// TLS is cloned; nil: the system's roots.
	TLS *tls.Config
	// Proxy returns the proxy of a request; nil: the one that HTTPS_PROXY,
	// HTTP_PROXY and NO_PROXY name.
	Proxy func(*http.Request) (*url.URL, error)
	// Dial opens connections; nil: the network's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// ConnectTimeout bounds a connection's opening, and its TLS handshake
	// likewise. Default: 10 s.
	ConnectTimeout time.Duration
	// WriteTimeout bounds each write to a connection. Default: 30 s.
	WriteTimeout time.Duration
	UserAgent    string
}

// Client is safe for concurrent use.
type Client struct {
	o         Options
	origin    *url.URL
	http      *http.Client
	transport *http.Transport
}

// idleTimeout is how long an unused connection is kept: less than the five
// seconds after which the common servers close one, since a request that meets
// the closing is lost without anybody knowing how far it came.
const idleTimeout = 4 * time.Second

// New returns a client for the origin of u.
func New(u *url.URL, o Options) (*Client, error) {
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("httpclient: %q is no http or https URL", u.Redacted())
	}
	if o.ConnectTimeout <= 0 {
		o.ConnectTimeout = 10 * time.Second
	}
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = 30 * time.Second
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 4,
		}}).DialContext
	}
	if o.Proxy == nil {
		o.Proxy = http.ProxyFromEnvironment
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, fmt.Errorf("httpclient: cookies: %w", err)
	}
	c := &Client{o: o, origin: u}
	c.transport = &http.Transport{
		Proxy:                 o.Proxy,
		DialContext:           c.dial,
		TLSClientConfig:       o.TLS.Clone(),
		TLSHandshakeTimeout:   o.ConnectTimeout,
		ForceAttemptHTTP2:     true,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		DisableCompression:    true, // asked for here, and decoded here
		IdleConnTimeout:       idleTimeout,
		MaxIdleConnsPerHost:   64,
		ExpectContinueTimeout: time.Second,
	}
	// No Timeout: it would count the whole of an answer that is a stream.
	c.http = &http.Client{Transport: c.transport, Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	return c, nil
}

// LoadCA returns a TLS configuration that also trusts the certificates in a PEM
// file.
func LoadCA(file string) (*tls.Config, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("httpclient: certificates: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("httpclient: no PEM certificate in %s", file)
	}
	return &tls.Config{RootCAs: pool}, nil
}

// Close closes the connections that are not in use.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Header returns the configured header as it is now, for comparing it with
// what was sent. It may be nil.
func (c *Client) Header() http.Header {
	if c.o.Header == nil {
		return nil
	}
	return c.o.Header()
}

// Request is one request.
type Request struct {
	Method string
	URL    *url.URL // of the client's origin
	Header http.Header
	Body   []byte
	Wrote  func() // called once the request is written, on any goroutine; may be nil
}

// Response is the head of an answer. Its body is decoded, and must be closed.
type Response struct {
	Status int
	Header http.Header
	Body   io.ReadCloser
	URL    *url.URL // where it came from, after redirects
}

// Failure is why there is no answer.
type Failure struct {
	Sent bool // the request may have reached the server
	Err  error
}

// Error implements error.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// maxHops bounds the redirects of one request.
const maxHops = 5

// Do sends a request and returns the head of its answer. ctx bounds the reading
// of the body, too. The error is a *Failure.
//
// Redirects are followed within the origin only (RFC 9110 section 15.4): 307
// and 308 with method and body, the others for GET alone, since they make a GET
// of a POST.
func (c *Client) Do(ctx context.Context, r Request) (*Response, error) {
	at := r.URL
	for range maxHops {
		if !SameOrigin(c.origin, at) {
			return nil, &Failure{Err: fmt.Errorf("%w: %s", ErrOrigin, bare(at))}
		}
		resp, err := c.send(ctx, r, at)
		if err != nil {
			return nil, err
		}
		if !redirects(resp.StatusCode) {
			return &Response{Status: resp.StatusCode, Header: resp.Header, Body: decoded(resp), URL: at}, nil
		}
		_ = resp.Body.Close()
		location := resp.Header.Get("Location")
		next, err := at.Parse(location)
		if err != nil || location == "" {
			return nil, &Failure{Err: fmt.Errorf("%w: HTTP %d from %s without a usable Location", ErrRedirect, resp.StatusCode, bare(at))}
		}
		if !SameOrigin(c.origin, next) {
			return nil, &Failure{Err: fmt.Errorf("%w: HTTP %d from %s leads to %s: use that URL if it is the right one",
				ErrOrigin, resp.StatusCode, bare(at), bare(next))}
		}
		if keeps := resp.StatusCode == http.StatusTemporaryRedirect || resp.StatusCode == http.StatusPermanentRedirect; !keeps && r.Method != http.MethodGet {
			return nil, &Failure{Err: fmt.Errorf("%w: HTTP %d makes a GET of a %s: use the URL %s",
				ErrRedirect, resp.StatusCode, r.Method, bare(next))}
		}
		at = next
	}
	return nil, &Failure{Err: fmt.Errorf("%w: more than %d of them, the last one to %s", ErrRedirect, maxHops, bare(at))}
}

func redirects(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// SameOrigin reports whether two URLs have the same scheme, host and port
// (RFC 6454 section 5).
func SameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && equalFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return map[string]string{"http": "80", "https": "443"}[u.Scheme]
}

// maxStale bounds how many pooled connections that turn out to be closed one
// request meets with.
const maxStale = 8

// send sends one request to one address.
func (c *Client) send(ctx context.Context, r Request, at *url.URL) (*http.Response, error) {
	for n := 1; ; n++ {
		var t trip
		resp, err := c.try(traced(ctx, &t, r.Wrote), r, at)
		if err == nil {
			return resp, nil
		}
		sent, pooled := t.sent()
		if sent || !pooled || n == maxStale || ctx.Err() != nil {
			return nil, &Failure{Sent: sent, Err: err}
		}
	}
}

// try is send once. net/http itself sends again most of what it knows not to have
// left, which takes a body that can be had again, and any request that carries
// an idempotency key, which is therefore not passed on.
func (c *Client) try(ctx context.Context, r Request, at *url.URL) (*http.Response, error) {
	var body io.Reader
	if r.Body != nil {
		body = bytes.NewReader(r.Body)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, at.String(), body)
	if err != nil {
		return nil, err
	}
	for _, h := range []http.Header{c.Header(), r.Header} {
		for name, values := range h {
			req.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	for name := range req.Header {
		if equalFold(name, "Idempotency-Key") || equalFold(name, "X-Idempotency-Key") {
			delete(req.Header, name)
		}
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
		req.Header.Del("Host")
	}
	req.Header.Set("Accept-Encoding", "identity")
	if c.o.UserAgent != "" && req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", c.o.UserAgent)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var ue *url.Error // it repeats the URL, credentials in the query included
		if errors.As(err, &ue) {
			err = ue.Err
		}
		if cause := context.Cause(ctx); cause != nil && errors.Is(err, ctx.Err()) {
			err = cause
		}
		return nil, fmt.Errorf("httpclient: %s: %w", r.Method, err)
	}
	return resp, nil
}

// bare is a URL for people: without user, query and fragment, which may hold
// credentials.
func bare(u *url.URL) string { return u.Scheme + "://" + u.Host + u.EscapedPath() }
