package jsonrpc

import "strconv"

// Edit replaces one member's value by other JSON.
type Edit struct {
	Field Field
	With  []byte
}

// Append appends the message to dst on one line, with the edits made and every
// other byte as it arrived: only CR and LF between tokens go, with the white
// space around them, since MCP's stdio transport frames by line. Edits of
// members that are not there are passed over.
func (m *Message) Append(dst []byte, edits ...Edit) []byte {
	var from int32
	var made uint64 // an insertion ends where it begins, and would come again
	for range edits {
		next := -1
		for n, e := range edits {
			at := m.spot(e.Field)
			if at.hi > 0 && at.lo >= from && made&(1<<n) == 0 && (next < 0 || at.lo < m.spot(edits[next].Field).lo) {
				next = n
			}
		}
		if next < 0 {
			break
		}
		at := m.spot(edits[next].Field)
		dst = m.copy(dst, m.raw[from:at.lo])
		dst = append(dst, edits[next].With...)
		made |= 1 << next
		from = at.hi
	}
	return m.copy(dst, m.raw[from:])
}

// spot returns where an edit goes.
func (m *Message) spot(f Field) span {
	switch f {
	case inParamsFirst:
		return first(m.at[Params])
	case inMetaFirst:
		return first(m.at[Meta])
	}
	return m.at[f]
}

// first is the place after the brace that opens an object.
func first(object span) span {
	if object.hi <= 0 {
		return span{}
	}
	return span{object.lo + 1, object.lo + 1}
}

// Ask returns the edit that makes a request ask for progress under a token, raw
// JSON, whatever it asked for itself. It reports false if params, or its _meta,
// is no object.
func (m *Message) Ask(token []byte) (Edit, bool) {
	const key = `"progressToken":`
	object := m.Raw(Params)
	switch {
	case m.Has(MetaToken):
		return Edit{MetaToken, token}, true
	case len(object) == 0 || object[0] != '{':
		return Edit{}, false
	case !m.Has(Meta):
		with := make([]byte, 0, len(token)+len(key)+12)
		with = append(append(append(append(with, `"_meta":{`...), key...), token...), '}')
		return Edit{inParamsFirst, comma(with, object)}, true
	case m.Raw(Meta)[0] != '{':
		return Edit{}, false
	}
	with := append(append(make([]byte, 0, len(token)+len(key)+1), key...), token...)
	return Edit{inMetaFirst, comma(with, m.Raw(Meta))}, true
}

// comma ends what is put before the first member of an object, if it has one.
func comma(with, object []byte) []byte {
	s := scanner{b: object}
	if object[s.space(1)] == '}' {
		return with
	}
	return append(with, ',')
}

// Len returns an upper bound of what Append will append.
func (m *Message) Len(edits ...Edit) int {
	n := len(m.raw)
	for _, e := range edits {
		n += len(e.With)
	}
	return n
}

// copy appends part, which does not begin or end inside a string.
func (m *Message) copy(dst, part []byte) []byte {
	if !m.newlines {
		return append(dst, part...)
	}
	s := scanner{b: part}
	for i := 0; i < len(part); {
		switch part[i] {
		case '"':
			end := s.str(i)
			dst = append(dst, part[i:end]...)
			i = end
		case ' ', '\t', '\r', '\n':
			s.newlines = false
			end := s.space(i)
			if !s.newlines {
				dst = append(dst, part[i:end]...)
			}
			i = end
		default:
			dst = append(dst, part[i])
			i++
		}
	}
	return dst
}

// Error codes of JSON-RPC 2.0 section 5.1.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
)

// AppendResult appends an answer with the given result, raw JSON.
func AppendResult(dst, id, result []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	dst = append(dst, `,"result":`...)
	dst = append(dst, result...)
	return append(dst, '}')
}

// AppendError appends an error answer. Without an id (nil) the member is left
// out, which every MCP client tolerates and some need: "id": null ends their
// connection. data is raw JSON, nil for none.
func AppendError(dst, id []byte, code int, message string, data []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0",`...)
	if id != nil {
		dst = append(dst, `"id":`...)
		dst = append(dst, id...)
		dst = append(dst, ',')
	}
	dst = append(dst, `"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(code), 10)
	dst = append(dst, `,"message":`...)
	dst = AppendString(dst, message)
	if data != nil {
		dst = append(dst, `,"data":`...)
		dst = append(dst, data...)
	}
	return append(dst, '}', '}')
}

// AppendString appends s as a JSON string. Only what must be escaped is: `<`
// and `&` stay as they are. Invalid UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, '\\', 'n')
		case r < 0x20:
			const digits = "0123456789abcdef"
			dst = append(dst, '\\', 'u', '0', '0', digits[r>>4], digits[r&15])
		default:
			dst = append(dst, string(r)...)
		}
	}
	return append(dst, '"')
}
