package jsonrpc

import (
	"encoding/binary"
	"math/bits"
)

// maxDepth bounds how deep objects and arrays may nest, so that a hostile
// message cannot exhaust the stack.
const maxDepth = 512

// scanner walks one JSON text without decoding it. Its methods take the index
// of a value's first byte and return the index just past it, or -1.
type scanner struct {
	b        []byte
	newlines bool // a CR or LF between tokens: the text must be compacted for stdio
	high     byte // OR of all bytes of strings; 0x80 set: UTF-8 must be checked
}

// space skips insignificant white space (RFC 8259 section 2).
func (s *scanner) space(i int) int {
	for i < len(s.b) {
		switch s.b[i] {
		case ' ', '\t':
		case '\n', '\r':
			s.newlines = true
		default:
			return i
		}
		i++
	}
	return i
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// str skips the string whose opening quote is at i. Eight bytes are tested at
// a time: a gateway reads mostly text that is none of its business.
func (s *scanner) str(i int) int {
	b := s.b
	i++
	var high uint64
	for {
		for i+8 <= len(b) {
			x := binary.LittleEndian.Uint64(b[i:])
			quote := x ^ (ones * '"')
			slash := x ^ (ones * '\\')
			// The lowest byte marked in each term is exact; borrows only ever
			// mark bytes above it.
			hit := ((quote - ones) & ^quote) | ((slash - ones) & ^slash) | ((x - ones*0x20) & ^x)
			hit &= highs
			if hit != 0 {
				n := bits.TrailingZeros64(hit) / 8
				high |= x & (1<<(8*n) - 1)
				i += n
				break
			}
			high |= x
			i += 8
		}
		if i >= len(b) {
			return -1
		}
		switch c := b[i]; {
		case c == '"':
			if high&highs != 0 {
				s.high = 0x80
			}
			return i + 1
		case c == '\\':
			if i = escape(b, i); i < 0 {
				return -1
			}
		case c < 0x20:
			return -1
		default:
			high |= uint64(c)
			i++
		}
	}
}

// escape skips the escape sequence that starts at i.
func escape(b []byte, i int) int {
	if i+1 >= len(b) {
		return -1
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		if i+6 > len(b) {
			return -1
		}
		for _, c := range b[i+2 : i+6] {
			if !hex(c) {
				return -1
			}
		}
		return i + 6
	}
	return -1
}

func hex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// number skips a number (RFC 8259 section 6).
func (s *scanner) number(i int) int {
	b := s.b
	if i < len(b) && b[i] == '-' {
		i++
	}
	switch {
	case i >= len(b):
		return -1
	case b[i] == '0':
		i++
	case '1' <= b[i] && b[i] <= '9':
		i = digits(b, i)
	default:
		return -1
	}
	if i < len(b) && b[i] == '.' {
		n := digits(b, i+1)
		if n == i+1 {
			return -1
		}
		i = n
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		n := digits(b, i)
		if n == i {
			return -1
		}
		i = n
	}
	return i
}

func digits(b []byte, i int) int {
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i
}

func (s *scanner) literal(i int, word string) int {
	if len(s.b)-i < len(word) || string(s.b[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

// value skips any value whose first byte is at i.
func (s *scanner) value(i, depth int) int {
	if i >= len(s.b) || depth > maxDepth {
		return -1
	}
	switch s.b[i] {
	case '"':
		return s.str(i)
	case '{':
		return s.members(i, depth, nil, inNothing)
	case '[':
		return s.array(i, depth, nil)
	case 't':
		return s.literal(i, "true")
	case 'f':
		return s.literal(i, "false")
	case 'n':
		return s.literal(i, "null")
	}
	return s.number(i)
}

// array skips an array and appends the bounds of its elements to each, if it
// is not nil.
func (s *scanner) array(i, depth int, each *[]span) int {
	i = s.space(i + 1)
	if i < len(s.b) && s.b[i] == ']' {
		return i + 1
	}
	for {
		end := s.value(i, depth+1)
		if end < 0 {
			return -1
		}
		if each != nil {
			*each = append(*each, span{int32(i), int32(end)})
		}
		i = s.space(end)
		if i >= len(s.b) {
			return -1
		}
		switch s.b[i] {
		case ']':
			return i + 1
		case ',':
			i = s.space(i + 1)
		default:
			return -1
		}
	}
}

// members skips the object at i. With a message it notes where the members
// stand that belong to the given place.
func (s *scanner) members(i, depth int, m *Message, in place) int {
	i = s.space(i + 1)
	if i < len(s.b) && s.b[i] == '}' {
		return i + 1
	}
	for {
		if i >= len(s.b) || s.b[i] != '"' {
			return -1
		}
		keyEnd := s.str(i)
		if keyEnd < 0 {
			return -1
		}
		field := noField
		if in != inNothing {
			field = lookup(in, s.b[i+1:keyEnd-1])
		}
		i = s.space(keyEnd)
		if i >= len(s.b) || s.b[i] != ':' {
			return -1
		}
		i = s.space(i + 1)
		end := s.member(i, depth+1, m, field)
		if end < 0 {
			return -1
		}
		i = s.space(end)
		if i >= len(s.b) {
			return -1
		}
		switch s.b[i] {
		case '}':
			return i + 1
		case ',':
			i = s.space(i + 1)
		default:
			return -1
		}
	}
}

// member skips one member's value and notes its bounds under field.
func (s *scanner) member(i, depth int, m *Message, field Field) int {
	if field == noField {
		return s.value(i, depth)
	}
	if m.at[field].hi != 0 {
		if field == ResultType { // of an answer that is its client's business
			return s.value(i, depth)
		}
		m.duplicate = true
	}
	var end int
	switch object := i < len(s.b) && s.b[i] == '{' && depth <= maxDepth; {
	case object && field == Result:
		end = s.members(i, depth, m, inResult)
	case object && field == Params:
		end = s.members(i, depth, m, inParams)
	case object && field == Meta:
		end = s.members(i, depth, m, inMeta)
	default:
		end = s.value(i, depth)
	}
	m.at[field] = span{int32(i), int32(end)}
	return end
}
