package config

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// The library takes time quadratic in the blank lines of a block of text, in
// the keys of a mapping and in the nesting. With these bounds the worst file
// costs about a second; a gateway of 200 servers has a tenth of them.
const (
	maxYAMLLines  = 10_000
	maxYAMLTokens = 30_000
)

// readYAML returns nil for a text without content.
func readYAML(text string) (*node, *syntaxError) {
	if strings.Count(text, "\n") > maxYAMLLines {
		return nil, &syntaxError{maxYAMLLines + 1, 1, fmt.Sprintf("more than %d lines", maxYAMLLines)}
	}
	var tokens token.Tokens
	if err := guarded(func() error { tokens = lexer.Tokenize(text); return nil }); err != nil {
		return nil, err
	}
	if err := checkTokens(tokens); err != nil {
		return nil, err
	}
	var file *ast.File
	err := guarded(func() error {
		var err error
		// Our own check of repeated keys comes later, for JSON too.
		file, err = parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, doc := range file.Docs {
		if doc.Body != nil {
			return fromAST(doc.Body, 0)
		}
	}
	return nil, nil
}

// guarded calls the library, which panics on some texts, and turns whatever
// comes of it into an error with a place.
func guarded(call func() error) (bad *syntaxError) {
	defer func() {
		if p := recover(); p != nil {
			bad = &syntaxError{1, 1, printable(fmt.Sprintf("not valid YAML: the reader gave up: %v", p))}
		}
	}()
	err := call()
	if err == nil {
		return nil
	}
	bad = &syntaxError{1, 1, "not valid YAML"}
	if e, ok := errors.AsType[yaml.Error](err); ok {
		bad.text += ": " + printable(e.GetMessage())
		if tk := e.GetToken(); tk != nil && tk.Position != nil {
			bad.line, bad.col = tk.Position.Line, tk.Position.Column
		}
	}
	return bad
}

// printable keeps what the library quotes from the file from reaching a
// terminal raw.
func printable(s string) string {
	const most = 200
	s = strings.ReplaceAll(s, "\t", `\t`)
	runes := []rune(s)
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return unicode.ReplacementChar
		}
		return c
	}, string(runes[:min(most, len(runes))]))
}

// refused says why a part of YAML is not for a configuration, "" if it is:
// references because a few lines of them unfold to gigabytes, the rest because
// what they do surprises.
func refused(t token.Type) string {
	const ifText = ", which is not supported here: put the text in quotes if it is text"
	switch t {
	case token.AnchorType:
		return `"&" begins an anchor` + ifText
	case token.AliasType:
		return `"*" begins an alias` + ifText
	case token.TagType:
		return `"!" begins a tag` + ifText
	case token.MergeKeyType:
		return `the merge key "<<" is not supported here`
	case token.MappingKeyType:
		return `"?" begins a complex key` + ifText
	case token.DirectiveType:
		return `"%" begins a directive` + ifText
	}
	return ""
}

func checkTokens(tokens token.Tokens) *syntaxError {
	if len(tokens) > maxYAMLTokens {
		tk := tokens[maxYAMLTokens]
		return syntaxAt(tk, "more than %d words and signs", maxYAMLTokens)
	}
	brackets, dashes, line, ended := 0, 0, 0, false
	for i, tk := range tokens {
		if tk.Position.Line != line {
			line, dashes = tk.Position.Line, 0
		}
		switch tk.Type {
		case token.MappingStartType, token.SequenceStartType:
			brackets++
		case token.MappingEndType, token.SequenceEndType:
			brackets--
		case token.SequenceEntryType:
			dashes++
		case token.DocumentEndType:
			ended = true
			continue
		case token.CommentType:
			continue
		}
		if why := refused(tk.Type); why != "" {
			return syntaxAt(tk, "%s", why)
		}
		if ended || tk.Type == token.DocumentHeaderType && hasContent(tokens[:i]) {
			return syntaxAt(tk, "a second document begins here: a configuration is one document")
		}
		if brackets > maxDepth || dashes > maxDepth {
			return syntaxAt(tk, "nested more than %d deep", maxDepth)
		}
	}
	return nil
}

func hasContent(tokens token.Tokens) bool {
	for _, tk := range tokens {
		if tk.Type != token.CommentType {
			return true
		}
	}
	return false
}

func syntaxAt(tk *token.Token, format string, args ...any) *syntaxError {
	return &syntaxError{tk.Position.Line, tk.Position.Column, fmt.Sprintf(format, args...)}
}

// fromAST turns the library's tree into ours.
func fromAST(n ast.Node, depth int) (*node, *syntaxError) {
	tk := n.GetToken()
	out := &node{text: tk.Value, line: tk.Position.Line, col: tk.Position.Column}
	if depth > maxDepth {
		return nil, syntaxAt(tk, "nested more than %d deep", maxDepth)
	}
	switch n := n.(type) {
	case *ast.NullNode:
		out.kind, out.text = kindNull, ""
	case *ast.BoolNode:
		out.kind = kindBool
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		out.kind = kindNumber
	case *ast.StringNode:
		out.kind, out.text = kindString, n.Value
	case *ast.LiteralNode:
		out.kind, out.text = kindString, n.Value.Value
	case *ast.SequenceNode:
		out.kind, out.text = kindList, ""
		for _, v := range n.Values {
			item, err := fromAST(v, depth+1)
			if err != nil {
				return nil, err
			}
			out.items = append(out.items, item)
		}
	case *ast.MappingNode:
		out.kind, out.text = kindMap, ""
		for _, v := range n.Values {
			key, err := fromAST(v.Key, depth+1)
			if err != nil {
				return nil, err
			}
			value, err := fromAST(v.Value, depth+1)
			if err != nil {
				return nil, err
			}
			out.pairs = append(out.pairs, pair{key, value})
		}
		if !n.IsFlowStyle && len(out.pairs) > 0 {
			// The library places a block at its first colon.
			out.line, out.col = out.pairs[0].key.line, out.pairs[0].key.col
		}
	default:
		return nil, syntaxAt(tk, "%s is not supported here", printable(n.Type().String()))
	}
	return out, nil
}
