package exchange

import "testing"

// What a server says of itself is completed by the revisions that the gateway
// serves in its place; what is no list is left alone.
func TestWithHandshake(t *testing.T) {
	for answer, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"],"x":1.0}}`: `{"jsonrpc":"2.0","id":1,"result":{"x":1.0,` +
			`"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2099-01-01","2025-03-26"]}}`: `{"jsonrpc":"2.0","id":1,"result":{` +
			`"supportedVersions":["2099-01-01","2025-03-26","2025-11-25","2025-06-18","2024-11-05"]}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":7}}`: "",
		`{"jsonrpc":"2.0","id":1,"result":{}}`:                      "",
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32601}}`:          "",
		`{`: "",
	} {
		if want == "" {
			want = answer
		}
		if got := string(withHandshake([]byte(answer))); got != want {
			t.Errorf("%s\nbecame %s\nnot    %s", answer, got, want)
		}
	}
}
