package stateless

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"regexp"
	"strings"

	"github.com/holdfast-mcp/holdfast/internal/era"
	"github.com/holdfast-mcp/holdfast/internal/wire"
	"github.com/holdfast-mcp/holdfast/jsonrpc"
)

func mismatch(format string, args ...any) *wire.Refusal {
	return &wire.Refusal{Status: http.StatusBadRequest, Code: era.CodeHeaderMismatch, Text: "header mismatch: " + fmt.Sprintf(format, args...)}
}

// check compares the headers with the body that they mirror (2026-07-28
// basic/transports/streamable-http, "Server Validation"). A body without a
// version is left to who reads the body: that is another error.
func (s *Server) check(r *http.Request, m *jsonrpc.Message, principal string) *wire.Refusal {
	version, method := m.Text(jsonrpc.MetaVersion), m.Text(jsonrpc.Method)
	if len(version) == 0 {
		return nil
	}
	if refusal := mirrored(r, era.HeaderVersion, version, false); refusal != nil {
		return refusal
	}
	if refusal := mirrored(r, "Mcp-Method", method, false); refusal != nil {
		return refusal
	}
	name, refusal := named(r, m, string(method))
	if refusal == nil && string(method) == "tools/call" {
		refusal = s.checkParams(r, m, principal, name)
	}
	return refusal
}

// named compares Mcp-Name with what the body names, and returns that. A body
// that names nothing is left to the server, as long as the header does not
// claim otherwise.
func named(r *http.Request, m *jsonrpc.Message, method string) (name []byte, refusal *wire.Refusal) {
	switch method {
	case "tools/call", "prompts/get":
		name = m.Text(jsonrpc.Name)
	case "resources/read":
		name = m.Text(jsonrpc.URI)
	case "tasks/get", "tasks/update", "tasks/cancel": // of the extension
		raw, twice := member(m.Raw(jsonrpc.Params), "taskId")
		var id string
		if twice {
			return nil, mismatch("the body has taskId twice")
		}
		if json.Unmarshal(raw, &id) == nil && raw[0] == '"' {
			name = []byte(id)
		}
	default:
		return nil, nil
	}
	if name == nil && len(r.Header[headerName]) == 0 {
		return nil, nil
	}
	if name == nil {
		return nil, mismatch("%s is there, the body names nothing", headerName)
	}
	return name, mirrored(r, headerName, name, true)
}

const headerName = "Mcp-Name"

// member returns the member of an object with the key, nil if there is none,
// and whether it stands more than once: then receivers disagree about which one
// counts.
func member(object []byte, key string) (value []byte, twice bool) {
	for _, m := range jsonrpc.Members(object) {
		if m.Key == key {
			if value != nil {
				return value, true
			}
			value = m.Value
		}
	}
	return value, false
}

// mirrored checks that a header, named in its canonical form, is there once and
// says what the body does.
func mirrored(r *http.Request, name string, want []byte, encoded bool) *wire.Refusal {
	values := r.Header[name]
	if len(values) != 1 {
		return mismatch("%s must be there once, and be %.100q", name, want)
	}
	got := values[0]
	if encoded {
		decoded, ok := decode(got)
		if !ok {
			return mismatch("%s: %.100q is not well encoded", name, got)
		}
		got = decoded
	}
	if got != string(want) {
		return mismatch("%s is %.100q, the body says %.100q", name, got, want)
	}
	return nil
}

// The sentinel of encoded header values; upper and lower case count
// (2026-07-28 basic/transports/streamable-http, "Value Encoding").
const (
	sentinelStart = "=?base64?"
	sentinelEnd   = "?="
)

// decode returns what a header value stands for.
func decode(value string) (string, bool) {
	for i := range len(value) {
		if c := value[i]; c != '\t' && (c < 0x20 || c > 0x7e) {
			return "", false
		}
	}
	inner, ok := strings.CutPrefix(value, sentinelStart)
	if !ok || len(value) < len(sentinelStart)+len(sentinelEnd) || !strings.HasSuffix(inner, sentinelEnd) {
		return value, true
	}
	b, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(inner, sentinelEnd))
	return string(b), err == nil
}

const paramPrefix = "Mcp-Param-"

// checkParams compares the Mcp-Param headers with the arguments that the
// tool's schema mirrors into them.
func (s *Server) checkParams(r *http.Request, m *jsonrpc.Message, principal string, tool []byte) *wire.Refusal {
	ask := func(ctx context.Context, params []byte) ([]byte, error) {
		return s.o.Host.Ask(ctx, principal, m, "tools/list", params)
	}
	who := s.schemas.who(principal, m)
	refusal := compare(r, s.schemas.of(r.Context(), who, ask, tool, false), m)
	if refusal != nil { // the tool may have changed
		refusal = compare(r, s.schemas.of(r.Context(), who, ask, tool, true), m)
	}
	return refusal
}

func compare(r *http.Request, params []mirroredParam, m *jsonrpc.Message) *wire.Refusal {
	if len(params) == 0 {
		return nil
	}
	for _, p := range params {
		value, twice := member(m.Raw(jsonrpc.Params), "arguments")
		for _, key := range p.path {
			var again bool
			value, again = member(value, key)
			twice = twice || again
		}
		if twice {
			return mismatch("the body has %s twice", strings.Join(p.path, "."))
		}
		name := paramPrefix + p.header
		values := r.Header.Values(name)
		if value == nil || string(value) == "null" {
			if len(values) > 0 {
				return mismatch("%s is there, the body has no %s", name, strings.Join(p.path, "."))
			}
			continue
		}
		if len(values) != 1 {
			return mismatch("%s must be there once, since the body has %s", name, strings.Join(p.path, "."))
		}
		got, ok := decode(values[0])
		if !ok || !equal(got, value) {
			return mismatch("%s is %.100q, the body says %.100s", name, values[0], value)
		}
	}
	return nil
}

// equal compares a header's value with a primitive, raw JSON; integers by
// number.
func equal(header string, value []byte) bool {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return header == text
	}
	if !decimal.MatchString(header) || !decimal.Match(value) {
		return header == string(value)
	}
	a, ok1 := new(big.Rat).SetString(header)
	b, ok2 := new(big.Rat).SetString(string(value))
	return ok1 && ok2 && a.Cmp(b) == 0
}

// decimal is how integers are written, and what comes of them where all numbers
// have a fraction.
var decimal = regexp.MustCompile(`^-?[0-9]{1,32}(\.[0-9]{1,32})?$`)
