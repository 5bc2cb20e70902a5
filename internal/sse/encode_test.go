package sse

import (
	"strings"
	"testing"
	"time"
)

func TestAppendEvent(t *testing.T) {
	tests := []struct {
		name string
		in   Event
		want string
	}{
		{"zero", Event{}, "data: \n\n"},
		{"message", Event{Name: "message", Data: []byte(`{"a":1}`)}, "event: message\ndata: {\"a\":1}\n\n"},
		{"field order", Event{Name: "n", ID: "i", Retry: time.Second, Data: []byte("d")},
			"id: i\nevent: n\nretry: 1000\ndata: d\n\n"},
		{"priming", Event{ID: "7", Retry: 500 * time.Millisecond}, "id: 7\nretry: 500\ndata: \n\n"},
		{"empty id", Event{HasID: true}, "id: \ndata: \n\n"},
		{"zero retry", Event{HasRetry: true}, "retry: 0\ndata: \n\n"},
		{"negative retry", Event{HasRetry: true, Retry: -time.Second}, "retry: 0\ndata: \n\n"},
		{"fraction of a millisecond", Event{Retry: 1999 * time.Microsecond}, "retry: 1\ndata: \n\n"},
		{"longest retry", Event{Retry: 1<<63 - 1}, "retry: 9223372036854\ndata: \n\n"},
		{"LF", Event{Data: []byte("a\nb")}, "data: a\ndata: b\n\n"},
		{"CRLF", Event{Data: []byte("a\r\nb")}, "data: a\ndata: b\n\n"},
		{"CR", Event{Data: []byte("a\rb")}, "data: a\ndata: b\n\n"},
		{"LF CR", Event{Data: []byte("a\n\rb")}, "data: a\ndata: \ndata: b\n\n"},
		{"ends in a line end", Event{Data: []byte("a\r")}, "data: a\ndata: \n\n"},
		{"leading space and colon", Event{Data: []byte(" : a")}, "data:  : a\n\n"},
		{"fields cannot be injected", Event{Name: "a\nid: 9", ID: "b\r\n\ndata: x\x00"},
			"id: bdata: x\nevent: aid: 9\ndata: \n\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(AppendEvent([]byte("before"), tt.in)); got != "before"+tt.want {
				t.Errorf("got  %q\nwant %q", got, "before"+tt.want)
			}
		})
	}
}

func TestAppendCommentAndRetry(t *testing.T) {
	tests := []struct{ name, got, want string }{
		{"empty comment", string(AppendComment(nil, "")), ":\n\n"},
		{"comment", string(AppendComment(nil, "keep-alive")), ": keep-alive\n\n"},
		{"comment of lines", string(AppendComment(nil, "a\r\n\rdata: b")), ": a\n: \n: data: b\n\n"},
		{"retry", string(AppendRetry(nil, 2*time.Second)), "retry: 2000\n\n"},
		{"retry below zero", string(AppendRetry(nil, -1)), "retry: 0\n\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.got != tt.want {
				t.Errorf("got %q, want %q", tt.got, tt.want)
			}
		})
	}
}

func TestAppendEventDoesNotAllocate(t *testing.T) {
	e := Event{Name: "message", ID: "stream-1/42", Data: []byte(strings.Repeat("x", 10_000))}
	dst := make([]byte, 0, 16<<10)
	if n := testing.AllocsPerRun(100, func() { dst = AppendEvent(dst[:0], e) }); n != 0 {
		t.Errorf("%v allocations with room in dst, want none", n)
	}
	// One, and one more where the race detector keeps slices.Grow from being inlined.
	if n := testing.AllocsPerRun(100, func() { dst = AppendEvent(nil, e) }); n > 2 {
		t.Errorf("%v allocations without room in dst, want that of dst alone", n)
	}
}

func TestIndexEOL(t *testing.T) {
	for _, at := range []int{0, 1, scanStep - 1, scanStep, scanStep + 1, 3*scanStep + 7} {
		for _, end := range []string{"\n", "\r", "\r\n", "\n\r"} {
			in := strings.Repeat("x", at) + end + strings.Repeat("y\r\n", 5)
			if got := indexEOL([]byte(in)); got != at {
				t.Errorf("%q at %d found at %d", end, at, got)
			}
		}
		if got := indexEOL([]byte(strings.Repeat("x", at))); got != -1 {
			t.Errorf("line end found at %d of %d bytes without one", got, at)
		}
	}
}
