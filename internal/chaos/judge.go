package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Row is what happened to the calls of one era and one kind.
type Row struct {
	Calls      int // twins: pairs
	Answered   int
	Cancelled  int // calls given up, without an answer
	Executions int
	Resumes    int
	Recalls    int
	Adopted    int // answers that came of an execution which an earlier request had begun
	Window     int // executions more than one, because an answer was written to its end and lost on the way
	Passed     int // of them, those where the answer had passed the link, too
	Blind      int // the same, because a connection was dead and nobody could tell
	Early      int // the same, because the client was back before the gateway had read the end of its connection
	ByEra      int // the same, because closing the stream cancels in the stateless era
	Lost       int // no answer, though one was wanted
	Again      int // executions more than one without an excuse
	Merged     int // twins that were executed once
}

// Report is what came of a run.
type Report struct {
	Seed   uint64
	Took   time.Duration
	Rows   map[string]*Row // by era and kind
	Faults map[string]int
	Total  Row
	// Failures are the calls with something wrong, each with its story.
	Failures []string
}

func (r *run) judge(executed map[string]Executions, t *tap, took time.Duration) *Report {
	rep := &Report{Seed: r.o.Seed, Took: took, Rows: map[string]*Row{}, Faults: map[string]int{}}
	pairs := map[string][]*record{}
	for _, rec := range r.records {
		pairs[rec.call.nonce] = append(pairs[rec.call.nonce], rec)
		for _, f := range rec.faults {
			rep.Faults[f.kind()]++
		}
	}
	for _, nonce := range slices.Sorted(maps.Keys(pairs)) {
		all := pairs[nonce]
		c := all[0].call
		name := fmt.Sprintf("%s  %s", c.era, c.kind)
		if rep.Rows[name] == nil {
			rep.Rows[name] = &Row{}
		}
		row := verdict(all, executed[nonce], t.of(nonce))
		rep.Rows[name].add(row)
		rep.Total.add(row)
		rep.failed(all, executed[nonce], t.of(nonce))
	}
	return rep
}

// verdict judges one call, or two that are twins.
func verdict(all []*record, e Executions, p passage) Row {
	row := Row{Calls: 1, Executions: e.Began}
	for _, rec := range all {
		rec.outcome(&row)
	}
	rec := all[0]
	if rec.call.kind == Twins {
		if e.Began < 2 || row.Adopted > 0 {
			row.Merged = 1
			rec.fail("healthy twins were merged: %d executions", e.Began)
		} else if e.Began > 2 {
			row.Again = e.Began - 2
			rec.fail("twins were executed %d times", e.Began)
		}
		return row
	}
	if row.Answered > 0 && e.Began == 0 {
		rec.fail("answered without an execution")
	}
	if e.Cancelled > 0 && rec.call.kind != Cancelling && rec.call.kind != Closing {
		rec.fail("an execution was cancelled that was wanted")
	}
	if rec.call.kind == Cancelling && rec.inVain(e) {
		rec.fail("executed to its end, though cancelled")
	}
	if e.Running() > 0 {
		rec.fail("%d executions were never told that nobody wants them", e.Running())
	}
	row.excuse(rec, max(0, e.Began-1), p)
	if row.Again > 0 {
		rec.fail("executed %d times", e.Began)
	}
	return row
}

// outcome says what the client got.
func (rec *record) outcome(row *Row) {
	answers := 0
	for id, n := range rec.answers {
		if answers += n; n > 1 {
			rec.fail("%d answers to %s", n, id)
		}
	}
	switch {
	case answers > 0:
		row.Answered++
	case rec.call.kind == Cancelling:
		row.Cancelled++
	default:
		row.Lost++
		rec.fail("no answer")
	}
	if rec.adopted {
		row.Adopted++
	}
	row.Resumes += rec.resumes
	row.Recalls += rec.recalls
}

// inVain reports whether an execution went on that should have been cancelled.
func (rec *record) inVain(e Executions) bool {
	return rec.gaveUp > 0 && rec.gaveUp < rec.call.length*3/4 && rec.call.length-rec.gaveUp > 200*time.Millisecond && e.Ended > 0
}

// after says when things happened, in seconds since the call began.
func (rec *record) after(times []time.Time) string {
	var all []string
	for _, t := range times {
		all = append(all, fmt.Sprintf("%.3f", t.Sub(rec.began).Seconds()))
	}
	return "[" + strings.Join(all, " ") + "]"
}

// excuse looks for why a call was executed more than once. Who gives a key or
// cancels has no excuse, nor has who resumes for as long as it has a position.
// p is how it passed the tap.
func (row *Row) excuse(rec *record, extra int, p passage) {
	take := func(n int) int {
		n = min(n, extra)
		extra -= n
		return n
	}
	switch rec.call.kind {
	case Closing:
		row.ByEra = take(rec.recalls)
	case Fresh, Resuming, Lingering:
		row.Window = take(min(rec.recalls, p.windows(row.Answered)))
		row.Passed = min(row.Window, rec.passed)
		row.Blind = take(min(rec.recalls, rec.blind))
		if !slices.ContainsFunc(rec.faults, Fault.halfOpen) {
			row.Early = take(min(rec.recalls, p.early()))
		}
	}
	row.Again = extra
}

func (row *Row) add(o Row) {
	row.Calls += o.Calls
	row.Answered += o.Answered
	row.Cancelled += o.Cancelled
	row.Executions += o.Executions
	row.Resumes += o.Resumes
	row.Recalls += o.Recalls
	row.Adopted += o.Adopted
	row.Window += o.Window
	row.Passed += o.Passed
	row.Blind += o.Blind
	row.Early += o.Early
	row.ByEra += o.ByEra
	row.Lost += o.Lost
	row.Again += o.Again
	row.Merged += o.Merged
}

func (rep *Report) failed(all []*record, e Executions, p passage) {
	var b strings.Builder
	for _, rec := range all {
		if len(rec.wrong) > 0 {
			_, _ = fmt.Fprintf(&b, "%s: %s, %s on %s, %v, %d steps: %s\n", rec.call.nonce, rec.call.era, rec.call.kind,
				rec.call.server.Path, rec.call.length, rec.call.steps, strings.Join(rec.wrong, "; "))
		}
	}
	if b.Len() == 0 {
		return
	}
	rec0 := all[0]
	_, _ = fmt.Fprintf(&b, "  executions %+v, arrived %s, answers written %s, connections ended %s\n", e, rec0.after(p.arrived), rec0.after(p.written), rec0.after(p.ended))
	for _, rec := range all {
		for _, line := range rec.trace {
			_, _ = fmt.Fprintf(&b, "  %s\n", line)
		}
	}
	rep.Failures = append(rep.Failures, b.String())
}

// String is the report as a table.
func (rep *Report) String() string {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "seed %d, %d calls in %.1f s\n", rep.Seed, rep.Total.Calls, rep.Took.Seconds())
	_, _ = fmt.Fprintf(&b, "%-30s %7s %8s %6s %8s %7s %7s %7s %6s %6s %5s %5s %6s %4s %5s %6s\n", "era, client", "calls", "answered", "given", "executed",
		"resumed", "recalls", "adopted", "window", "passed", "blind", "early", "by era", "lost", "again", "merged")
	for _, name := range append(slices.Sorted(maps.Keys(rep.Rows)), "all") {
		row := rep.Rows[name]
		if name == "all" {
			row = &rep.Total
		}
		_, _ = fmt.Fprintf(&b, "%-30s %7d %8d %6d %8d %7d %7d %7d %6d %6d %5d %5d %6d %4d %5d %6d\n", name, row.Calls, row.Answered, row.Cancelled,
			row.Executions, row.Resumes, row.Recalls, row.Adopted, row.Window, row.Passed, row.Blind, row.Early, row.ByEra, row.Lost, row.Again, row.Merged)
	}
	b.WriteString("connections:")
	for _, kind := range slices.Sorted(maps.Keys(rep.Faults)) {
		_, _ = fmt.Fprintf(&b, " %s %d;", kind, rep.Faults[kind])
	}
	_, _ = fmt.Fprintf(&b, " failures: %d\n", len(rep.Failures))
	return b.String()
}
