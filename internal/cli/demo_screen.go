package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/showcase"
)

// Colours of the terminal, and how to leave them.
const (
	red   = "\x1b[31m"
	green = "\x1b[32m"
	faint = "\x1b[2m"
	plain = "\x1b[0m"
)

// barWidth is how many characters a bar has.
const barWidth = 30

// screen tells a demo: on a terminal with a bar for each call below the lines
// of what happened, else with the lines alone. It is not safe for concurrent
// use. What cannot be written is not worth an error.
type screen struct {
	out   io.Writer
	width func() int // of the terminal; nil for plain lines
	many  bool       // eras
	calls []*callView
	shown int // lines that the bars take now

	digits int // of a second's fractions
}

// callView is one call as it stands.
type callView struct {
	era      era.Version
	holdfast bool
	last     showcase.Event
	cuts     int
}

func newScreen(out io.Writer, chosen []era.Version, width func() int) *screen {
	s := &screen{out: out, width: width, many: len(chosen) > 1, digits: 1}
	for _, v := range chosen {
		s.calls = append(s.calls, &callView{era: v, holdfast: true}, &callView{era: v})
	}
	return s
}

func (s *screen) print(text string) { _, _ = io.WriteString(s.out, text) }

func (s *screen) intro(f *demoFlags) {
	if f.length < 10*time.Second {
		s.digits = 2
	}
	spoken := "MCP " + f.era
	if s.many {
		spoken = "every revision of MCP"
	} else {
		spoken += ", " + showcase.Binding(s.calls[0].era)
	}
	s.print(fmt.Sprintf(`One call of build_report, which takes %s, over a link that is cut every %s,
by one client, twice: through Holdfast, and through a relay that ties a call to
its connection. %s. Seed %d.

`, f.length, f.cut, spoken, f.seed))
}

// event takes one event, and draws.
func (s *screen) event(e showcase.Event) {
	for _, c := range s.calls {
		if c.era != e.Era || c.holdfast != e.Holdfast {
			continue
		}
		if e.Kind == showcase.Cut {
			c.cuts++
		}
		c.last = e
		line := ""
		if e.Kind != showcase.Progress {
			line = s.line(c, e)
		}
		s.draw(line)
	}
}

// name is what a call is called, all names of a screen being of one width.
func (s *screen) name(v era.Version, holdfast bool) string {
	name := "without Holdfast"
	if holdfast {
		name = "with Holdfast   "
	}
	if s.many {
		return string(v) + " " + name
	}
	return name
}

// line is an event in words.
func (s *screen) line(c *callView, e showcase.Event) string {
	text, colour := words(e), ""
	switch e.Kind {
	case showcase.Cut:
		text, colour = fmt.Sprintf("cut %d", c.cuts), red
	case showcase.GaveUp, showcase.Refused:
		colour = red
	case showcase.Resumed, showcase.Joined, showcase.Answered:
		colour = green
	}
	at := fmt.Sprintf("%*.*f s", 4+s.digits, s.digits, e.At.Seconds())
	return fmt.Sprintf("%s  %s  %s  %s\n", s.paint(faint, at), s.name(e.Era, e.Holdfast), percent(e), s.paint(colour, text))
}

func words(e showcase.Event) string {
	switch e.Kind {
	case showcase.Began:
		if e.Execution == 1 {
			return "called: execution 1 begins"
		}
		return fmt.Sprintf("called again: execution %d begins", e.Execution)
	case showcase.Resumed:
		return "resumed after event " + short(e.Text)
	case showcase.Joined:
		return fmt.Sprintf("called again with its key: joined execution %d", e.Execution)
	case showcase.Refused:
		return "refused: " + e.Text
	case showcase.Answered:
		return "answered: " + e.Text
	case showcase.GaveUp:
		return "gave up: " + outcome(showcase.Outcome{Executions: e.Execution}, false)
	}
	return ""
}

// short is the end of an event id: some begin with that of a session.
func short(id string) string {
	const kept = 6
	if len(id) <= 2*kept {
		return id
	}
	return "…" + id[len(id)-kept:]
}

func percent(e showcase.Event) string { return fmt.Sprintf("%3d %%", 100*e.Done/max(1, e.Total)) }

func (s *screen) paint(colour, text string) string {
	if s.width == nil || colour == "" {
		return text
	}
	return colour + text + plain
}

// draw writes a line, and on a terminal the bars below it.
func (s *screen) draw(line string) {
	if s.width == nil {
		s.print(line)
		return
	}
	width := s.width()
	var b strings.Builder
	s.erase(&b)
	b.WriteString(line)
	b.WriteByte('\n')
	for _, c := range s.calls {
		b.WriteString(s.bar(c, width))
		b.WriteByte('\n')
	}
	s.shown = len(s.calls) + 1
	s.print(b.String())
}

// erase takes the bars away.
func (s *screen) erase(b *strings.Builder) {
	if s.shown > 0 {
		fmt.Fprintf(b, "\x1b[%dA\x1b[J", s.shown)
	}
	s.shown = 0
}

// bar is one call's line, no longer than the terminal is wide: a line that
// wraps could not be taken away again.
func (s *screen) bar(c *callView, width int) string {
	e := c.last
	done := barWidth * e.Done / max(1, e.Total)
	state, colour := fmt.Sprintf("execution %d", e.Execution), ""
	switch e.Kind {
	case showcase.Cut:
		state, colour = "cut", red
	case showcase.Answered:
		state, colour = "answered", green
	case showcase.GaveUp:
		state, colour = "no answer", red
	}
	text := fmt.Sprintf("%s  %s%s %s  %s", s.name(c.era, c.holdfast), strings.Repeat("█", done), strings.Repeat("░", barWidth-done), percent(e), state)
	if letters := []rune(text); len(letters) > width-1 {
		text = string(letters[:max(0, width-1)])
	}
	return s.paint(colour, text)
}

func (s *screen) interrupted() { s.print("\nInterrupted.\n") }

// summary is the end: a table of what was counted, and what it comes to.
func (s *screen) summary(results []showcase.Result) {
	if s.width != nil { // the table says what the bars say
		var b strings.Builder
		s.erase(&b)
		s.print(b.String())
	}
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(table, "\n%s\tanswers\texecutions\tcuts\tseconds\t\n", strings.Repeat(" ", len(s.name(results[0].Era, true))))
	for _, r := range results {
		for _, row := range []struct {
			name string
			o    showcase.Outcome
		}{{s.name(r.Era, true), r.Holdfast}, {s.name(r.Era, false), r.Without}} {
			_, _ = fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%.*f\t\n", row.name, row.o.Answers, row.o.Executions, row.o.Cuts, s.digits, row.o.Took.Seconds())
		}
	}
	_ = table.Flush()
	s.print("\n")
	for _, r := range results {
		s.print(s.verdict(r))
	}
}

// verdict is a result in a sentence.
func (s *screen) verdict(r showcase.Result) string {
	colour := red
	if r.Holdfast.Answers == 1 && r.Holdfast.Executions == 1 {
		colour = green
	}
	begin := ""
	if s.many {
		begin = string(r.Era) + "  "
	}
	return fmt.Sprintf("%sWith Holdfast: %s. Without: %s.\n", begin, s.paint(colour, outcome(r.Holdfast, true)), outcome(r.Without, false))
}

// outcome is what became of a call, in words.
func outcome(o showcase.Outcome, cuts bool) string {
	text := "no answer, "
	if o.Answers > 0 {
		text = count(o.Answers, "answer") + ", "
	}
	text += count(o.Executions, "execution")
	if cuts {
		text += ", " + count(o.Cuts, "cut")
	}
	return text
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
