package main

import "fmt"

// target is one thing that the project promises, and whether it was so.
type target struct {
	what     string
	promised string
	measured string
	met      bool
}

const (
	streamable = "streamable"
	sse        = "sse"
	modern     = "modern"
)

// bindings are the ways in that every load is put on.
var bindings = []struct{ name, title string }{{streamable, "Streamable HTTP"}, {sse, "HTTP+SSE"}, {modern, "stateless"}}

func targets(r results) []target {
	var all []target
	for _, b := range bindings {
		all = append(all, calls(r, b.name, b.title, "calls16", "16 sessions, 256 B", 0.8)...)
		all = append(all, calls(r, b.name, b.title, "calls4x64k", "4 sessions, 64 KiB", 0.75)...)
		all = append(all, idle(r.of("idle5000", "holdfast-"+b.name), b.title))
		all = append(all, progress(r.of("progress", "holdfast-"+b.name), b.title))
		all = append(all, slow(r.of("slow", "holdfast-"+b.name), b.title)...)
	}
	return append(all, longcall(r.of("longcall-age", "holdfast-"+streamable)))
}

func calls(r results, binding, title, suite, load string, least float64) []target {
	ours, floor := r.of(suite, "holdfast-"+binding), r.of(suite, "floor-gw-"+binding)
	speed := ratio(ours.median("calls_per_s"), floor.median("calls_per_s"))
	cost := ratio(ours.median("gateway_cpu_us_per_call"), floor.median("gateway_cpu_us_per_call"))
	wrong := ours.worst("wrong_replies") + ours.worst("foreign_messages") + ours.worst("errors")
	return []target{
		{title + ", " + load + ": calls/s to the floor's", fmt.Sprintf("≥ %g", least), measured(ours, number(speed, 2)), speed >= least},
		{title + ", " + load + ": CPU per call to the floor's", "≤ 1.5", measured(ours, number(cost, 2)), cost > 0 && cost <= 1.5},
		{title + ", " + load + ": wrong, foreign or failed", "0", measured(ours, number(wrong, 0)), ran(ours) && wrong == 0},
	}
}

func idle(ours runs, title string) target {
	kib := ours.median("gateway_rss_kib_per_stream")
	ok := ran(ours) && ours.median("opened") == 5000 && ours.worst("dropped") == 0
	return target{title + ", 5,000 idle streams: memory each", "≤ 30 KiB", measured(ours, number(kib, 1)+" KiB"), ok && kib <= 30}
}

func progress(ours runs, title string) target {
	astray := ours.worst("lost") + ours.worst("misrouted") + ours.worst("out_of_order_or_twice")
	return target{title + ", 2,000 progress/s: lost, misrouted or out of order", "0", measured(ours, number(astray, 0)), ran(ours) && astray == 0}
}

func slow(ours runs, title string) []target {
	title += ", 200 MB to a client that does not read: "
	grown := ours.median("gateway_rss_peak_mib") - ours.median("gateway_rss_before_mib")
	kept := ratio(ours.median("during", "calls_per_s"), ours.median("before", "calls_per_s"))
	p99 := ratio(ours.median("during", "latency", "p99_us"), ours.median("before", "latency", "p99_us"))
	waits := max(ours.median("during", "oldest_unanswered_ms"), ours.median("during", "latency", "max_us")/1000)
	return []target{
		{title + "gateway memory above idle", "≤ 64 MiB", measured(ours, number(grown, 0)+" MiB"), ran(ours) && grown <= 64},
		{title + "the others' calls/s to before", "≥ 0.3", measured(ours, number(kept, 2)), kept >= 0.3},
		{title + "the others' p99 to before", "≤ 2", measured(ours, number(p99, 2)), p99 > 0 && p99 <= 2},
		{title + "longest wait of the others", "≤ 250 ms", measured(ours, number(waits, 0)+" ms"), ran(ours) && waits <= 250},
	}
}

func longcall(ours runs) target {
	arrived, started := true, ours.worst("tool_started")
	for _, n := range ours.numbers("arrived") {
		arrived = arrived && n == 1
	}
	how := fmt.Sprintf("%s, %.0f", ours.text("how"), started)
	return target{"Streamable HTTP, 12 s call cut after 5 s: how the answer came, and executions", "resume, 1", measured(ours, how),
		ran(ours) && arrived && started == 1}
}

// measured is text, unless there is nothing that it could stand for.
func measured(r runs, text string) string {
	if !ran(r) {
		return "not run, or failed"
	}
	return text
}

// ran says that there were runs and that none of them failed.
func ran(r runs) bool { return len(r) > 0 && r.failed() == 0 }

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
