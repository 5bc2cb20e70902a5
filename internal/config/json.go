package config

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// jsonReader reads JSON with what desktop clients let pass in their files:
// comments and a comma before a closing bracket. Such files are YAML too, but
// a YAML reader makes a key of a // comment and one long string of two members
// without a comma between them, and says nothing.
type jsonReader struct {
	text string
	off  int
	// The line and column of off, kept along: counting from the start for each
	// value would be quadratic in a file of one line.
	line, col int
}

// looksLikeJSON reports whether the text begins like a JSON object; YAML in
// braces has bare keys.
func looksLikeJSON(text string) bool {
	r := &jsonReader{text: text, line: 1, col: 1}
	if r.space() != nil {
		return true
	}
	if r.peek() != '{' {
		return false
	}
	r.advance(1)
	return r.space() != nil || r.peek() == '"' || r.peek() == '}' || r.peek() == 0
}

func readJSON(text string) (*node, *syntaxError) {
	r := &jsonReader{text: text, line: 1, col: 1}
	root, err := r.value(0)
	if err == nil {
		err = r.space()
	}
	if err == nil && r.off < len(r.text) {
		err = r.errorf("expected the end of the file, found %s", r.found())
	}
	return root, err
}

func (r *jsonReader) errorf(format string, args ...any) *syntaxError {
	return &syntaxError{r.line, r.col, fmt.Sprintf(format, args...)}
}

// peek returns the next byte, 0 at the end; a NUL byte is not in the text.
func (r *jsonReader) peek() byte {
	if r.off == len(r.text) {
		return 0
	}
	return r.text[r.off]
}

func (r *jsonReader) advance(n int) {
	passed := r.text[r.off : r.off+n]
	r.off += n
	if lines := strings.Count(passed, "\n"); lines > 0 {
		r.line += lines
		r.col = 1
		passed = passed[strings.LastIndexByte(passed, '\n')+1:]
	}
	r.col += utf8.RuneCountInString(passed)
}

// found describes what comes next.
func (r *jsonReader) found() string {
	switch r.peek() {
	case 0:
		return "the end of the file"
	case '"':
		return "a string"
	}
	if token := r.token(); token != "" {
		return quote(token)
	}
	_, size := utf8.DecodeRuneInString(r.text[r.off:])
	return quote(r.text[r.off : r.off+size])
}

// space skips white space and comments.
func (r *jsonReader) space() *syntaxError {
	for r.off < len(r.text) {
		rest := r.text[r.off:]
		n := len(rest) - len(strings.TrimLeft(rest, " \t\r\n"))
		switch {
		case n > 0:
		case strings.HasPrefix(rest, "//"), rest[0] == '#':
			if n = strings.IndexByte(rest, '\n'); n < 0 {
				n = len(rest)
			}
		case strings.HasPrefix(rest, "/*"):
			end := strings.Index(rest[2:], "*/")
			if end < 0 {
				return r.errorf("a comment without its end */")
			}
			n = end + 4
		default:
			return nil
		}
		r.advance(n)
	}
	return nil
}

// value reads what comes next, white space before it included.
func (r *jsonReader) value(depth int) (*node, *syntaxError) {
	if err := r.space(); err != nil {
		return nil, err
	}
	if depth > maxDepth {
		return nil, r.errorf("nested more than %d deep", maxDepth)
	}
	n := &node{line: r.line, col: r.col, json: true}
	switch r.peek() {
	case '{':
		n.kind = kindMap
		return n, r.members('}', func() *syntaxError { return r.pair(n, depth) })
	case '[':
		n.kind = kindList
		return n, r.members(']', func() *syntaxError {
			item, err := r.value(depth + 1)
			n.items = append(n.items, item)
			return err
		})
	case '"':
		n.kind = kindString
		return n, r.str(&n.text)
	}
	token := r.token()
	if token == "" || !json.Valid([]byte(token)) {
		return nil, r.errorf("expected a value, found %s", r.found())
	}
	switch token {
	case "null":
		n.kind = kindNull
	case "true", "false":
		n.kind, n.text = kindBool, token
	default:
		n.kind, n.text = kindNumber, token
	}
	r.advance(len(token))
	return n, nil
}

// token returns the letters, digits and signs that come next.
func (r *jsonReader) token() string {
	rest := r.text[r.off:]
	end := strings.IndexFunc(rest, func(c rune) bool { return c != '+' && !nameRune(c) })
	if end < 0 {
		return rest
	}
	return rest[:end]
}

// members reads an object or a list up to its closing bracket.
func (r *jsonReader) members(closing byte, one func() *syntaxError) *syntaxError {
	opened := r.errorf("a bracket that is never closed: expected %q before the end of the file", string(closing))
	r.advance(1)
	for {
		if err := r.space(); err != nil {
			return err
		}
		switch r.peek() {
		case closing:
			r.advance(1)
			return nil
		case 0:
			return opened
		}
		if err := one(); err != nil {
			return err
		}
		if err := r.space(); err != nil {
			return err
		}
		switch r.peek() {
		case ',':
			r.advance(1)
		case closing:
		case 0:
			return opened
		default:
			return r.errorf(`expected "," or %q, found %s`, string(closing), r.found())
		}
	}
}

func (r *jsonReader) pair(n *node, depth int) *syntaxError {
	if r.peek() != '"' {
		return r.errorf("expected a key in double quotes, found %s", r.found())
	}
	key := &node{kind: kindString, line: r.line, col: r.col, json: true}
	if err := r.str(&key.text); err != nil {
		return err
	}
	if err := r.space(); err != nil {
		return err
	}
	if r.peek() != ':' {
		return r.errorf(`expected ":" after the key %s, found %s`, quote(key.text), r.found())
	}
	r.advance(1)
	value, err := r.value(depth + 1)
	n.pairs = append(n.pairs, pair{key, value})
	return err
}

// str reads a string, whose escapes are encoding/json's business.
func (r *jsonReader) str(into *string) *syntaxError {
	rest := r.text[r.off:]
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case '\n':
			return r.errorf("a string that does not end on its line")
		case '"':
			if err := json.Unmarshal([]byte(rest[:i+1]), into); err != nil {
				return r.errorf("a string that is not JSON: %s", err)
			}
			r.advance(i + 1)
			return nil
		}
	}
	return r.errorf("a string without its closing quote")
}
