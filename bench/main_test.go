package main

import (
	"slices"
	"strings"
	"testing"
)

// line makes one record as the load tool writes it.
func line(suite, system, result string) string {
	return `{"suite":"` + suite + `","system":"` + system + `","round":1,"output":{"result":` + result + `}}` + "\n"
}

func mustLoad(t *testing.T, lines ...string) results {
	t.Helper()
	res, err := load(strings.NewReader(strings.Join(lines, "")))
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestMedianAndWorst(t *testing.T) {
	res := mustLoad(t,
		line("s", "x", `{"n":{"p":9},"ok":true}`), line("s", "x", `{"n":{"p":1},"ok":true}`), line("s", "x", `{"n":{"p":4}}`),
		`{"suite":"s","system":"x","error":"died"}`+"\n")
	rs := res.of("s", "x")
	if got := rs.median("n", "p"); got != 4 {
		t.Errorf("median of 9, 1 and 4: got %g", got)
	}
	if got := rs.worst("n", "p"); got != 9 {
		t.Errorf("worst of 9, 1 and 4: got %g", got)
	}
	if got := rs.numbers("ok"); !slices.Equal(got, []float64{1, 1, 0}) {
		t.Errorf("true, true and nothing: got %v", got)
	}
	if rs.failed() != 1 || ran(rs) {
		t.Errorf("one failed run: got %d, ran %v", rs.failed(), ran(rs))
	}
	if none := res.of("s", "y"); none.median("n") != 0 || ran(none) {
		t.Error("a system without runs has a median, or ran")
	}
}

func TestNothingRunIsNothingMet(t *testing.T) {
	for _, target := range targets(results{}) {
		if target.met {
			t.Errorf("met without a run: %s", target.what)
		}
	}
}

func TestTargets(t *testing.T) {
	res := mustLoad(t,
		line("calls16", "floor-gw-sse", `{"calls_per_s":1000,"gateway_cpu_us_per_call":50}`),
		line("calls16", "holdfast-sse", `{"calls_per_s":800,"gateway_cpu_us_per_call":76}`),
		line("slow", "holdfast-sse", `{"gateway_rss_before_mib":20,"gateway_rss_peak_mib":84,"before":{"calls_per_s":1000,"latency":{"p99_us":1000}},"during":{"calls_per_s":299,"latency":{"p99_us":2000,"max_us":251000},"oldest_unanswered_ms":3}}`))
	want := map[string]bool{
		"HTTP+SSE, 16 sessions, 256 B: calls/s to the floor's":                                  true,
		"HTTP+SSE, 16 sessions, 256 B: CPU per call to the floor's":                             false,
		"HTTP+SSE, 200 MB to a client that does not read: gateway memory above idle":            true,
		"HTTP+SSE, 200 MB to a client that does not read: the others' calls/s to before":        false,
		"HTTP+SSE, 200 MB to a client that does not read: the others' p99 to before":            true,
		"HTTP+SSE, 200 MB to a client that does not read: longest wait of the others":           false,
		"Streamable HTTP, 12 s call cut after 5 s: how the answer came, and executions":         false,
		"Streamable HTTP, 2,000 progress/s: lost, misrouted or out of order":                    false,
		"Streamable HTTP, 200 MB to a client that does not read: longest wait of the others":    false,
		"Streamable HTTP, 200 MB to a client that does not read: gateway memory above idle":     false,
		"Streamable HTTP, 200 MB to a client that does not read: the others' p99 to before":     false,
		"Streamable HTTP, 200 MB to a client that does not read: the others' calls/s to before": false,
	}
	seen := 0
	for _, target := range targets(res) {
		if met, ok := want[target.what]; ok {
			seen++
			if met != target.met {
				t.Errorf("%s: %s of %s is met: %v", target.what, target.measured, target.promised, target.met)
			}
		}
	}
	if seen != len(want) {
		t.Errorf("%d of %d targets found", seen, len(want))
	}
}

func TestCheck(t *testing.T) {
	good := []string{
		line("smoke-calls", "holdfast-streamable", `{"calls":9}`), line("smoke-calls", "holdfast-sse", `{"calls":9}`),
		line("smoke-calls", "holdfast-modern", `{"calls":9}`), line("smoke-progress", "holdfast-modern", `{"delivered":9}`),
		line("smoke-slow", "holdfast-modern", `{"before":{"calls_per_s":99},"during":{"calls_per_s":50}}`),
		line("smoke-progress", "holdfast-streamable", `{"delivered":9}`), line("smoke-progress", "holdfast-sse", `{"delivered":9}`),
		line("smoke-longcall", "holdfast-streamable", `{"arrived":true,"tool_started":1}`),
		line("smoke-slow", "holdfast-streamable", `{"before":{"calls_per_s":99},"during":{"calls_per_s":50}}`),
		line("smoke-slow", "holdfast-sse", `{"before":{"calls_per_s":99},"during":{"calls_per_s":50}}`),
	}
	if bad := check(mustLoad(t, good...)); len(bad) > 0 {
		t.Errorf("a good run: %q", bad)
	}
	for _, worse := range []string{
		line("smoke-calls", "holdfast-sse", `{"calls":9,"foreign_messages":1}`),
		line("smoke-progress", "holdfast-streamable", `{"delivered":8,"lost":1}`),
		line("smoke-longcall", "holdfast-streamable", `{"arrived":true,"tool_started":2}`),
		line("smoke-slow", "holdfast-sse", `{"before":{"calls_per_s":9999},"during":{"calls_per_s":50}}`),
		`{"suite":"smoke-slow","system":"holdfast-sse","error":"does not listen"}` + "\n",
	} {
		if bad := check(mustLoad(t, append(slices.Clone(good), worse)...)); len(bad) == 0 {
			t.Errorf("nothing wrong found in %s", worse)
		}
	}
	if bad := check(results{}); len(bad) == 0 {
		t.Error("nothing wrong found in no run at all")
	}
}

func TestNumber(t *testing.T) {
	for _, tt := range []struct {
		v        float64
		decimals int
		want     string
	}{{0, 0, "0"}, {999.4, 0, "999"}, {1234.5, 1, "1,234.5"}, {1234567, 0, "1,234,567"}, {-1234, 0, "-1,234"}, {0.825, 2, "0.82"}} {
		if got := number(tt.v, tt.decimals); got != tt.want {
			t.Errorf("number(%g, %d) = %q, want %q", tt.v, tt.decimals, got, tt.want)
		}
	}
}

func TestWriteGo(t *testing.T) {
	var b strings.Builder
	writeGo(&b, "goos: linux\npkg: github.com/holdfast-mcp/holdfast/jsonrpc\nBenchmarkParse/small-2 \t 100\t 12345 ns/op\t 50.00 MB/s\t 0 B/op\t 0 allocs/op\nPASS\n"+
		"pkg: github.com/holdfast-mcp/holdfast\nBenchmarkCall-2 100 999 ns/op\n")
	for _, want := range []string{"| `jsonrpc` | Parse/small | 12.3 µs | 0 | 0 | 50.00 |\n", "| `.` | Call | 999 ns |  |  |  |\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no line %q in\n%s", want, b.String())
		}
	}
}
