package sse

import (
	"errors"
	"strings"
	"testing"
)

func TestHeadOfAnEventThatIsTooLong(t *testing.T) {
	body := `{"jsonrpc":"2.0","id":7,"result":"` + strings.Repeat("x", 20_000) + `"}`
	for name, stream := range map[string]string{
		"one line":         "event: message\r\nid: 3\r\ndata: " + body + "\r\n\r\n",
		"two lines":        "data: " + body[:34] + "\ndata: " + body[34:] + "\n\n",
		"without space":    "data:" + body + "\n\n",
		"behind a comment": ": hello\ndata: " + body + "\n\n",
	} {
		d := NewDecoder(strings.NewReader(stream+"data: next\n\n"), 1000)
		if _, err := d.Next(); !errors.Is(err, ErrTooLong) {
			t.Fatalf("%s: %v", name, err)
		}
		if got := string(d.Head()); !strings.HasPrefix(got, body[:34]) || len(got) > headBytes {
			t.Errorf("%s: %d bytes, %.80q", name, len(got), got)
		}
		if ev, err := d.Next(); err != nil || string(ev.Data) != "next" {
			t.Errorf("%s: then %q, %v", name, ev.Data, err)
		}
	}
}
