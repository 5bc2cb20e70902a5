// Command holdfast puts MCP servers on the network and keeps their calls alive.
package main

import (
	"os"

	"github.com/holdfast-mcp/holdfast/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args)) }
