package soak

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/chaos"
)

// Row is what became of the calls of one connect, and of it.
type Row struct {
	Calls       int
	Answered    int
	Through     int // of them, those with a fault while they ran
	Unknown     int // ended by an error that says so
	NotExecuted int // the same
	Executions  int
	Twice       int           // executed more than once
	Hung        int           // without an end
	Late        time.Duration // the longest that a call took beyond its length
	Cuts        int
	Outages     int
	Stalls      int
	Redeploys   int
	Memory      Trend // bytes
	Files       Trend // descriptors
}

// Trend is how a measure went: before all, its medians in the middle third and
// in the last third of the run, and at rest after all.
type Trend struct{ First, Middle, Last, After int }

// Bounds of what a process may hold in the last third of the run beside the
// middle third, and at rest beside what it held at first.
const (
	memoryPart = 5       // a fifth more
	memorySlop = 4 << 20 // bytes, what one garbage collection more or less makes
	filesSlop  = 4       // connections of more calls at once
	filesRest  = 2       // a connection kept for the next call, a stream
)

// flat returns what is wrong with how memory and descriptors of so many processes
// went, "" if nothing grows.
func (row *Row) flat(processes int) string {
	m, f := row.Memory, row.Files
	switch {
	case m.Last > m.Middle+m.Middle/memoryPart+memorySlop:
		return fmt.Sprintf("memory grows: %d KiB in the middle third, %d in the last", m.Middle>>10, m.Last>>10)
	case f.Last > f.Middle+filesSlop*processes || f.After > f.First+filesRest*processes:
		return fmt.Sprintf("descriptors grow: %d at first, %d in the middle third, %d in the last, %d at rest", f.First, f.Middle, f.Last, f.After)
	}
	return ""
}

// trend makes one of a run's samples.
func trend(first, after holding, held []holding, of func(holding) int) Trend {
	t := Trend{First: of(first), After: of(after)}
	n := len(held)
	t.Middle, t.Last = median(held[n/3:n*2/3], of), median(held[n*2/3:], of)
	return t
}

func median(held []holding, of func(holding) int) int {
	if len(held) == 0 {
		return 0
	}
	var all []int
	for _, h := range held {
		all = append(all, of(h))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// Report is what came of a run.
type Report struct {
	Options  Options
	Took     time.Duration
	Names    []string // of the rows
	Rows     []*Row
	Total    Row
	Reasons  map[string]int // what errors said, without what differs
	Failures []string
}

func (r *run) judge(executed map[string]chaos.Executions) *Report {
	rep := &Report{Options: r.o, Took: time.Since(r.begin), Reasons: map[string]int{}}
	for _, l := range r.lines {
		row := &Row{Cuts: l.faults.counted(cut), Outages: l.faults.counted(outage), Stalls: l.faults.counted(stall), Redeploys: l.faults.counted(redeploy)}
		for _, c := range l.calls {
			if wrong := rep.verdict(l, row, c, executed[c.nonce]); wrong != "" {
				rep.Failures = append(rep.Failures, l.story(c, wrong, r.begin))
			}
		}
		row.Memory = trend(l.first, l.last, l.held, func(h holding) int { return h.rss })
		row.Files = trend(l.first, l.last, l.held, func(h holding) int { return h.files })
		if wrong := row.flat(1); wrong != "" {
			l.wrong = append(l.wrong, wrong)
		}
		for _, wrong := range l.wrong {
			rep.Failures = append(rep.Failures, fmt.Sprintf("%s: %s", l.pair, wrong))
		}
		rep.Names, rep.Rows = append(rep.Names, l.pair.String()), append(rep.Rows, row)
		rep.Total.add(row)
	}
	rep.Failures = append(rep.Failures, r.wrong...)
	if wrong := rep.Total.flat(len(rep.Rows)); wrong != "" {
		rep.Failures = append(rep.Failures, "all together: "+wrong)
	}
	return rep
}

// verdict judges one call, and returns what is wrong with it.
func (rep *Report) verdict(l *line, row *Row, c *call, e chaos.Executions) string {
	row.Calls++
	row.Executions += e.Began
	if e.Began > 1 {
		row.Twice++
		return fmt.Sprintf("executed %d times", e.Began)
	}
	if len(c.answers) == 0 {
		row.Hung++
		return "it has no end"
	}
	if len(c.answers) > 1 {
		return fmt.Sprintf("%d answers", len(c.answers))
	}
	row.Late = max(row.Late, c.ended.Sub(c.began)-c.length)
	m := c.answers[0]
	touched := len(l.faults.of(c.began, c.ended)) > 0
	if m.Error == nil {
		row.Answered++
		if touched {
			row.Through++
		}
		text := m.Text()
		switch {
		case !strings.HasPrefix(text, "answer "+c.nonce+" ") || len(text) != len("answer ")+len(c.nonce)+1+c.pad:
			return fmt.Sprintf("not its answer: %.200s", m.Bytes)
		case e.Began != 1:
			return "answered without an execution"
		}
		return ""
	}
	rep.Reasons[reason(m.Error.Message)]++
	var data struct {
		Outcome string `json:"outcome"`
	}
	err := json.Unmarshal(m.Error.Data, &data)
	switch {
	case err != nil || m.Error.Message == "":
		return fmt.Sprintf("no reason: %s", m.Bytes)
	case data.Outcome == "unknown":
		row.Unknown++
		if !touched {
			return fmt.Sprintf("nothing happened to it: %s", m.Bytes)
		}
	case data.Outcome == "not_executed":
		row.NotExecuted++
		if e.Began > 0 {
			return fmt.Sprintf("it was executed: %s", m.Bytes)
		}
	default:
		return fmt.Sprintf("no outcome: %s", m.Bytes)
	}
	return ""
}

var differs = regexp.MustCompile(`https?://\S+|\d[\d.:]*`)

// reason is an error's text without addresses and numbers.
func reason(text string) string { return differs.ReplaceAllString(text, "…") }

// story is what happened to a call.
func (l *line) story(c *call, wrong string, begin time.Time) string {
	var b strings.Builder
	since := func(t time.Time) string { return fmt.Sprintf("%8.3fs", t.Sub(begin).Seconds()) }
	ended := c.ended
	if ended.IsZero() {
		ended = time.Now()
	}
	_, _ = fmt.Fprintf(&b, "%s: %s, %s long, %d steps, %d of progress heard: %s\n", l.pair, c.nonce, c.length, c.steps, c.progress, wrong)
	_, _ = fmt.Fprintf(&b, "  %s  called\n", since(c.began))
	for _, e := range l.faults.of(c.began.Add(-5*time.Second), ended) {
		_, _ = fmt.Fprintf(&b, "  %s  %s, until %s: %s\n", since(e.at), e.kind, since(e.until), e.how)
	}
	_, _ = fmt.Fprintf(&b, "  %s  ended\n", since(ended))
	for _, m := range c.answers {
		_, _ = fmt.Fprintf(&b, "  %.300s\n", m.Bytes)
	}
	return b.String()
}

func (row *Row) add(o *Row) {
	row.Calls += o.Calls
	row.Answered += o.Answered
	row.Through += o.Through
	row.Unknown += o.Unknown
	row.NotExecuted += o.NotExecuted
	row.Executions += o.Executions
	row.Twice += o.Twice
	row.Hung += o.Hung
	row.Late = max(row.Late, o.Late)
	row.Cuts += o.Cuts
	row.Outages += o.Outages
	row.Stalls += o.Stalls
	row.Redeploys = max(row.Redeploys, o.Redeploys)
	row.Memory.add(o.Memory)
	row.Files.add(o.Files)
}

func (t *Trend) add(o Trend) {
	t.First += o.First
	t.Middle += o.Middle
	t.Last += o.Last
	t.After += o.After
}

func (t Trend) in(unit int) string {
	return fmt.Sprintf("%5d %5d %5d %5d", t.First/unit, t.Middle/unit, t.Last/unit, t.After/unit)
}

// String is the report as a table.
func (rep *Report) String() string {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "seed %d, %s scaled by %g, took %.1f s\n", rep.Options.Seed, rep.Options.Length, rep.Options.Scale, rep.Took.Seconds())
	_, _ = fmt.Fprintf(&b, "%-36s %5s %8s %7s %7s %8s %8s %5s %4s %6s %5s %7s %6s %8s   %-23s   %s\n", "client, server", "calls", "answered", "through", "unknown",
		"not run", "executed", "twice", "hung", "late s", "cuts", "outages", "stalls", "deployed", "MiB: first mid last rest", "descriptors: the same")
	for i, name := range append(slices.Clone(rep.Names), "all") {
		row := &rep.Total
		if i < len(rep.Rows) {
			row = rep.Rows[i]
		}
		_, _ = fmt.Fprintf(&b, "%-36s %5d %8d %7d %7d %8d %8d %5d %4d %6.1f %5d %7d %6d %8d   %s   %s\n", name, row.Calls, row.Answered, row.Through, row.Unknown,
			row.NotExecuted, row.Executions, row.Twice, row.Hung, row.Late.Seconds(), row.Cuts, row.Outages, row.Stalls, row.Redeploys, row.Memory.in(1<<20), row.Files.in(1))
	}
	b.WriteString("errors said:\n")
	for _, text := range slices.Sorted(maps.Keys(rep.Reasons)) {
		_, _ = fmt.Fprintf(&b, "%6d  %s\n", rep.Reasons[text], text)
	}
	_, _ = fmt.Fprintf(&b, "failures: %d\n", len(rep.Failures))
	return b.String()
}
