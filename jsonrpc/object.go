package jsonrpc

import (
	"bytes"
	"slices"
)

// Member is one member of a JSON object: its key as text, its value as raw
// JSON.
type Member struct {
	Key   string
	Value []byte
}

// Members returns the members of a JSON object in order, with keys decoded and
// values as they are spelled, aliasing object. It returns nil for anything that
// is not a well-formed object. Of a key that stands twice both members are
// there.
func Members(object []byte) []Member {
	out := []Member{}
	if !each(object, func(key, value []byte) bool {
		out = append(out, Member{string(key), value})
		return true
	}) {
		return nil
	}
	return out
}

// Get returns the value of the first member of object with the key, nil if
// there is none.
func Get(object []byte, key string) []byte {
	var found []byte
	each(object, func(k, value []byte) bool {
		if string(k) == key {
			found = value
		}
		return found == nil
	})
	return found
}

// each calls f with each member, its key decoded, until f returns false. It
// reports whether all that it looked at was well-formed.
func each(object []byte, f func(key, value []byte) bool) bool {
	return eachAt(object, func(key []byte, _, lo, hi int) bool { return f(key, object[lo:hi:hi]) })
}

// eachAt is each with where the member begins, and where its value does and ends.
func eachAt(object []byte, f func(key []byte, from, lo, hi int) bool) bool {
	s := scanner{b: object}
	i := s.space(0)
	if i >= len(object) || object[i] != '{' {
		return false
	}
	if i = s.space(i + 1); i < len(object) && object[i] == '}' {
		return true
	}
	for i < len(object) && object[i] == '"' {
		keyEnd := s.str(i)
		if keyEnd < 0 {
			return false
		}
		key := object[i+1 : keyEnd-1]
		if bytes.IndexByte(key, '\\') >= 0 {
			key = unescape(key)
		}
		from := i
		i = s.space(keyEnd)
		if i >= len(object) || object[i] != ':' {
			return false
		}
		i = s.space(i + 1)
		end := s.value(i, 1)
		if end < 0 {
			return false
		}
		if !f(key, from, i, end) {
			return true
		}
		i = s.space(end)
		switch {
		case i >= len(object):
			return false
		case object[i] == '}':
			return true
		case object[i] != ',':
			return false
		}
		i = s.space(i + 1)
	}
	return false
}

// IsError reports whether a well-formed answer is an error. It reads no further
// than the key that tells: what is answered may be long.
func IsError(answer []byte) bool {
	s := scanner{b: answer}
	i := s.space(0)
	for { // i is where the brace or a comma stands
		key := s.space(i + 1)
		if key >= len(answer) || answer[key] != '"' {
			return false
		}
		if i = s.str(key); i < 0 {
			return false
		}
		switch lookup(inEnvelope, answer[key+1:i-1]) {
		case Result:
			return false
		case Error:
			return true
		}
		if i = s.space(i); i >= len(answer) || answer[i] != ':' {
			return false
		}
		if i = s.value(s.space(i+1), 1); i < 0 {
			return false
		}
		if i = s.space(i); i >= len(answer) || answer[i] != ',' {
			return false
		}
	}
}

// AppendObject appends an object with the members of object, every value as it
// is spelled, less those with a key in drop or in set, and then those in set.
// What is no object counts as an empty one.
func AppendObject(dst, object []byte, drop []string, set ...Member) []byte {
	dst = append(dst, '{')
	first := true
	add := func(m Member) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = AppendString(dst, m.Key)
		dst = append(append(dst, ':'), m.Value...)
	}
	for _, m := range Members(object) {
		if !slices.Contains(drop, m.Key) && !slices.ContainsFunc(set, func(s Member) bool { return s.Key == m.Key }) {
			add(m)
		}
	}
	for _, m := range set {
		add(m)
	}
	return append(dst, '}')
}
