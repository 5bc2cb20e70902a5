package era

import (
	"bytes"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// ExtensionTasks names the extension by which a call may be answered with a task
// (SEP-2663).
const ExtensionTasks = MetaPrefix + "tasks"

// TakesTasks reports whether capabilities, raw JSON, declare the extension.
func TakesTasks(capabilities []byte) bool {
	declared := jsonrpc.Get(jsonrpc.Get(capabilities, "extensions"), ExtensionTasks)
	return len(declared) > 0 && declared[0] == '{'
}

// WithTasks returns capabilities, raw JSON, that declare the extension, too.
func WithTasks(capabilities []byte) []byte {
	if TakesTasks(capabilities) {
		return capabilities
	}
	extensions := jsonrpc.AppendObject(nil, jsonrpc.Get(capabilities, "extensions"), nil, jsonrpc.Member{Key: ExtensionTasks, Value: []byte("{}")})
	return jsonrpc.AppendObject(nil, capabilities, nil, jsonrpc.Member{Key: "extensions", Value: extensions})
}

// NeedsTasks is the data of the error CodeMissingCapability that tells a client
// to declare the extension.
func NeedsTasks() []byte {
	return []byte(`{"requiredCapabilities":{"extensions":{"` + ExtensionTasks + `":{}}}}`)
}

// WantsTasks reports whether an error, raw JSON, is that one.
func WantsTasks(errorObject []byte) bool {
	return bytes.Equal(jsonrpc.Get(errorObject, "code"), []byte("-32021")) &&
		TakesTasks(jsonrpc.Get(jsonrpc.Get(errorObject, "data"), "requiredCapabilities"))
}

// OfTask reports whether the method is one of the extension's requests.
func OfTask(method string) bool {
	return method == "tasks/get" || method == "tasks/update" || method == "tasks/cancel"
}

// MetaRelatedTask is the key of _meta that says which task a message is about
// (2025-11-25 basic/utilities/tasks, "Related Task Metadata").
const MetaRelatedTask = MetaPrefix + "related-task"

// Tasks reports whether v has tasks of its own: 2025-11-25 only, as an
// experiment. Later revisions have the extension.
func (v Version) Tasks() bool { return v == V20251125 }
