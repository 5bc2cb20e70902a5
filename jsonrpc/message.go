package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// What Parse can find wrong. Match with errors.Is.
var (
	// ErrSyntax: not JSON, or not UTF-8, or nested deeper than 512 levels, or of
	// 2 GiB or more.
	ErrSyntax = errors.New("jsonrpc: not well-formed JSON")
	// ErrInvalid: JSON, but not a JSON-RPC 2.0 message.
	ErrInvalid = errors.New("jsonrpc: not a JSON-RPC 2.0 message")
	// ErrBatch: an array; Split takes it apart.
	ErrBatch = errors.New("jsonrpc: a batch")
)

// Field names a member whose place Parse notes.
type Field uint8

// The members that Parse finds. ResultType stands in result, those from Name to
// Token in params, the last seven in params._meta.
const (
	noField Field = iota
	Version       // "jsonrpc"
	ID
	Method
	Params
	Result
	Error
	ResultType       // result.resultType: what kind of result it is; the first, if there are several
	Name             // params.name: tools/call, prompts/get
	URI              // params.uri: resources/*
	Level            // params.level: logging/setLevel, notifications/message
	RequestID        // params.requestId: notifications/cancelled
	ProtocolVersion  // params.protocolVersion: initialize
	Token            // params.progressToken: notifications/progress
	Meta             // params._meta
	MetaToken        // params._meta.progressToken
	MetaVersion      // params._meta["io.modelcontextprotocol/protocolVersion"]
	MetaClient       // params._meta["io.modelcontextprotocol/clientInfo"]
	MetaCapabilities // params._meta["io.modelcontextprotocol/clientCapabilities"]
	MetaLogLevel     // params._meta["io.modelcontextprotocol/logLevel"]
	MetaSubscription // params._meta["io.modelcontextprotocol/subscriptionId"]
	MetaKey          // params._meta["dev.holdfast/idempotencyKey"]
	fields

	inParamsFirst // the place before the first member of params, for an insertion
	inMetaFirst   // likewise of params._meta
)

// place is where in a message a member stands.
type place uint8

const (
	inNothing place = iota
	inEnvelope
	inResult
	inParams
	inMeta
)

// lookup returns the field that a member's key names. Keys are compared
// exactly: "Method" is an unknown member (JSON-RPC 2.0 section 4 names are
// case-sensitive).
func lookup(in place, key []byte) Field {
	if bytes.IndexByte(key, '\\') >= 0 {
		key = unescape(key)
	}
	switch in {
	case inEnvelope:
		switch string(key) {
		case "jsonrpc":
			return Version
		case "id":
			return ID
		case "method":
			return Method
		case "params":
			return Params
		case "result":
			return Result
		case "error":
			return Error
		}
	case inResult:
		if string(key) == "resultType" {
			return ResultType
		}
	case inParams:
		switch string(key) {
		case "name":
			return Name
		case "uri":
			return URI
		case "level":
			return Level
		case "requestId":
			return RequestID
		case "protocolVersion":
			return ProtocolVersion
		case "progressToken":
			return Token
		case "_meta":
			return Meta
		}
	case inMeta:
		return lookupMeta(key)
	}
	return noField
}

// lookupMeta returns the field that a key of _meta names.
func lookupMeta(key []byte) Field {
	switch string(key) {
	case "progressToken":
		return MetaToken
	case "io.modelcontextprotocol/protocolVersion":
		return MetaVersion
	case "io.modelcontextprotocol/clientInfo":
		return MetaClient
	case "io.modelcontextprotocol/clientCapabilities":
		return MetaCapabilities
	case "io.modelcontextprotocol/logLevel":
		return MetaLogLevel
	case "io.modelcontextprotocol/subscriptionId":
		return MetaSubscription
	case "dev.holdfast/idempotencyKey":
		return MetaKey
	}
	return noField
}

// unescape decodes the inside of a JSON string that the scanner has accepted.
func unescape(inner []byte) []byte {
	quoted := make([]byte, 0, len(inner)+2)
	quoted = append(append(append(quoted, '"'), inner...), '"')
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return inner
	}
	return []byte(s)
}

// span is where a value stands. A message is passed about with many of them, so
// they are small.
type span struct{ lo, hi int32 }

// longest is the length, in bytes, of what a span can reach.
const longest = math.MaxInt32

// Kind says what a message is.
type Kind uint8

// The kinds of message.
const (
	Request      Kind = iota + 1 // method and id
	Notification                 // method, no id
	Response                     // result or error
)

// Message is one parsed message. It aliases the bytes given to Parse and is
// valid as long as they are. Methods do not change it, and may be called
// concurrently.
type Message struct {
	raw       []byte
	at        [fields]span
	kind      Kind
	newlines  bool
	duplicate bool
}

// Parse reads one message, which may be surrounded by white space. The error
// is or wraps ErrSyntax, ErrInvalid or ErrBatch; with ErrInvalid the message is
// returned too, so that an answer can name its id if it has a legal one.
//
// A duplicate of a member that Parse looks at is ErrInvalid: receivers disagree
// about which one counts (RFC 8259 section 4), and a decision taken on one may
// be executed on the other.
func Parse(raw []byte) (*Message, error) {
	s := scanner{b: raw}
	i := s.space(0)
	if i >= len(raw) {
		return nil, fmt.Errorf("%w: empty", ErrSyntax)
	}
	if len(raw) > longest {
		return nil, fmt.Errorf("%w: %d bytes are too many", ErrSyntax, len(raw))
	}
	m := &Message{raw: raw}
	s.newlines = false // those around the message go with the white space around it
	var end int
	switch raw[i] {
	case '{':
		end = s.members(i, 1, m, inEnvelope)
	case '[':
		return nil, ErrBatch
	default:
		end = s.value(i, 1)
	}
	m.newlines = s.newlines
	if end < 0 || s.space(end) != len(raw) || s.high != 0 && !utf8.Valid(raw) {
		return nil, ErrSyntax
	}
	if raw[i] != '{' {
		return nil, fmt.Errorf("%w: not an object", ErrInvalid)
	}
	m.raw = bytes.Trim(raw, " \t\r\n")
	if i > 0 {
		for f := range m.at {
			m.at[f].lo, m.at[f].hi = m.at[f].lo-int32(i), m.at[f].hi-int32(i)
		}
	}
	return m, m.classify()
}

// classify decides the kind and checks the envelope.
func (m *Message) classify() error {
	bad := func(why string) error { return fmt.Errorf("%w: %s", ErrInvalid, why) }
	id := m.Raw(ID)
	switch {
	case m.Has(Method) && id != nil:
		m.kind = Request
	case m.Has(Method):
		m.kind = Notification
	default:
		m.kind = Response
	}
	switch {
	case m.duplicate:
		return bad("a member stands twice")
	case string(m.Raw(Version)) != `"2.0"`:
		return bad(`"jsonrpc" must be "2.0"`)
	case m.Has(Method) && m.Raw(Method)[0] != '"':
		return bad(`"method" must be a string`)
	case m.Has(Method) && (m.Has(Result) || m.Has(Error)):
		return bad("both a method and a result or error")
	case m.Has(Params) && m.Raw(Params)[0] != '{' && string(m.Raw(Params)) != "null" && m.Raw(Params)[0] != '[':
		return bad(`"params" must be an object`)
	case m.kind == Response && m.Has(Result) == m.Has(Error):
		return bad("neither a method nor exactly one of result and error")
	case m.kind == Response && m.Has(Result) && !legalID(id):
		return bad("a result without the id of a request")
	case m.kind == Request && !legalID(id):
		return bad(`"id" must be a string or an integer`)
	case m.kind == Response && id != nil && !legalID(id) && string(id) != "null":
		return bad(`"id" must be a string or an integer`)
	}
	return nil
}

// legalID reports whether raw is a string or an integer. 1e3 and 1.0 are
// integers, spelled oddly; 1.5 is not.
func legalID(raw []byte) bool {
	if len(raw) == 0 || len(raw) > 1024 {
		return false
	}
	if raw[0] == '"' {
		return true
	}
	if raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return false
	}
	if !bytes.ContainsAny(raw, ".eE") {
		return true
	}
	mantissa, exp, hasExp := bytes.Cut(bytes.ToLower(raw), []byte("e"))
	_, frac, _ := bytes.Cut(mantissa, []byte("."))
	return len(bytes.Trim(frac, "0")) == 0 && (!hasExp || exp[0] != '-')
}

// Clone returns a message that aliases bytes of its own.
func (m *Message) Clone() *Message {
	c := *m
	c.raw = bytes.Clone(m.raw)
	return &c
}

// Kind returns what the message is.
func (m *Message) Kind() Kind { return m.kind }

// Bytes returns the whole message as it arrived, less white space around it.
func (m *Message) Bytes() []byte { return m.raw }

// Has reports whether the member is there.
func (m *Message) Has(f Field) bool { return m.at[f].hi > 0 }

// Raw returns a member's value as it is spelled, or nil.
func (m *Message) Raw(f Field) []byte {
	s := m.at[f]
	if s.hi <= 0 {
		return nil
	}
	return m.raw[s.lo:s.hi:s.hi]
}

// BesideMeta returns what stands in params before and after params._meta.
func (m *Message) BesideMeta() (before, after []byte) {
	p, meta := m.at[Params], m.at[Meta]
	switch {
	case p.hi <= 0:
		return nil, nil
	case meta.hi <= 0:
		return m.raw[p.lo:p.hi:p.hi], nil
	}
	return m.raw[p.lo:meta.lo:meta.lo], m.raw[meta.hi:p.hi:p.hi]
}

// Text returns a member's value if it is a string, decoded; else nil.
func (m *Message) Text(f Field) []byte {
	raw := m.Raw(f)
	if len(raw) < 2 || raw[0] != '"' {
		return nil
	}
	raw = raw[1 : len(raw)-1]
	if bytes.IndexByte(raw, '\\') >= 0 {
		return unescape(raw)
	}
	return raw
}

// LegalID returns the id if it is one that an answer may carry, else nil. That
// of a response is none: it names a question of this side, and the sender may
// have a request of its own under the same one.
func (m *Message) LegalID() []byte {
	id := m.Raw(ID)
	if !legalID(id) || !m.Has(Method) && (m.Has(Result) || m.Has(Error)) {
		return nil
	}
	return id
}

// Is reports whether the message has this method.
func (m *Message) Is(method string) bool { return string(m.Text(Method)) == method }

// Split returns the elements of a batch (JSON-RPC 2.0 section 6). They alias
// raw. An empty batch is ErrInvalid.
func Split(raw []byte) ([][]byte, error) {
	s := scanner{b: raw}
	i := s.space(0)
	if i >= len(raw) || len(raw) > longest || raw[i] != '[' {
		return nil, ErrSyntax
	}
	var each []span
	end := s.array(i, 1, &each)
	if end < 0 || s.space(end) != len(raw) {
		return nil, ErrSyntax
	}
	if len(each) == 0 {
		return nil, fmt.Errorf("%w: an empty batch", ErrInvalid)
	}
	out := make([][]byte, len(each))
	for n, e := range each {
		out[n] = raw[e.lo:e.hi:e.hi]
	}
	return out, nil
}

// PeekID returns the id that stands in the beginning of a message that is too
// long to be read whole, and whether that is a response: nil if the beginning
// does not tell. It alone looks at text that is not known to be well-formed.
func PeekID(head []byte) (id []byte, response bool) {
	head = head[:min(len(head), longest)]
	s := scanner{b: head}
	m := &Message{raw: head}
	if i := s.space(0); i < len(head) && head[i] == '{' {
		s.members(i, 1, m, inEnvelope) // fails where the head ends
	}
	seen := func(f Field) bool { return m.at[f].hi != 0 } // be it only its beginning
	response = seen(Result) || seen(Error)
	request := seen(Method) || seen(Params)
	if id = m.Raw(ID); response == request || !legalID(id) || int(m.at[ID].hi) == len(head) {
		return nil, false
	}
	return id, response
}
