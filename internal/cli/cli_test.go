//go:build unix

package cli_test

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/holdfast-mcp/holdfast/internal/cli"
)

// TestMain lets the test's own binary be the programs that the scripts run.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"holdfast": func() { os.Exit(cli.Main(os.Args)) },
		"child":    func() { os.Exit(childMain(os.Args[1:])) },
	})
}

// TestScripts runs the transcripts in testdata/script. Beside testscript's own
// commands they have those of scriptCommands.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		Setup:               setup,
		Cmds:                scriptCommands(),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}
