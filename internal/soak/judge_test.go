package soak

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/chaos"
	"github.com/holdfast-mcp/holdfast/internal/testkit"
)

// What grows is told from what goes up and down.
func TestFlat(t *testing.T) {
	const n = 150
	for name, tt := range map[string]struct {
		rss, files func(i int) int
		after      int
		want       string
	}{
		"still":              {func(int) int { return 20 << 20 }, func(int) int { return 10 }, 10, ""},
		"grows at first":     {func(i int) int { return min(i, n/3) << 19 }, func(i int) int { return 5 + min(i, 9) }, 10, ""},
		"up and down":        {func(i int) int { return 20<<20 + i%7<<20 }, func(i int) int { return 10 + i%12 }, 12, ""},
		"a leak of memory":   {func(i int) int { return 15<<20 + i<<18 }, func(int) int { return 10 }, 10, "memory grows"},
		"a leak of files":    {func(int) int { return 20 << 20 }, func(i int) int { return 10 + i/5 }, 40, "descriptors grow"},
		"files are not back": {func(int) int { return 20 << 20 }, func(int) int { return 10 }, 13, "descriptors grow"},
	} {
		var held []holding
		for i := range n {
			held = append(held, holding{rss: tt.rss(i), files: tt.files(i)})
		}
		row := Row{
			Memory: trend(held[0], held[n-1], held, func(h holding) int { return h.rss }),
			Files:  trend(holding{files: 10}, holding{files: tt.after}, held, func(h holding) int { return h.files }),
		}
		if got := row.flat(1); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestVerdict(t *testing.T) {
	begin := time.Now()
	answer := func(text string) string {
		return `{"jsonrpc":"2.0","id":"n","result":{"content":[{"type":"text","text":"` + text + `"}]}}`
	}
	fault := func(data string) string {
		return `{"jsonrpc":"2.0","id":"n","error":{"code":-32000,"message":"lost","data":` + data + `}}`
	}
	good := answer("answer n xx")
	for name, tt := range map[string]struct {
		answers  []string
		executed int
		touched  bool
		want     string // "" if all is well
	}{
		"answered":               {[]string{good}, 1, false, ""},
		"answered through a cut": {[]string{good}, 1, true, ""},
		"unknown, executed":      {[]string{fault(`{"outcome":"unknown"}`)}, 1, true, ""},
		"unknown, not executed":  {[]string{fault(`{"outcome":"unknown"}`)}, 0, true, ""},
		"not executed":           {[]string{fault(`{"outcome":"not_executed"}`)}, 0, true, ""},
		"a false not executed":   {[]string{fault(`{"outcome":"not_executed"}`)}, 1, true, "it was executed"},
		"for nothing":            {[]string{fault(`{"outcome":"unknown"}`)}, 1, false, "nothing happened"},
		"no outcome":             {[]string{fault(`{}`)}, 1, true, "no outcome"},
		"no data":                {[]string{fault(`7`)}, 1, true, "no reason"},
		"executed twice":         {[]string{good}, 2, true, "executed 2 times"},
		"unknown and twice":      {[]string{fault(`{"outcome":"unknown"}`)}, 2, true, "executed 2 times"},
		"answered twice":         {[]string{good, good}, 1, true, "2 answers"},
		"hung":                   {nil, 1, true, "no end"},
		"another's answer":       {[]string{answer("answer m xx")}, 1, false, "not its answer"},
		"a short answer":         {[]string{answer("answer n x")}, 1, false, "not its answer"},
		"out of thin air":        {[]string{good}, 0, false, "without an execution"},
	} {
		l, row, rep := &line{}, &Row{}, &Report{Reasons: map[string]int{}}
		if tt.touched {
			l.faults.note(cut)("%d connections", 1)
		}
		c := &call{nonce: "n", pad: 2, began: begin, ended: time.Now()}
		if !tt.touched {
			l.faults.note(cut) // later
		}
		for _, a := range tt.answers {
			m, err := testkit.Parse([]byte(a))
			if err != nil {
				t.Fatal(err)
			}
			c.answers = append(c.answers, m)
		}
		got := rep.verdict(l, row, c, chaos.Executions{Began: tt.executed})
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
		if all := row.Answered + row.Unknown + row.NotExecuted; tt.want == "" && all != 1 {
			t.Errorf("%s: counted %d times", name, all)
		}
		if story := l.story(c, "why", begin); !strings.Contains(story, "why") {
			t.Errorf("%s: %s", name, story)
		}
	}
}

func TestReasonsAreCountedAlike(t *testing.T) {
	if got := reason(fmt.Sprintf("MCP server at http://127.0.0.1:%d/x: HTTP 404", 80)); got != "MCP server at … HTTP …" {
		t.Error(got)
	}
}
