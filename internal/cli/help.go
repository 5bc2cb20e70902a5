package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// noCommand refuses what is no command of ours.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usage("unknown command %q: did you mean %q?", args[0], near[0])
	}
	return usage("unknown command %q: to serve it, write holdfast serve -- %s", args[0], strings.Join(args, " "))
}

// flagError explains the mistake that is made most: a command without -- before
// it, so that its flags are taken for ours.
func flagError(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); len(args) > 0 && cmd.Name() == "serve" {
		return usage("%w; the flags of %q are told apart by a -- before it: holdfast serve [flags] -- %s …", err, args[0], args[0])
	}
	return usageError{err}
}

// help writes what a command is for, and its usage.
func help(cmd *cobra.Command, _ []string) {
	text := cmp.Or(cmd.Long, cmd.Short) + "\n\n" + cmd.UsageString()
	// A switch reads better without what it could be set to.
	_, _ = fmt.Fprint(cmd.OutOrStdout(), strings.ReplaceAll(text, "[=true|false]", "             "))
}

// helpWidth is where lines of the help are broken.
const helpWidth = 100

// groupedUsage writes a command's usage, its flags by what they are about.
func groupedUsage(cmd *cobra.Command, groups []group) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage:\n  %s\n\nExamples:\n%s\n", cmd.UseLine(), cmd.Example)
	for _, g := range groups {
		fmt.Fprintf(&b, "\n%s:\n%s", g.title, g.flags.FlagUsagesWrapped(helpWidth))
	}
	b.WriteString("\nOther:\n  --help, -h      this text\n  --version, -v   the version of holdfast\n")
	_, err := fmt.Fprint(cmd.OutOrStderr(), b.String())
	return err
}
