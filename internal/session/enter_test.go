package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/calls"
	"github.com/holdfast-mcp/holdfast/internal/ledger"
)

// TestHandedOverToABrokenStream: an answer that is handed over to a caller whose
// stream has broken, too, is there for the next one, and so is a call that runs.
func TestHandedOverToABrokenStream(t *testing.T) {
	for _, ends := range []bool{true, false} {
		t.Run(fmt.Sprintf("ended %v", ends), func(t *testing.T) {
			r := registry(RegistryOptions{
				Book:  NewBook(ledger.Options{Window: time.Minute, TTL: time.Minute}),
				Rules: func(string) calls.Rules { return calls.Rules{Grace: time.Minute} },
			})
			first, conv := (*Session)(nil), (*server)(nil)
			for n := range 3 { // none of them is read
				s, its := open(t, r, true)
				s.Identify(Who{Caller: "ada", KeyHolder: "ada"})
				s.Take(s.General(), message(t, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"a"}}`, n))
				if n > 0 && len(its.calls) > 0 {
					t.Fatalf("executed once more, by caller %d", n+1)
				}
				if n == 0 {
					first, conv = s, its
				}
				if n == 0 && ends || n == 2 && !ends {
					first.Answer(conv.calls[0], []byte(`{"jsonrpc":"2.0","id":0,"result":{}}`))
				}
				if n == 2 {
					if events, _, _ := s.General().Log().Read(nil, 0, 1<<20); len(events) != 1 {
						t.Errorf("the last caller got %d messages", len(events))
					}
				}
			}
		})
	}
}
