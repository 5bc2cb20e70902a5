package jsonrpc

// AppendWith appends object with the member of a key set to value: in the place
// of the value that it has, the first one if there are two, else as the last
// member. Every other byte stays as it is. What is no object counts as an empty
// one.
func AppendWith(dst, object []byte, key string, value []byte) []byte {
	lo, hi, last := -1, -1, -1
	ok := eachAt(object, func(k []byte, _, from, to int) bool {
		last = to
		if string(k) == key {
			lo, hi = from, to
		}
		return lo < 0
	})
	switch {
	case lo >= 0:
		return append(append(append(dst, object[:lo]...), value...), object[hi:]...)
	case !ok:
		object, last = []byte("{}"), 1
	case last < 0:
		s := scanner{b: object}
		last = s.space(0) + 1
	default:
		dst = append(append(dst, object[:last]...), ',')
		object, last = object[last:], 0
	}
	dst = AppendString(append(dst, object[:last]...), key)
	return append(append(append(dst, ':'), value...), object[last:]...)
}

// AppendWithout appends object without the members of a key. Every other byte
// stays as it is, but for the commas that parted them from the others. What is
// no object stays as it is.
func AppendWithout(dst, object []byte, key string) []byte {
	begin, end := -1, -1 // of the member before
	kept := false
	whole := len(dst)
	ok := eachAt(object, func(k []byte, from, _, to int) bool {
		if begin < 0 {
			dst = append(dst, object[:from]...)
		}
		if string(k) != key {
			if kept {
				dst = append(dst, object[end:from]...)
			}
			dst = append(dst, object[from:to]...)
			kept = true
		}
		begin, end = from, to
		return true
	})
	if !ok || begin < 0 {
		return append(dst[:whole], object...)
	}
	return append(dst, object[end:]...)
}

// AppendEach appends array with each element replaced by what f makes of it.
// Every other byte stays as it is. What is no array stays as it is, too.
func AppendEach(dst, array []byte, f func(element []byte) []byte) []byte {
	s := scanner{b: array}
	var each []span
	i := s.space(0)
	if len(array) > longest || i >= len(array) || array[i] != '[' || s.array(i, 1, &each) < 0 {
		return append(dst, array...)
	}
	from := int32(0)
	for _, e := range each {
		dst = append(dst, array[from:e.lo]...)
		dst = append(dst, f(array[e.lo:e.hi:e.hi])...)
		from = e.hi
	}
	return append(dst, array[from:]...)
}

// Unquote returns the text of a JSON string, "" for anything else.
func Unquote(raw []byte) string {
	s := scanner{b: raw}
	if len(raw) < 2 || raw[0] != '"' || s.str(0) != len(raw) {
		return ""
	}
	return string(unescape(raw[1 : len(raw)-1]))
}
