package conversation

import (
	"fmt"
	"strings"
	"testing"
)

// TestVersionThatTheClientKnows: a server that answers with a later revision than
// was asked for does not lose its client, and is told nothing of that; an earlier
// one, and what is no revision, is the client's to judge.
func TestVersionThatTheClientKnows(t *testing.T) {
	const result = `{ "capabilities":{"n":1.0},"protocolVersion":%q,"serverInfo":{}}`
	for _, tt := range []struct{ asked, answered, told string }{
		{"2024-11-05", "2025-11-25", "2024-11-05"},
		{"2025-03-26", "2025-06-18", "2025-03-26"},
		{"2025-06-18", "2025-06-18", "2025-06-18"},
		{"2025-11-25", "2024-11-05", "2024-11-05"},
		{"2025-06-18", "2027-01-01", "2027-01-01"},
		{"2025-06-18", "next", "next"},
		{"1999-01-01", "2025-11-25", "2025-11-25"},
	} {
		bubble(t, func(t *testing.T) {
			s := begin(t, false)
			c := s.join("a")
			call := c.call(clientHello, `"i"`, tt.asked, `{}`, "a")
			s.latest().greet(fmt.Sprintf(result, tt.answered))
			want := fmt.Sprintf(`{"jsonrpc":"2.0","id":"i","result":`+result+`}`, tt.told)
			if got := c.answer(call); got != want {
				t.Errorf("asked for %s, answered with %s: told %s", tt.asked, tt.answered, got)
			}
			s.latest().die(killed)
			restarted()
			if again := s.latest().next(); !strings.Contains(again.line, `"protocolVersion":"`) || tt.asked != "1999-01-01" && !strings.Contains(again.line, tt.asked) {
				t.Errorf("the next server is greeted with %s", again.line)
			}
			s.end()
		})
	}
}
