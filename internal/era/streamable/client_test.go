package streamable

import (
	"net/http"
	"testing"
)

func TestSessionLost(t *testing.T) {
	for _, tt := range []struct {
		id     string
		status int
		body   string
		want   bool
	}{
		{"s", 404, "", true},
		{"s", 404, "<html>", true},
		{"s", 404, `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"Session not found"}}`, true},
		{"s", 404, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}`, false},
		{"s", 400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}`, true},
		{"s", 400, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"bad cursor"}}`, false},
		{"s", 503, "session", false},
		{"", 404, "", false},
		{"", 400, "session", false},
	} {
		if got := (Session{ID: tt.id}).Lost(tt.status, []byte(tt.body)); got != tt.want {
			t.Errorf("%q %d %s: %v, want %v", tt.id, tt.status, tt.body, got, tt.want)
		}
	}
}

func TestSessionID(t *testing.T) {
	for id, want := range map[string]string{"abc-1": "abc-1", "a b": "", "é": "", "": ""} {
		if got := SessionID(http.Header{"Mcp-Session-Id": {id}}); got != want {
			t.Errorf("%q: %q, want %q", id, got, want)
		}
	}
}
