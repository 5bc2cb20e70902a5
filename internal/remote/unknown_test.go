package remote

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// A server may refuse a method that it does not know with 400 and no message. Of
// a method that the specification has, that says nothing.
func TestMethodRefusedWithoutAMessage(t *testing.T) {
	for method, code := range map[string]int{"x/y": jsonrpc.CodeMethodNotFound, "prompts/list": codeLink} {
		t.Run(method, func(t *testing.T) {
			play(t, Options{}, legacy(func(_ *stage, w http.ResponseWriter, _ *http.Request, got seen) {
				if got.is(method) {
					w.Header().Set("Content-Type", "text/plain; charset=utf-8")
					w.WriteHeader(http.StatusBadRequest)
					_, _ = io.WriteString(w, "not handled: unsupported\n")
				}
			}), func(s *stage) {
				s.handshake()
				s.send(`{"jsonrpc":"2.0","id":5,"method":%q}`, method)
				outcome, got, status, text := s.outcome(s.await("5", time.Second))
				if outcome != notExecuted || got != code || status != http.StatusBadRequest || !strings.Contains(text, "400") {
					s.Errorf("outcome %s, code %d, status %d, %q", outcome, got, status, text)
				}
			})
		})
	}
}
