package exchange

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

// translate turns a handshake-era server's answer into one of the stateless
// era.
func translate(method string, msg, hello []byte) []byte {
	m, err := jsonrpc.Parse(msg)
	if err != nil {
		return msg
	}
	if m.Has(jsonrpc.Result) {
		// Members by which the stateless era asks mean nothing in a result of the
		// other one; some servers let them slip.
		result := m.Raw(jsonrpc.Result)
		if jsonrpc.Get(result, "inputRequests") != nil || jsonrpc.Get(result, "requestState") != nil {
			result = jsonrpc.AppendObject(nil, result, []string{"inputRequests", "requestState"})
		}
		return m.Append(nil, jsonrpc.Edit{Field: jsonrpc.Result, With: era.ToStateless(method, result, jsonrpc.Get(hello, "serverInfo"))})
	}
	fault := m.Raw(jsonrpc.Error)
	switch code := string(jsonrpc.Get(fault, "code")); code {
	case strconv.Itoa(era.CodeResourceNotFound):
		fault = jsonrpc.AppendObject(nil, fault, nil, jsonrpc.Member{Key: "code", Value: strconv.AppendInt(nil, jsonrpc.CodeInvalidParams, 10)})
	case strconv.Itoa(era.CodeURLElicitation):
		text := "the server executes this only once the user has opened a URL (data.elicitations)"
		fault = jsonrpc.AppendObject(nil, fault, nil,
			jsonrpc.Member{Key: "code", Value: strconv.AppendInt(nil, jsonrpc.CodeInternal, 10)},
			jsonrpc.Member{Key: "message", Value: jsonrpc.AppendString(nil, text)},
			jsonrpc.Member{Key: "data", Value: jsonrpc.AppendObject(nil, jsonrpc.Get(fault, "data"), nil,
				jsonrpc.Member{Key: "outcome", Value: []byte(`"not_executed"`)})})
	case strconv.Itoa(jsonrpc.CodeInvalidParams):
		if era.Known(method) || extended(hello) {
			return msg
		}
		// Servers that check a request against all that they know call an unknown
		// method's params invalid.
		fault = jsonrpc.AppendObject(nil, fault, nil, jsonrpc.Member{Key: "code", Value: strconv.AppendInt(nil, jsonrpc.CodeMethodNotFound, 10)})
	default:
		return msg
	}
	return m.Append(nil, jsonrpc.Edit{Field: jsonrpc.Error, With: fault})
}

// extended reports whether a server declared that it knows more than the
// specification does.
func extended(hello []byte) bool {
	capabilities := jsonrpc.Get(hello, "capabilities")
	for _, key := range []string{"extensions", "experimental"} {
		if len(jsonrpc.Members(jsonrpc.Get(capabilities, key))) > 0 {
			return true
		}
	}
	return false
}

// withHandshake adds to a server's own DiscoverResult the revisions that the
// gateway serves in its place: who must know whether an initialize is welcome
// looks there.
func withHandshake(answer []byte) []byte {
	m, err := jsonrpc.Parse(answer)
	var versions []era.Version
	if err != nil || json.Unmarshal(jsonrpc.Get(m.Raw(jsonrpc.Result), "supportedVersions"), &versions) != nil || len(versions) == 0 {
		return answer
	}
	for _, v := range era.Served() {
		if v.Handshake() && !slices.Contains(versions, v) {
			versions = append(versions, v)
		}
	}
	list, _ := json.Marshal(versions)
	return m.Append(nil, jsonrpc.Edit{Field: jsonrpc.Result, With: jsonrpc.AppendObject(nil, m.Raw(jsonrpc.Result), nil,
		jsonrpc.Member{Key: "supportedVersions", Value: list})})
}

// discovery is a DiscoverResult made of an InitializeResult. tasks says that
// calls may become tasks of the gateway's own.
func discovery(hello []byte, tasks bool) []byte {
	versions, _ := json.Marshal(era.Served())
	capabilities := jsonrpc.AppendObject(nil, jsonrpc.Get(hello, "capabilities"), []string{"tasks"})
	if tasks {
		capabilities = era.WithTasks(capabilities)
	}
	set := []jsonrpc.Member{{Key: "supportedVersions", Value: versions}, {Key: "capabilities", Value: capabilities}}
	if text := jsonrpc.Get(hello, "instructions"); text != nil {
		set = append(set, jsonrpc.Member{Key: "instructions", Value: text})
	}
	return era.ToStateless("server/discover", jsonrpc.AppendObject(nil, nil, nil, set...), jsonrpc.Get(hello, "serverInfo"))
}
