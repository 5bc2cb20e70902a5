package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mcp/holdfast/internal/liveness"
	"github.com/holdfast-mcp/holdfast/internal/stdio"
)

// good is a row with nothing against it.
func good(s scenario) row {
	return row{
		scenario: s, reached: s.want, after: 3 * time.Second, evidence: []string{"no CPU"},
		path: []liveness.Verdict{liveness.Working, s.want, liveness.Idle}, end: s.end,
	}
}

func TestJudge(t *testing.T) {
	for _, s := range scenarios {
		if bad := good(s).judge(); len(bad) > 0 {
			t.Errorf("%s %s: %q", s.server, s.tool, bad)
		}
	}
	healthy := scenario{want: liveness.Blocked, end: answered}
	dead := scenario{dead: true, want: liveness.Stuck, end: idle}
	tests := []struct {
		name string
		of   scenario
		want string
		f    func(r *row)
	}{
		{name: "another verdict", of: healthy, want: "busy, not blocked", f: func(r *row) { r.reached = liveness.Busy }},
		{name: "late", of: dead, want: "stuck only after 4.1 s", f: func(r *row) { r.after = 4100 * time.Millisecond }},
		{name: "healthy and ended", of: healthy, want: "the call was ended by the idle clock", f: func(r *row) { r.end = idle }},
		{name: "healthy and called stuck", of: healthy, want: "was called stuck", f: func(r *row) { r.path = append(r.path, liveness.Stuck) }},
		{name: "dead and called waiting", of: dead, want: "was called waiting", f: func(r *row) { r.path = append(r.path, liveness.Waiting) }},
		{name: "in doubt", of: dead, want: "came and went", f: func(r *row) { r.path = append(r.path, liveness.Working, liveness.Stuck) }},
		{name: "failed", of: dead, want: "no such file", f: func(r *row) { r.err = errors.New("no such file") }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := good(tt.of)
			tt.f(&r)
			if bad := judge([]row{r}); len(bad) != 1 || !strings.Contains(bad[0], tt.want) {
				t.Errorf("found %q, not %q", bad, tt.want)
			}
		})
	}
	if len(judge(nil)) == 0 {
		t.Error("no rows are good rows")
	}
}

// What has to be shown is in the table.
func TestEveryScenarioIsThere(t *testing.T) {
	have := map[string]liveness.Verdict{}
	for _, s := range scenarios {
		name := s.server + " " + s.tool
		if s.stop {
			name += " stopped"
		}
		if _, twice := have[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		have[name] = s.want
	}
	for name, want := range map[string]liveness.Verdict{
		"node cpu": liveness.Blocked, "asyncio cpu": liveness.Blocked, "node sleep": liveness.Busy, "asyncio sleep": liveness.Busy,
		"asyncio process_blocking": liveness.Waiting, "asyncio http_blocking": liveness.Waiting, "asyncio http": liveness.Busy,
		"node sleep stopped": liveness.Stuck, "asyncio deadlock": liveness.Stuck, "node exit": liveness.Gone,
		"asyncio close_stdout": liveness.Gone, "node never": liveness.Busy, "ignores cpu": liveness.Blocked,
		"node, gc collect_garbage": liveness.Busy, "node cpu_with_progress": liveness.Working,
	} {
		if got, ok := have[name]; !ok || got != want {
			t.Errorf("%s: %s, not %s", name, got, want)
		}
	}
}

func TestWrite(t *testing.T) {
	spoilt := good(scenarios[0])
	spoilt.reached = liveness.Stuck
	noted := good(scenarios[1])
	noted.note = "3 objects"
	var doc strings.Builder
	write(&doc, []string{"node 1", "Python 2"}, []row{spoilt, noted})
	for _, want := range []string{
		"on node 1 and Python 2.",
		"| node | CPU loop that blocks the event loop | **stuck, not blocked** | 3.0 s | no CPU | answered, once |\n",
		"| asyncio | CPU loop that blocks the event loop | blocked | 3.0 s | no CPU; (the server: 3 objects) | answered, once |\n",
	} {
		if !strings.Contains(doc.String(), want) {
			t.Errorf("no %q in\n%s", want, doc.String())
		}
	}
}

// shell is a server of one line of sh, for what needs no real one.
func shell(t *testing.T, script string) surroundings {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "server")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return surroundings{python: file, node: file, children: dir}
}

const hello = `read hello; echo '{"id":"hello","result":{}}'; read initialized; read ping; echo '{"id":"ping-1","result":{}}'; read call; `

func TestOwnerSees(t *testing.T) {
	tests := []struct {
		name, script string
		end          end
		err          string
	}{
		{"answer", hello + `echo '{"id":"call","result":{"content":[{"text":"{\"executions\":1}"}]}}'; read end`, answered, ""},
		{"second execution", hello + `echo '{"id":"call","result":{"content":[{"text":"{\"executions\":2}"}]}}'; read end`, "", "executed 2 times"},
		{"error", hello + `echo '{"id":"call","error":{"code":-1}}'; read end`, "", "answer is"},
		{"exit", hello + `exit 3`, lost, ""},
		{"exit at the start", `exit 3`, "", "ended early"},
		{"junk", hello + `echo junk; read end`, "", "junk"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := run(t.Context(), shell(t, tt.script), scenario{server: "asyncio", tool: "x"})
			if r.end != tt.end || (r.err == nil) != (tt.err == "") || r.err != nil && !strings.Contains(r.err.Error(), tt.err) {
				t.Errorf("ended %q, %v", r.end, r.err)
			}
			if tt.end == lost && (r.reached != liveness.Gone || !slices.Equal(r.evidence, []string{"exited with status 3"})) {
				t.Errorf("%s: %q", r.reached, r.evidence)
			}
		})
	}
}

func TestNothingToRun(t *testing.T) {
	err := table(t.Context(), surroundings{node: "/nowhere/node", python: "/nowhere/python"}, "", 1, "")
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without node: %v", err)
	}
	r := run(t.Context(), surroundings{python: "/nowhere/python"}, scenario{server: "asyncio"})
	if !errors.Is(r.err, stdio.ErrStart) {
		t.Errorf("without Python: %v", r.err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := run(ctx, shell(t, "read end"), scenario{server: "asyncio"}); !errors.Is(r.err, context.Canceled) {
		t.Errorf("cancelled: %v", r.err)
	}
}
