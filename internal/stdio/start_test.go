package stdio

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestChildEnv(t *testing.T) {
	got := childEnv([]string{
		"A=1", "MCP_TRANSPORT=http", "MCP_TRANSPORT_X=kept", "HOLDFAST_A=1", "HOLDFAST_=", "HOLDFAST=kept", "B=x=y", "=C:=C:\\",
	})
	want := []string{"A=1", "MCP_TRANSPORT_X=kept", "HOLDFAST=kept", "B=x=y", "=C:=C:\\"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

type startErrorCase struct {
	name string
	cmd  Command
	want []string // words of the message
	is   error    // wrapped beside ErrStart, if not nil
}

func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	checkStartErrors(t, []startErrorCase{
		{"no command", Command{}, []string{"no command"}, nil},
		{"not in PATH", Command{Path: "no-such-server"}, []string{`"no-such-server" not found`, "PATH"}, nil},
		{"no working directory", Command{Path: "sh", Dir: filepath.Join(dir, "gone")}, []string{"working directory", "gone"}, os.ErrNotExist},
		{"working directory is a file", Command{Path: "sh", Dir: file}, []string{"working directory", "file"}, nil},
		{"environment", Command{Path: "sh", Env: []string{"NOVALUE"}}, []string{"NOVALUE", "KEY=VALUE"}, nil},
		{"environment without key", Command{Path: "sh", Env: []string{"=x"}}, []string{"KEY=VALUE"}, nil},
	})
}

func checkStartErrors(t *testing.T, tests []startErrorCase) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := StartProcess(tt.cmd, ProcessOptions{})
			if err == nil {
				p.KillGroup()
				p.Stop()
				t.Fatal("started")
			}
			if !errors.Is(err, ErrStart) {
				t.Errorf("does not wrap ErrStart: %v", err)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("does not wrap %v: %v", tt.is, err)
			}
			for _, word := range tt.want {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("no %q in: %v", word, err)
				}
			}
		})
	}
}
