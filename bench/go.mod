// The report of the load runs: a module of its own, like all that the gateway
// does not need.
module github.com/holdfast-mcp/holdfast/bench

go 1.26.0
