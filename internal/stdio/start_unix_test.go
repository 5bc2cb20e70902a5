//go:build unix

package stdio

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStartErrorsOfFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	checkStartErrors(t, []startErrorCase{
		{"not there", Command{Path: filepath.Join(dir, "none")}, []string{"none", "not found", "check the path"}, os.ErrNotExist},
		{"relative to the directory", Command{Path: "./none", Dir: dir}, []string{"not found", filepath.Join(dir, "none")}, os.ErrNotExist},
		{"mode", Command{Path: write("plain", "text", 0o600)}, []string{"plain", "may not be run", "mode"}, os.ErrPermission},
		{"a directory", Command{Path: dir}, []string{"may not be run", "a file"}, os.ErrPermission},
		{"interpreter", Command{Path: write("script", "#!/no/such/interpreter\n", 0o700)}, []string{"script", "interpreter"}, os.ErrNotExist},
		{"no program", Command{Path: write("junk", "\x00\x01\x02", 0o700)}, []string{"junk", "architecture"}, nil},
	})
}

// A PATH for the server is the one the server is looked up in.
func TestPathOfCommand(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "stdio-test-server")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	list := func(dirs ...string) string { return "PATH=" + strings.Join(dirs, string(filepath.ListSeparator)) }
	tests := []struct {
		name string
		env  []string
		want string
	}{
		{"in it", []string{list("/none", dir)}, script},
		{"the last counts", []string{list("/none"), list(dir)}, script},
		{"not in it", []string{list("/none")}, "stdio-test-server"},
		{"relative", []string{list("", ".")}, "stdio-test-server"},
	}
	t.Chdir(dir)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cmd, err := Command{Path: "stdio-test-server", Env: tt.env}.build()
			if err != nil {
				t.Fatal(err)
			}
			if cmd.Path != tt.want {
				t.Errorf("got %s, want %s", cmd.Path, tt.want)
			}
		})
	}
}
