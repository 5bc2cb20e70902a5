package httpsse

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/holdfast-mcp/holdfast/internal/httpclient"
)

// ErrEndpoint: what a stream names as the place to post to cannot be used.
var ErrEndpoint = errors.New("httpsse: unusable endpoint event")

// Endpoint resolves the data of an endpoint event against the URL of its stream
// (2024-11-05 basic/transports, "HTTP with SSE"; RFC 3986 section 5). One of
// another origin is refused: credentials would go there.
func Endpoint(stream *url.URL, data string) (*url.URL, error) {
	ref, err := url.Parse(strings.TrimSpace(data))
	if err != nil || strings.TrimSpace(data) == "" {
		return nil, fmt.Errorf("%w: %.200q", ErrEndpoint, data)
	}
	at := stream.ResolveReference(ref)
	if !httpclient.SameOrigin(stream, at) {
		return nil, fmt.Errorf("%w: %.200q is of another origin than the stream at %s", ErrEndpoint, data, stream.Host)
	}
	if at.User == nil {
		at.User = stream.User
	}
	at.Fragment = ""
	return at, nil
}
