package config

import (
	"fmt"
	"strings"
)

// expand replaces ${VAR} and ${VAR:-default} by the environment's values, as a
// shell does: the default also stands in for an empty variable. A dollar sign
// without a brace is itself, $${ is a literal ${, and what a variable holds is
// not looked at again. The second result says what is wrong, or is "".
func (r *reader) expand(text string) (string, string) {
	var out strings.Builder
	for {
		i := strings.Index(text, "${")
		if i < 0 {
			out.WriteString(text)
			return out.String(), ""
		}
		if i > 0 && text[i-1] == '$' {
			out.WriteString(text[:i-1] + "${")
			text = text[i+2:]
			continue
		}
		out.WriteString(text[:i])
		inner, rest, closed := strings.Cut(text[i+2:], "}")
		name, fallback, hasDefault := strings.Cut(inner, ":-")
		if !closed || !variableName(name) || strings.Contains(fallback, "${") {
			// What comes after the name may be a secret.
			end := strings.IndexFunc(text[i+2:], func(c rune) bool { return !variableName("_" + string(c)) })
			if end < 0 {
				end = len(text) - i - 2
			}
			return "", fmt.Sprintf("expected ${VARIABLE} or ${VARIABLE:-default}, found %s…; a ${ that is text is written $${", shorten(text[i:i+2+end]))
		}
		value, set := r.lookup(name)
		switch {
		case value == "" && hasDefault:
			value = fallback
		case !set:
			return "", fmt.Sprintf("the environment variable %s is not set: set it, or give a default as in ${%s:-value}", shorten(name), shorten(name))
		}
		if r.expanded += len(value); r.expanded > MaxSize {
			return "", "the variables of this file hold more than 1 MiB in all"
		}
		out.WriteString(value)
		text = rest
	}
}

func variableName(s string) bool {
	for i, c := range s {
		if c != '_' && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
