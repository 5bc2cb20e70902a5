// Package cli is the commands of the holdfast program.
package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfast-mcp/holdfast"
)

// companionCommand is the hidden command that the gateway starts beside itself.
const companionCommand = "companion"

// streams are a process's standard streams.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// Main runs the program with its arguments, the first of them its name, and
// returns its exit status: 0, or 1 for a failure, 2 for a wrong command line.
func Main(args []string) int {
	std := streams{os.Stdin, os.Stdout, os.Stderr}
	root := newRoot(std)
	root.SetArgs(args[1:])
	cmd, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	if exit, ok := errors.AsType[exitStatus](err); ok {
		return int(exit)
	}
	_, _ = fmt.Fprintf(std.err, "holdfast: %s\n", message(err))
	if isUsage(err) {
		hint := "holdfast serve"
		if cmd.HasParent() {
			hint = cmd.CommandPath()
		}
		_, _ = fmt.Fprintf(std.err, "Try: %s --help\n", hint)
		return 2
	}
	return 1
}

// exitStatus ends the program with a status and without a word.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// usageError is a wrong command line.
type usageError struct{ error }

func isUsage(err error) bool {
	_, ok := errors.AsType[usageError](err)
	return ok
}

// message is the error as the program tells it: under its own name once.
func message(err error) string {
	return strings.TrimSpace(strings.TrimPrefix(err.Error(), "holdfast: "))
}

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func newRoot(std streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "holdfast",
		Short: "Put MCP servers on the network, and keep their calls alive",
		Long: `Holdfast offers an MCP server that speaks stdio to every MCP client, over
HTTP+SSE and Streamable HTTP at once. Connections may break; calls go on.

  holdfast serve -- npx -y @modelcontextprotocol/server-everything

And it brings a server on the network to a client that speaks stdio:

  holdfast connect https://example.org/mcp

To see a call outlive its connections:

  holdfast demo`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("holdfast {{.Version}}\n")
	root.SuggestionsMinimumDistance = 2
	root.SetHelpFunc(help)
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(newServe(std), newConnect(std), newDemo(std), &cobra.Command{
		Use:    companionCommand,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			// It must outlive the gateway, whatever the terminal sends.
			signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			if status := holdfast.RunCompanion(std.in); status != 0 {
				return exitStatus(status)
			}
			return nil
		},
	})
	return root
}

// release is the version under development; a build from a tagged module knows
// its own.
const release = "0.1.0-dev"

// version returns the program's version, with the commit if it is known.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return release
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return release + "+" + s.Value[:12]
		}
	}
	return release
}
