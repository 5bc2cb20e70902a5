package era

import (
	"bytes"
	"slices"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// Error codes of the stateless era (2026-07-28 basic, "Error Codes"), and those
// of the handshake era that it gave up.
const (
	CodeHeaderMismatch     = -32020
	CodeMissingCapability  = -32021
	CodeUnsupportedVersion = -32022

	CodeResourceNotFound = -32002 // until 2025-11-25; -32602 since
	CodeURLElicitation   = -32042 // 2025-11-25 only
)

// Keys of _meta (2026-07-28 basic, "_meta").
const (
	MetaPrefix       = "io.modelcontextprotocol/"
	MetaVersion      = MetaPrefix + "protocolVersion"
	MetaClient       = MetaPrefix + "clientInfo"
	MetaCapabilities = MetaPrefix + "clientCapabilities"
	MetaLogLevel     = MetaPrefix + "logLevel"
	MetaServer       = MetaPrefix + "serverInfo"
	MetaSubscription = MetaPrefix + "subscriptionId"
)

// RequestMeta are the keys of a stateless request's _meta that are addressed
// to whoever speaks that era, and mean nothing to a server of the other one.
func RequestMeta() []string { return []string{MetaVersion, MetaClient, MetaCapabilities, MetaLogLevel} }

// StatelessVersions are the stateless revisions that are served.
func StatelessVersions() []Version { return []Version{V20260728} }

// Served are all revisions that are served, newest first.
func Served() []Version {
	return append(StatelessVersions(), V20251125, V20250618, V20250326, V20241105)
}

// RecognizedModernError reports whether an error answer shows that who sent it
// speaks the stateless era (2026-07-28 basic/transports/stdio, "Backward
// Compatibility").
func RecognizedModernError(errorObject []byte) bool {
	switch string(jsonrpc.Get(errorObject, "code")) {
	case "-32020", "-32021", "-32022":
		return true
	}
	return false
}

// Cacheable reports whether results of the method carry ttlMs and cacheScope
// (2026-07-28 server/utilities/caching).
func Cacheable(method string) bool {
	return slices.Contains([]string{"server/discover", "tools/list", "prompts/list", "resources/list",
		"resources/templates/list", "resources/read"}, method)
}

// MayAsk reports whether a request of the method may be answered with
// input_required (2026-07-28 basic/patterns/mrtr, "Supported Requests").
func MayAsk(method string) bool {
	return method == "tools/call" || method == "prompts/get" || method == "resources/read"
}

// Known reports whether a revision of the handshake era defines the request.
func Known(method string) bool {
	return slices.Contains([]string{"initialize", "ping", "tools/list", "tools/call", "prompts/list", "prompts/get", "resources/list",
		"resources/read", "resources/templates/list", "resources/subscribe", "resources/unsubscribe", "completion/complete",
		"logging/setLevel", "tasks/get", "tasks/result", "tasks/list", "tasks/cancel"}, method)
}

// Removed reports whether the stateless era does without the method.
func Removed(method string) bool {
	return slices.Contains([]string{"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe",
		"notifications/initialized", "notifications/roots/list_changed"}, method)
}

// FromStateless returns the params of a stateless request as a server of the
// handshake era takes them: without what only the other era has.
func FromStateless(params []byte) []byte {
	meta := jsonrpc.Get(params, "_meta")
	if meta == nil {
		return params
	}
	kept := jsonrpc.AppendObject(nil, meta, RequestMeta())
	drop := []string{"inputResponses", "requestState"}
	if bytes.Equal(kept, []byte("{}")) {
		return jsonrpc.AppendObject(nil, params, append(drop, "_meta"))
	}
	return jsonrpc.AppendObject(nil, params, drop, jsonrpc.Member{Key: "_meta", Value: kept})
}

// ToStateless returns a result of a handshake-era server as a stateless client
// wants it. server is the server's own Implementation, raw JSON.
func ToStateless(method string, result, server []byte) []byte {
	members := jsonrpc.Members(result)
	has := func(key string) bool {
		return slices.ContainsFunc(members, func(m jsonrpc.Member) bool { return m.Key == key })
	}
	var set []jsonrpc.Member
	if !has("resultType") {
		set = append(set, jsonrpc.Member{Key: "resultType", Value: []byte(`"complete"`)})
	}
	if Cacheable(method) && !has("ttlMs") { // nothing is known of how long it stays true
		set = append(set, jsonrpc.Member{Key: "ttlMs", Value: []byte("0")})
	}
	if Cacheable(method) && !has("cacheScope") {
		set = append(set, jsonrpc.Member{Key: "cacheScope", Value: []byte(`"private"`)})
	}
	if meta := jsonrpc.Get(result, "_meta"); server != nil && jsonrpc.Get(meta, MetaServer) == nil {
		set = append(set, jsonrpc.Member{Key: "_meta", Value: jsonrpc.AppendObject(nil, meta, nil, jsonrpc.Member{Key: MetaServer, Value: server})})
	}
	return jsonrpc.AppendObject(nil, result, nil, set...)
}
