package config

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a file, and so the recursion over it. Files
// that mean something are six deep.
const maxDepth = 100

type kind int

const (
	kindNull kind = iota
	kindBool
	kindNumber
	kindString
	kindList
	kindMap
)

// node is one value of the file, whichever syntax it was written in.
type node struct {
	kind  kind
	text  string // of a scalar, else empty; numbers and booleans as written
	line  int
	col   int
	items []*node // of a list
	pairs []pair  // of a map
	json  bool    // read by the JSON reader
	at    string  // the keys that lead here, for messages
}

type pair struct{ key, value *node }

// get returns the value of a key, nil if there is none.
func (n *node) get(key string) *node {
	for _, p := range n.pairs {
		if p.key.text == key {
			return p.value
		}
	}
	return nil
}

// scalar reports whether n has a text that can be taken as it was written.
func (n *node) scalar() bool {
	return n.kind == kindBool || n.kind == kindNumber || n.kind == kindString
}

// found describes n in an error message.
func (n *node) found() string {
	switch n.kind {
	case kindNull:
		return "nothing"
	case kindString:
		return quote(n.text)
	case kindList:
		return "a list"
	case kindMap:
		return "a mapping"
	}
	return shorten(n.text)
}

// child returns the path of a key or an index below n.
func (n *node) child(key string) string {
	if !validName(key) {
		key = quote(key)
	}
	key = shorten(key)
	if n.at == "" {
		return key
	}
	return n.at + "." + key
}

// setItemPaths names the items of a list that has just got its own path.
func (n *node) setItemPaths() {
	for i, item := range n.items {
		item.at = n.at + "[" + strconv.Itoa(i) + "]"
	}
}

// quote makes foreign text safe and short enough for a message.
func quote(s string) string { return strconv.Quote(shorten(s)) }

func shorten(s string) string {
	const most = 60
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most]) + "…"
}

// syntaxError is why a file cannot be read at all.
type syntaxError struct {
	line, col int
	text      string
}

// tree reads the syntax of a file. It returns nil after an error.
func (r *reader) tree(data []byte) *node {
	if len(data) > MaxSize {
		r.fail(0, 0, "the file is larger than 1 MiB, the most that a configuration may have")
		return nil
	}
	text, bad := decodeText(data)
	if bad != nil {
		r.fail(bad.line, bad.col, "%s", bad.text)
		return nil
	}
	read := readYAML
	if looksLikeJSON(text) {
		read = readJSON
	}
	root, bad := read(text)
	switch {
	case bad != nil:
		r.fail(bad.line, bad.col, "%s", bad.text)
		return nil
	case root == nil || root.kind == kindNull:
		r.fail(1, 1, "the file says nothing: write at least %s", leastFile)
		return nil
	case root.kind != kindMap:
		hint := ""
		if root.kind == kindString && strings.Contains(root.text, ":") {
			hint = " (a space belongs after the colon)"
		}
		r.fail(root.line, root.col, "expected keys with values, such as %s, found %s%s", leastFile, root.found(), hint)
		return nil
	}
	return root
}

// decodeText takes what editors put around a text away: a byte order mark and
// the line ends of Windows.
func decodeText(data []byte) (string, *syntaxError) {
	if bytes.HasPrefix(data, []byte{0xff, 0xfe}) || bytes.HasPrefix(data, []byte{0xfe, 0xff}) {
		return "", &syntaxError{1, 1, "the file is in UTF-16: save it as UTF-8"}
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	text := strings.ReplaceAll(string(data), "\r\n", "\n")
	for i, c := range text {
		if c == 0 {
			line, col := position(text, i)
			return "", &syntaxError{line, col, "a NUL byte: this is not a text file"}
		}
		if c == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				line, col := position(text, i)
				return "", &syntaxError{line, col, "not UTF-8: save the file as UTF-8"}
			}
		}
	}
	return text, nil
}

// position is the line and column of an offset, counted from 1.
func position(text string, offset int) (line, col int) {
	before := text[:offset]
	start := strings.LastIndexByte(before, '\n') + 1
	return strings.Count(before, "\n") + 1, utf8.RuneCountInString(before[start:]) + 1
}
