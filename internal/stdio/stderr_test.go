package stdio

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestLineSplitter(t *testing.T) {
	tests := []struct {
		name string
		in   []string
		want []string
	}{
		{"lines", []string{"a\nb\n"}, []string{"a", "b"}},
		{"cut anywhere", []string{"a", "b\nc", "\n"}, []string{"ab", "c"}},
		{"no newline at the end", []string{"a\nb"}, []string{"a", "b"}},
		{"blank lines and CRLF", []string{"\n \r\na\r\n\n"}, []string{"a"}},
		{"just the length", []string{"12345678\nx\n"}, []string{"12345678", "x"}},
		{"too long", []string{"12345678abcdefgh123\nx\n"}, []string{"12345678", "abcdefgh", "123", "x"}},
		{"too long in parts", []string{"12345", "678ab", "c\n"}, []string{"12345678", "abc"}},
		{"nothing", nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			s := lineSplitter{max: 8, emit: func(line string) { got = append(got, line) }}
			for _, in := range tt.in {
				s.add([]byte(in))
			}
			s.flush()
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestTailBuffer(t *testing.T) {
	tests := []struct {
		name string
		in   []string
		want string
	}{
		{"empty", nil, ""},
		{"fits", []string{"abc", "defgh"}, "abcdefgh"},
		{"one over", []string{"abcdefgh", "i"}, "…bcdefghi"},
		{"all new", []string{"abc", "0123456789"}, "…23456789"},
		{"many small", strings.Split("abcdefghijklm", ""), "…fghijklm"},
		{"cut in a character", []string{"ä1234567"}, "…1234567"},
		{"not UTF-8", []string{"a\xffb"}, "a\uFFFDb"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := tailBuffer{max: 8}
			for _, in := range tt.in {
				b.add([]byte(in))
			}
			if got := b.String(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestStderrReachesLog(t *testing.T) {
	var out bytes.Buffer
	drainAll(t, slog.New(slog.NewTextHandler(&out, nil)), "one\ntwo\nno newline")
	for _, want := range []string{"line=one\n", "line=two\n", `line="no newline"` + "\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestStderrBelowLogLevel(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
	d := drainAll(t, log, strings.Repeat("line\n", 10*logRoom))
	if out.Len() > 0 {
		t.Errorf("logged:\n%s", out.String())
	}
	if !strings.HasSuffix(d.tail(), "line\nline\n") {
		t.Errorf("tail %q", d.tail())
	}
}

// A log that stands still loses lines, says how many, and holds up nobody.
func TestStderrDropsWhenLogIsStuck(t *testing.T) {
	const lines = 10 * logRoom
	stuck := newStuckHandler()
	defer stuck.free()
	d := drainAll(t, stuck.logger(), strings.Repeat("line\n", lines)) // though nothing has been logged
	stuck.free()
	<-d.sink.done
	stuck.mu.Lock()
	defer stuck.mu.Unlock()
	if stuck.lines >= lines || stuck.lines < logRoom {
		t.Errorf("%d of %d lines logged", stuck.lines, lines)
	}
	if stuck.lines+stuck.dropped != lines {
		t.Errorf("%d lines logged, %d reported as left out, %d written", stuck.lines, stuck.dropped, lines)
	}
}

// stop ends the reading even if the other end is held, as by a process that has
// left the group.
func TestStderrStop(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	sink := newLogSink(slog.New(slog.DiscardHandler))
	defer sink.close()
	startStderrDrain(r, 64, sink).stop()
}

func drainAll(t *testing.T, log *slog.Logger, text string) *stderrDrain {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	sink := newLogSink(log)
	d := startStderrDrain(r, 64, sink)
	if _, err := w.WriteString(text); err != nil {
		t.Fatal(err)
	}
	w.Close()
	<-d.ended
	d.stop()
	sink.close()
	return d
}

// stuckHandler is a log sink that does not return until it is freed, then
// counts.
type stuckHandler struct {
	gate chan struct{}
	once sync.Once

	mu             sync.Mutex // guards the fields below
	lines, dropped int
}

func newStuckHandler() *stuckHandler {
	return &stuckHandler{gate: make(chan struct{})}
}

func (h *stuckHandler) logger() *slog.Logger                         { return slog.New(h) }
func (h *stuckHandler) free()                                        { h.once.Do(func() { close(h.gate) }) }
func (h *stuckHandler) Enabled(_ context.Context, _ slog.Level) bool { return true }
func (h *stuckHandler) WithAttrs([]slog.Attr) slog.Handler           { return h }
func (h *stuckHandler) WithGroup(string) slog.Handler                { return h }

func (h *stuckHandler) Handle(_ context.Context, r slog.Record) error {
	<-h.gate
	h.mu.Lock()
	defer h.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "line":
			h.lines++
		case "records":
			h.dropped += int(a.Value.Int64())
		}
		return true
	})
	return nil
}
