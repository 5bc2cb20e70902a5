package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
)

const head = `# Performance

Made by ` + "`make bench`" + `; do not edit. Load generator, gateway and stdio server share
the machine: %s.

The floor is the least gateway that can answer the load: it rewrites ids between
HTTP and one shared stdio child, and does nothing else. No sessions that end, no
event ids, no heartbeats, no limits. Holdfast runs as
` + "`holdfast serve --isolation shared --log-level warn -- fixture`" + `, all else default.
Holdfast and floor ran in turn; every figure is the median of three runs (idle: one).

## What is promised

| what | promised | measured | met |
| --- | --- | --- | --- |
`

// machine says what the figures were taken on.
func machine() string {
	model := runtime.GOARCH
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if m := regexp.MustCompile(`(?m)^model name\s*:\s*(.*)$`).FindSubmatch(b); m != nil {
			model = strings.TrimSpace(string(m[1]))
		}
	}
	return fmt.Sprintf("%d cores of %s, %s, %s", runtime.NumCPU(), model, runtime.GOOS, runtime.Version())
}

// number prints with thousands separated, and – for what was not measured.
func number(v float64, decimals int) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	s := strconv.FormatFloat(math.Abs(v), 'f', decimals, 64)
	whole, rest, _ := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if rest != "" {
		whole += "." + rest
	}
	if v < 0 {
		whole = "-" + whole
	}
	return whole
}

func write(w io.Writer, r results, machine, gobench string) {
	fmt.Fprintf(w, head, machine)
	for _, t := range targets(r) {
		met := "yes"
		if !t.met {
			met = "**no**"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", t.what, t.promised, t.measured, met)
	}
	fmt.Fprint(w, "\n## Calls\n")
	for _, s := range []struct{ suite, title string }{
		{"calls16", "16 sessions, 256 B"}, {"calls4x64k", "4 sessions, 64 KiB"}, {"calls1", "1 session, 256 B"},
	} {
		writeCalls(w, r, s.suite, s.title)
	}
	writeIdle(w, r)
	writeProgress(w, r)
	writeSlow(w, r)
	writeLongcall(w, r)
	fmt.Fprint(w, "\n"+peers)
	writeGo(w, gobench)
}

// each calls f for both systems of each binding that has runs of a suite.
func each(r results, suite string, f func(title string, rs runs)) {
	for _, b := range bindings {
		for _, s := range []struct{ name, title string }{{"floor-gw-", "floor"}, {"holdfast-", "**Holdfast**"}} {
			if rs := r.of(suite, s.name+b.name); len(rs) > 0 {
				f(s.title+", "+b.title, rs)
			}
		}
	}
}

func table(w io.Writer, columns ...string) {
	fmt.Fprintf(w, "\n| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat(" --- |", len(columns)))
}

func writeCalls(w io.Writer, r results, suite, title string) {
	table(w, title, "calls/s", "p50 µs", "p99 µs", "gateway CPU µs/call", "wrong", "foreign", "errors")
	each(r, suite, func(title string, rs runs) {
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", title, number(rs.median("calls_per_s"), 0),
			number(rs.median("latency", "p50_us"), 0), number(rs.median("latency", "p99_us"), 0),
			number(rs.median("gateway_cpu_us_per_call"), 0), number(rs.worst("wrong_replies"), 0),
			number(rs.worst("foreign_messages"), 0), number(rs.worst("errors")+float64(rs.failed()), 0))
	})
	for _, b := range bindings {
		ours, floor := r.of(suite, "holdfast-"+b.name), r.of(suite, "floor-gw-"+b.name)
		if len(ours) == 0 || len(floor) == 0 {
			continue
		}
		fmt.Fprintf(w, "| ratio, %s | %s | %s | %s | %s | | | |\n", b.title,
			number(ratio(ours.median("calls_per_s"), floor.median("calls_per_s")), 2),
			number(ratio(ours.median("latency", "p50_us"), floor.median("latency", "p50_us")), 2),
			number(ratio(ours.median("latency", "p99_us"), floor.median("latency", "p99_us")), 2),
			number(ratio(ours.median("gateway_cpu_us_per_call"), floor.median("gateway_cpu_us_per_call")), 2))
	}
}

func writeIdle(w io.Writer, r results) {
	fmt.Fprint(w, "\n## Idle streams\n")
	table(w, "5,000 streams, one connection each", "opened", "opened/s", "gateway KiB/stream", "dropped", "errors")
	each(r, "idle5000", func(title string, rs runs) {
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n", title, number(rs.median("opened"), 0),
			number(rs.median("opened_per_s"), 0), number(rs.median("gateway_rss_kib_per_stream"), 1),
			number(rs.worst("dropped"), 0), number(rs.worst("errors")+float64(rs.failed()), 0))
	})
}

func writeProgress(w io.Writer, r results) {
	fmt.Fprint(w, "\n## Progress\n")
	table(w, "20 clients, 2,000 notifications/s", "delivered/s", "lost", "misrouted", "out of order or twice", "lag p50 µs", "lag p99 µs", "gateway CPU µs/event")
	each(r, "progress", func(title string, rs runs) {
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", title, number(rs.median("delivered_per_s"), 0),
			number(rs.worst("lost"), 0), number(rs.worst("misrouted"), 0), number(rs.worst("out_of_order_or_twice"), 0),
			number(rs.median("lag", "p50_us"), 0), number(rs.median("lag", "p99_us"), 0), number(rs.median("gateway_cpu_us_per_event"), 0))
	})
}

func writeSlow(w io.Writer, r results) {
	fmt.Fprint(w, "\n## A client that does not read\n")
	table(w, "200 MB of notifications in 12 s, 4 other clients", "memory MiB before / peak / after", "others' calls/s before / during / after",
		"others' p99 µs before / during / after", "oldest unanswered ms")
	triple := func(rs runs, decimals int, path ...string) string {
		var parts []string
		for _, phase := range []string{"before", "during", "after"} {
			parts = append(parts, number(rs.median(append([]string{phase}, path...)...), decimals))
		}
		return strings.Join(parts, " / ")
	}
	each(r, "slow", func(title string, rs runs) {
		fmt.Fprintf(w, "| %s | %s / %s / %s | %s | %s | %s |\n", title, number(rs.median("gateway_rss_before_mib"), 0),
			number(rs.median("gateway_rss_peak_mib"), 0), number(rs.median("gateway_rss_after_disconnect_mib"), 0),
			triple(rs, 0, "calls_per_s"), triple(rs, 0, "latency", "p99_us"), number(rs.median("during", "oldest_unanswered_ms"), 0))
	})
}

func writeLongcall(w io.Writer, r results) {
	fmt.Fprint(w, "\n## A long call on a connection that is cut\n")
	table(w, "12 s tool, every connection cut at 5 s of age", "answer", "executions", "cuts", "seconds")
	each(r, "longcall-age", func(title string, rs runs) {
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", title, rs.text("how"), number(rs.worst("tool_started"), 0),
			number(rs.median("cuts"), 0), number(rs.median("seconds"), 1))
	})
	fmt.Fprint(w, "\nThe load generator's HTTP+SSE client opens a new session after a cut, as that\n"+
		"version of the protocol has it; it never sends `Last-Event-ID`.\n")
}

// writeGo makes a table of the lines of `go test -bench -benchmem`.
func writeGo(w io.Writer, out string) {
	fmt.Fprint(w, "\n## The project's own benchmarks\n")
	table(w, "package", "benchmark", "time/op", "B/op", "allocs/op", "MB/s")
	pkg := ""
	for line := range strings.Lines(out) {
		if p, ok := strings.CutPrefix(line, "pkg: "); ok {
			pkg = strings.TrimPrefix(strings.TrimSpace(p), "github.com/holdfast-mcp/holdfast")
			pkg = strings.TrimPrefix(pkg, "/")
			if pkg == "" {
				pkg = "."
			}
		}
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		per := map[string]string{}
		for i := 2; i+1 < len(fields); i += 2 {
			per[fields[i+1]] = fields[i]
		}
		name := strings.TrimPrefix(fields[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i]
		}
		fmt.Fprintf(w, "| `%s` | %s | %s | %s | %s | %s |\n", pkg, name, duration(per["ns/op"]), per["B/op"], per["allocs/op"], per["MB/s"])
	}
}

func duration(ns string) string {
	v, err := strconv.ParseFloat(ns, 64)
	switch {
	case err != nil:
		return "–"
	case v >= 1e6:
		return number(v/1e6, 2) + " ms"
	case v >= 1e4:
		return number(v/1e3, 1) + " µs"
	}
	return number(v, 0) + " ns"
}
