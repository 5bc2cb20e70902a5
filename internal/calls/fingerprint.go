package calls

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/holdfast-mcp/holdfast/internal/ledger"
)

const (
	maxDepth  = 512   // of arrays and objects, as in jsonrpc.Parse
	maxSorted = 1024  // members of one object: sorting must not keep the processor busy
	textAt    = 1 + 8 // in an encoded string
)

// Fingerprint returns the digest of a JSON-RPC request that is the same for
// equal ones: white space, escapes in strings and the order of members (up to
// 1024 in an object) do not count, nor do the members _meta, inputResponses and
// requestState of params. Absent params are as {}. What receivers may tell apart
// is different: numbers count as spelled, and all members with the same key
// count, in their order. What is not JSON in UTF-8, or nests deeper than 512
// levels, counts byte by byte.
func Fingerprint(method string, params []byte) ledger.Print {
	e := encoder{in: params, out: append(make([]byte, 0, 512), 's'), members: make([]place, 0, 16)}
	e.out = append(binary.BigEndian.AppendUint64(e.out, uint64(len(method))), method...)
	mark := len(e.out)
	if e.space(0) == len(params) {
		e.in = []byte("{}")
	}
	if !utf8.Valid(e.in) || e.space(e.value(e.space(0), 0)) != len(e.in) {
		e.out = append(append(e.out[:mark], 'x'), params...)
	}
	return sha256.Sum256(e.out)
}

// encoder writes equal values as equal bytes, and different ones as different
// bytes, none of which are the beginning of others:
//
//	n spelling ;      a number, true, false, null (and like words that are no JSON)
//	s length text     a string
//	[ values ]        an array
//	o digest          an object: the digest of { and its members, sorted
//
// Its methods take where a value begins, and return where it ends or -1.
type encoder struct {
	in, out []byte
	members []place // of the objects that are open, the innermost last
}

// place is where in encoder.out a member is, and the end of its key.
type place struct{ from, key, to int }

func (e *encoder) space(i int) int {
	for e.has(i, ' ') || e.has(i, '\n') || e.has(i, '\t') || e.has(i, '\r') {
		i++
	}
	return i
}

// has reports whether c stands at i.
func (e *encoder) has(i int, c byte) bool { return i >= 0 && i < len(e.in) && e.in[i] == c }

func (e *encoder) value(i, depth int) int {
	switch {
	case depth > maxDepth:
		return -1
	case e.has(i, '"'):
		return e.str(i)
	case e.has(i, '{'), e.has(i, '['):
		return e.nest(i, depth)
	}
	word := e.in[i : len(e.in)-len(bytes.TrimLeft(e.in[i:], "+-.0123456789Eaeflnrstu"))]
	if len(word) == 0 {
		return -1
	}
	e.out = append(append(append(e.out, 'n'), word...), ';')
	return i + len(word)
}

// nest encodes an array or an object.
func (e *encoder) nest(i, depth int) int {
	object, end := e.in[i] == '{', e.in[i]+2 // ] or }: ASCII
	start, first := len(e.out), len(e.members)
	aside := [...]string{"_meta", "inputResponses", "requestState"} // how it is sent, not what is wanted
	e.out = append(e.out, e.in[i])
	i = e.space(i + 1)
	for count := 0; !e.has(i, end); count++ {
		if count > 0 {
			if !e.has(i, ',') {
				return -1
			}
			i = e.space(i + 1)
		}
		p := place{from: len(e.out)}
		if object {
			if !e.has(i, '"') {
				return -1
			}
			i = e.space(e.str(i))
			p.key = len(e.out)
			if !e.has(i, ':') {
				return -1
			}
			i = e.space(i + 1)
		}
		if i = e.space(e.value(i, depth+1)); i < 0 {
			return -1
		}
		p.to = len(e.out)
		switch {
		case object && depth == 0 && slices.Contains(aside[:], string(e.key(p))):
			e.out = e.out[:p.from]
		case object && len(e.members)-first <= maxSorted:
			e.members = append(e.members, p)
		}
	}
	if !object {
		e.out = append(e.out, end)
		return i + 1
	}
	digest := e.digest(start, e.members[first:])
	e.members, e.out = e.members[:first], append(append(e.out[:start], 'o'), digest[:]...)
	return i + 1
}

func (e *encoder) key(p place) []byte { return e.out[p.from+textAt : p.key] }

// digest returns the digest of the object that is encoded from start on.
func (e *encoder) digest(start int, members []place) ledger.Print {
	order := func(a, b place) int {
		if c := bytes.Compare(e.key(a), e.key(b)); c != 0 {
			return c
		}
		return a.from - b.from
	}
	if len(members) <= maxSorted && !slices.IsSortedFunc(members, order) {
		slices.SortFunc(members, order)
		start, e.out = len(e.out), append(e.out, '{')
		for _, p := range members {
			e.out = append(e.out, e.out[p.from:p.to]...)
		}
	}
	return sha256.Sum256(e.out[start:])
}

func (e *encoder) str(i int) int {
	start := len(e.out)
	e.out = append(e.out, 's', 0, 0, 0, 0, 0, 0, 0, 0)
	for i++; i >= 0 && i < len(e.in); {
		switch c := e.in[i]; {
		case c == '"':
			binary.BigEndian.PutUint64(e.out[start+1:], uint64(len(e.out)-start-textAt))
			return i + 1
		case c == '\\':
			i = e.escape(i + 1)
		case c < 0x20:
			return -1
		default:
			e.out = append(e.out, c)
			i++
		}
	}
	return -1
}

// escape decodes an escape sequence from just past its backslash. Receivers
// disagree about half a surrogate pair, so it is equal to nothing else.
func (e *encoder) escape(i int) int {
	if i < len(e.in) && e.in[i] != 'u' {
		n := strings.IndexByte(`"\/bfnrt`, e.in[i])
		if n < 0 {
			return -1
		}
		e.out = append(e.out, "\"\\/\b\f\n\r\t"[n])
		return i + 1
	}
	r := e.unit(i + 1)
	i += 5
	if e.has(i, '\\') && e.has(i+1, 'u') {
		if pair := utf16.DecodeRune(r, e.unit(i+2)); pair != utf8.RuneError {
			r, i = pair, i+6
		}
	}
	switch {
	case r < 0:
		return -1
	case utf16.IsSurrogate(r):
		e.out = append(e.out, 0xED, 0x80|byte(r>>6&0x3F), 0x80|byte(r&0x3F))
	default:
		e.out = utf8.AppendRune(e.out, r)
	}
	return i
}

// unit returns the UTF-16 unit that four hexadecimal digits spell, or -1.
func (e *encoder) unit(i int) rune {
	if n, err := strconv.ParseUint(string(e.in[min(i, len(e.in)):min(i+4, len(e.in))]), 16, 16); err == nil {
		return rune(n)
	}
	return -1
}
