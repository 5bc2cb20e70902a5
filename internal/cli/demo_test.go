package cli

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/showcase"
)

// terminalOf plays what a terminal of some width is told, and returns the lines
// that stand on it, without colours.
func terminalOf(t *testing.T, width int, text string) []string {
	t.Helper()
	lines := []string{""}
	for text != "" {
		rest, up := strings.CutPrefix(text, "\x1b[")
		if !up {
			at := len(lines) - 1
			if text[0] == '\n' {
				if n := len([]rune(lines[at])); n >= width {
					t.Errorf("%d characters are more than %d: %q", n, width-1, lines[at])
				}
				lines = append(lines, "")
			} else {
				lines[at] += text[:1]
			}
			text = text[1:]
			continue
		}
		end := strings.IndexFunc(rest, func(r rune) bool { return r >= 'A' })
		switch rest[end] {
		case 'A':
			n := 0
			for _, c := range rest[:end] {
				n = 10*n + int(c-'0')
			}
			if lines[len(lines)-1] != "" || n >= len(lines) {
				t.Fatalf("%d lines up from line %d %q", n, len(lines), lines[len(lines)-1])
			}
			after, erased := strings.CutPrefix(rest[end+1:], "\x1b[J")
			if !erased {
				t.Fatal("what stood there is not erased")
			}
			lines = append(lines[:len(lines)-1-n], "")
			text = after
			continue
		case 'm':
		default:
			t.Fatalf("unknown sequence %q", rest[:end+1])
		}
		text = rest[end+1:]
	}
	return lines
}

func TestScreenOnATerminal(t *testing.T) {
	for _, width := range []int{80, 40} {
		var out strings.Builder
		s := newScreen(&out, []era.Version{era.V20251125}, func() int { return width })
		tell := func(holdfast bool, kind showcase.Kind, done, execution int, text string) {
			s.event(showcase.Event{
				Era: era.V20251125, Holdfast: holdfast, At: time.Duration(done) * time.Second, Kind: kind,
				Execution: execution, Done: done, Total: 20, Text: text,
			})
		}
		tell(true, showcase.Began, 0, 1, "")
		tell(false, showcase.Began, 0, 1, "")
		tell(true, showcase.Progress, 2, 1, "")
		tell(false, showcase.Cut, 2, 1, "")
		tell(false, showcase.GaveUp, 2, 1, "")
		tell(true, showcase.Answered, 20, 1, "It")
		full := strings.Repeat("█", 30)
		bars := []string{
			"with Holdfast     " + full + " 100 %  answered",
			"without Holdfast  " + full[:9] + strings.Repeat("░", 27) + "  10 %  no answer",
		}
		want := []string{
			"  0.0 s  with Holdfast       0 %  called: execution 1 begins",
			"  0.0 s  without Holdfast    0 %  called: execution 1 begins",
			"  2.0 s  without Holdfast   10 %  cut 1",
			"  2.0 s  without Holdfast   10 %  gave up: no answer, 1 execution",
			" 20.0 s  with Holdfast     100 %  answered: It",
			"",
		}
		for _, bar := range bars {
			letters := []rune(bar)
			want = append(want, string(letters[:min(len(letters), width-1)]))
		}
		want = append(want, "")
		limit := max(width, 80) // events may wrap, bars may not
		if got := terminalOf(t, limit, out.String()); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("width %d: got\n%s\nwant\n%s", width, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		out.Reset()
		s.summary([]showcase.Result{{
			Era:      era.V20251125,
			Holdfast: showcase.Outcome{Answers: 1, Executions: 1, Cuts: 6, Took: 20 * time.Second},
			Without:  showcase.Outcome{Executions: 3, Cuts: 3, Took: 9 * time.Second},
		}})
		if text := out.String(); !strings.HasPrefix(text, "\x1b[3A\x1b[J") ||
			!strings.Contains(text, green+"1 answer, 1 execution, 6 cuts"+plain) || !strings.Contains(text, "no answer, 3 executions.") {
			t.Errorf("it ends with %q", text)
		}
	}
}

// Every flag of demo is explained in the manual, beside its default.
func TestDemoFlagsAreInTheManual(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var f demoFlags
	set := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	f.register(set)
	set.VisitAll(func(flag *pflag.Flag) {
		row := "| `--" + flag.Name + "` | " + manualDefault(flag)
		if !strings.Contains(string(text), row) {
			t.Errorf("docs/operations.md has no row %s", row)
		}
	})
}
