package conversation

import (
	"encoding/json"

	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// declared returns the methods of questions that a client said, in its
// initialize request, that it answers.
func declared(hello *jsonrpc.Message) map[string]bool {
	var p struct {
		Capabilities struct {
			Sampling    *json.RawMessage `json:"sampling"`
			Elicitation *json.RawMessage `json:"elicitation"`
			Roots       *json.RawMessage `json:"roots"`
		} `json:"capabilities"`
	}
	if json.Unmarshal(hello.Raw(jsonrpc.Params), &p) != nil {
		return nil
	}
	return map[string]bool{
		"sampling/createMessage": p.Capabilities.Sampling != nil,
		"elicitation/create":     p.Capabilities.Elicitation != nil,
		"roots/list":             p.Capabilities.Roots != nil,
	}
}
