// Real proxies before a real gateway: a module of its own, like all that the
// gateway does not need.
module github.com/holdfast-mcp/holdfast/proxies

go 1.26.0
