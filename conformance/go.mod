// The report of the conformance run: a module of its own, like all that the
// gateway does not need.
module github.com/holdfast-mcp/holdfast/conformance

go 1.26.0
