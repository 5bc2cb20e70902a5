package era

import (
	"encoding/json"
	"reflect"
	"slices"
)

// KeepsPromise reports whether the initialize result now promises all that the
// result told did: the same revision, and each of its capabilities. What was told
// to be false, or null, was not promised; what is new breaks nothing.
func KeepsPromise(told, now []byte) bool {
	var x, y map[string]any // no struct, which would take Capabilities for capabilities
	if json.Unmarshal(told, &x) != nil || json.Unmarshal(now, &y) != nil {
		return false
	}
	const version, can = "protocolVersion", "capabilities"
	return reflect.DeepEqual(x[version], y[version]) && kept(x[can], y[can])
}

// kept reports whether all of what was told is still so.
func kept(told, now any) bool {
	switch told := told.(type) {
	case nil:
		return true
	case bool:
		return !told || now == true
	case map[string]any:
		members, ok := now.(map[string]any)
		for key, value := range told {
			ok = ok && kept(value, members[key])
		}
		return ok
	case []any:
		list, ok := now.([]any)
		for _, value := range told {
			ok = ok && slices.ContainsFunc(list, func(v any) bool { return kept(value, v) })
		}
		return ok
	default:
		return reflect.DeepEqual(told, now)
	}
}
