package era

import (
	"bytes"
	"encoding/json"
)

// SamePromise reports whether two initialize results promise the same: the
// revision and the capabilities.
func SamePromise(a, b []byte) bool {
	type promise struct {
		ProtocolVersion string         `json:"protocolVersion"`
		Capabilities    map[string]any `json:"capabilities"`
	}
	var x, y promise
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	one, err1 := json.Marshal(x)
	two, err2 := json.Marshal(y)
	return err1 == nil && err2 == nil && bytes.Equal(one, two)
}
