package remote

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/holdfast-mcp/holdfast/internal/httpclient"
)

// endpoint resolves the data of an endpoint event against the URL of its stream
// (2024-11-05 basic/transports, "HTTP with SSE"; RFC 3986 section 5). One of
// another origin is refused: credentials would go there.
func endpoint(stream *url.URL, data string) (*url.URL, error) {
	ref, err := url.Parse(strings.TrimSpace(data))
	if err != nil || strings.TrimSpace(data) == "" {
		return nil, fmt.Errorf("%w: %.200q", errEndpoint, data)
	}
	at := stream.ResolveReference(ref)
	if !httpclient.SameOrigin(stream, at) {
		return nil, fmt.Errorf("%w: %.200q is of another origin than the stream at %s", errEndpoint, data, stream.Host)
	}
	if at.User == nil {
		at.User = stream.User
	}
	at.Fragment = ""
	return at, nil
}
