package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxReported bounds the errors and the warnings of one file, each.
const maxReported = 50

// maxEntries bounds the servers of a file, and the tools of a server.
const maxEntries = 1000

// reader collects what is wrong with one file while it is read.
type reader struct {
	file     string
	lookup   func(string) (string, bool) // of environment variables
	expanded int                         // bytes that variables have brought so far
	errs     []*Error
	dropped  int // errors past the most that are kept
	warnings []Warning
}

func (r *reader) fail(line, col int, format string, args ...any) {
	if r.full() {
		r.dropped++
		return
	}
	r.errs = append(r.errs, &Error{Pos{r.file, line, col}, fmt.Sprintf(format, args...)})
}

// full reports whether more errors would only be counted.
func (r *reader) full() bool { return len(r.errs) >= maxReported }

// failAt reports an error at a value and names the keys that lead there.
func (r *reader) failAt(n *node, format string, args ...any) {
	r.fail(n.line, n.col, "%s: %s", n.at, fmt.Sprintf(format, args...))
}

func (r *reader) warn(n *node, format string, args ...any) {
	if len(r.warnings) == maxReported {
		format, args = "more warnings are left out", nil
	} else if len(r.warnings) > maxReported {
		return
	}
	r.warnings = append(r.warnings, Warning{Pos{r.file, n.line, n.col}, fmt.Sprintf(format, args...)})
}

// add takes the errors of Check over.
func (r *reader) add(err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			if e, ok := errors.AsType[*Error](one); ok {
				r.errs = append(r.errs, e)
			}
		}
	}
}

// err joins the errors in the order of the file.
func (r *reader) err() error {
	slices.SortStableFunc(r.errs, func(a, b *Error) int { return comparePos(a.Pos, b.Pos) })
	var all []error
	for _, e := range r.errs {
		all = append(all, e)
	}
	if r.dropped > 0 {
		all = append(all, &Error{Pos{File: r.file}, fmt.Sprintf("%d more errors", r.dropped)})
	}
	return errors.Join(all...)
}

// field is one known key of a mapping.
type field struct {
	key  string
	read func(*node)
}

// object reads a mapping with known keys. unknown explains a key that is not
// among them; it may return "".
func (r *reader) object(n *node, fields []field, unknown func(key string) string) {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	for _, p := range r.entries(n) {
		key := p.key
		if i := slices.Index(keys, key.text); i >= 0 {
			fields[i].read(p.value)
			continue
		}
		if r.full() {
			r.dropped++
			continue
		}
		why := unknown(key.text)
		if why == "" {
			why = "known keys are " + strings.Join(keys, ", ")
			if near := nearest(key.text, keys); near != "" {
				why = fmt.Sprintf("did you mean %q?", near)
			}
		}
		prefix := ""
		if n.at != "" {
			prefix = n.at + ": "
		}
		r.fail(key.line, key.col, "%sunknown key %s: %s", prefix, quote(key.text), why)
	}
}

// entries gives every key and value of a mapping its path and returns them,
// without what is there twice, which it refuses.
func (r *reader) entries(n *node) []pair {
	first := make(map[string]*node, len(n.pairs))
	var all []pair
	for _, p := range n.pairs {
		p.key.at = n.child(p.key.text)
		p.value.at = p.key.at
		was, twice := first[p.key.text]
		switch {
		case !p.key.scalar():
			r.fail(p.key.line, p.key.col, "expected a key that is a word, found %s", p.key.found())
		case twice:
			r.fail(p.key.line, p.key.col, "%s: the key is here twice, first in line %d", p.key.at, was.line)
		default:
			first[p.key.text] = p.key
			all = append(all, p)
		}
	}
	return all
}

// checked reads a text that passes check, which returns what is expected
// instead, or "". Every check refuses the empty text.
func (r *reader) checked(into *string, check func(string) string) func(*node) {
	return func(n *node) {
		if expected := check(n.text); expected != "" {
			r.failAt(n, "expected %s, found %s", expected, n.found())
			return
		}
		*into = n.text
	}
}

// checkedList reads a list of texts that each pass check.
func (r *reader) checkedList(into *[]string, check func(string) string) func(*node) {
	return func(n *node) {
		if n.kind != kindList {
			r.failAt(n, "expected a list in brackets, found %s", n.found())
			return
		}
		n.setItemPaths()
		for _, item := range n.items {
			var one string
			r.checked(&one, check)(item)
			*into = append(*into, one)
		}
	}
}

// spelled is the text of a value that goes to a program as it was written, so
// that a port number needs no quotes.
func (r *reader) spelled(n *node) (string, bool) {
	if !n.scalar() {
		r.failAt(n, "expected a text, found %s", n.found())
		return "", false
	}
	if strings.ContainsRune(n.text, 0) {
		r.failAt(n, "the text holds a NUL character, which no program can be given")
		return "", false
	}
	return n.text, true
}

// word is spelled for what can be neither a number nor empty.
func (r *reader) word(n *node, example string) (string, bool) {
	if n.kind != kindString || n.text == "" {
		r.failAt(n, "expected %s, found %s", example, n.found())
		return "", false
	}
	return r.spelled(n)
}

func (r *reader) texts(n *node, text func(*node) string) []string {
	if n.kind != kindList {
		r.failAt(n, "expected a list in brackets, found %s", n.found())
		return nil
	}
	n.setItemPaths()
	var all []string
	for _, item := range n.items {
		all = append(all, text(item))
	}
	return all
}

// env reads environment variables as "KEY=value".
func (r *reader) env(n *node, text func(*node) string) []string {
	if n.kind != kindMap {
		r.failAt(n, "expected variables with their values, such as {LANG: C}, found %s", n.found())
		return nil
	}
	var all []string
	for _, p := range r.entries(n) {
		if p.key.text == "" || strings.ContainsAny(p.key.text, "=\x00") {
			r.fail(p.key.line, p.key.col, "%s: this cannot be the name of an environment variable", p.key.at)
			continue
		}
		all = append(all, p.key.text+"="+text(p.value))
	}
	return all
}

// warnOfLine tells who wrote a command line where a program belongs. Spaces
// are legal in the name of a program, but then nearly always in a path.
func (r *reader) warnOfLine(command, args *node) {
	if command != nil && args == nil && strings.ContainsAny(command.text, " \t") && !strings.ContainsAny(command.text, `/\`) {
		r.warn(command, "%s: %s is taken as the name of one program: its arguments belong in args", command.at, quote(command.text))
	}
}

// tooMany bounds what is compared with one another.
func (r *reader) tooMany(n *node, what string) bool {
	if len(n.pairs) > maxEntries {
		r.failAt(n, "more than %d %s", maxEntries, what)
		return true
	}
	return false
}
