package config

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
)

// remoteFields are the keys of a server that is reached by its URL.
func (r *reader) remoteFields(s *Server) []field {
	return []field{
		{"url", func(n *node) { s.URL = r.remoteURL(n, r.ownText) }},
		{"headers", func(n *node) { s.Headers = r.headers(n, r.ownText) }},
		{"ca", func(n *node) { s.CA = r.ownWord(n, "a PEM file") }},
		{"insecure_http", func(n *node) { s.InsecureHTTP = r.yes(n) }},
	}
}

// remoteURL reads the address of a server.
func (r *reader) remoteURL(n *node, text func(*node) string) string {
	before := len(r.errs)
	if _, ok := r.word(n, "a URL such as https://example.org/mcp"); !ok {
		return ""
	}
	s := text(n)
	if expected := checkRemoteURL(s); expected != "" && len(r.errs) == before {
		r.failAt(n, "expected %s", expected) // what was found may hold a secret
	}
	return s
}

func checkRemoteURL(s string) string {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "":
		return "a URL such as https://example.org/mcp"
	case u.User != nil:
		return "a URL without user and password: they belong into headers, as Authorization"
	}
	return ""
}

// headers reads what goes with each request, as "Name: value".
func (r *reader) headers(n *node, text func(*node) string) []string {
	if n.kind != kindMap {
		r.failAt(n, `expected headers with their values, such as {Authorization: "Bearer ${TOKEN}"}, found %s`, n.found())
		return nil
	}
	var all []string
	for _, p := range r.entries(n) {
		before := len(r.errs)
		value := text(p.value)
		if wrong := checkHeader(p.key.text, value); wrong != "" && len(r.errs) == before {
			r.fail(p.key.line, p.key.col, "%s: %s", p.key.at, wrong)
			continue
		}
		all = append(all, p.key.text+": "+strings.TrimSpace(value))
	}
	return all
}

// checkHeader returns what is wrong with a header, without its value, or "".
func checkHeader(name, value string) string {
	token := name != "" && !strings.ContainsFunc(name, func(c rune) bool { // RFC 9110 section 5.6.2
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
	switch {
	case !token:
		return "this cannot be the name of a header"
	case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
		return "its value holds a character that no header can carry, such as a line break"
	}
	return ""
}

// ParseHeader reads one header written as "Name: value". The error does not
// hold the value.
func ParseHeader(s string) (name, value string, err error) {
	name, value, ok := strings.Cut(s, ":")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	wrong := checkHeader(name, value)
	switch {
	case !ok:
		return "", "", fmt.Errorf(`%w: expected "Name: value"`, ErrInvalid)
	case wrong != "":
		return "", "", fmt.Errorf("%w: %s: %s", ErrInvalid, quote(name), wrong)
	}
	return name, value, nil
}

// Expand puts environment variables into a text, as the gateway's own format
// does.
func Expand(text string) (string, error) {
	text, wrong := (&reader{lookup: os.LookupEnv}).expand(text)
	if wrong != "" {
		return "", fmt.Errorf("%w: %s", ErrInvalid, wrong)
	}
	return text, nil
}

// yes reads true or false.
func (r *reader) yes(n *node) bool {
	if n.kind != kindBool {
		r.failAt(n, "expected true or false, found %s", n.found())
	}
	return n.text == "true"
}

// fits refuses keys that belong to the other kind of server. It reports whether
// the server is a remote one.
func (r *reader) fits(n *node) bool {
	remote := n.get("url") != nil
	if remote && n.get("command") != nil {
		r.failAt(n.get("url"), "a server has a command or a url, not both")
		return true
	}
	keys, why := []string{"headers", "ca", "insecure_http"}, "it belongs to a url, and the server has none"
	if remote {
		keys, why = []string{"args", "env", "cwd"}, "it belongs to a command, and the server has a url"
	}
	for _, key := range keys {
		if v := n.get(key); v != nil {
			r.failAt(v, "%s", why)
		}
	}
	return remote
}

// urlKeys are where clients have the address of a server.
var urlKeys = []string{"httpUrl", "serverUrl", "url"}

// httpTypes are what clients call the transports that a URL may be of; which one
// it is, is found out.
var httpTypes = []string{"http", "sse", "streamable-http", "streamableHttp", "streamable_http"}

func isRemote(n *node) bool {
	for _, key := range urlKeys {
		if n.get(key) != nil {
			return true
		}
	}
	typ := n.get("type")
	return typ != nil && (typ.text == "ws" || slices.Contains(httpTypes, typ.text))
}

// clientRemote reads an entry for a server that is reached by its URL.
func (r *reader) clientRemote(s *Server, key, n *node) entryKind {
	if typ := n.get("type"); typ != nil && typ.text == "ws" {
		r.warn(key, "%s is left out: no revision of MCP speaks over WebSocket", key.at)
		return entryOther
	}
	var at *node
	for _, name := range urlKeys {
		if at == nil {
			at = n.get(name)
		}
	}
	if at == nil {
		r.fail(key.line, key.col, `%s: no url: write where the server is, such as "url": "https://example.org/mcp"`, key.at)
	}
	for _, p := range r.entries(n) {
		k, v := p.key, p.value
		switch {
		case v == at:
			s.URL = r.remoteURL(v, r.clientSecret)
		case v.kind == kindNull && k.text == "headers":
		case k.text == "headers":
			s.Headers = r.headers(v, r.clientSecret)
		case k.text == "type" && slices.Contains(httpTypes, v.text):
		case k.text == "disabled" && v.text == "false":
		default:
			r.warn(k, "%s is not used", k.at)
		}
	}
	return entryUsed
}

// clientSecret reads a text in which clients let variables stand for secrets:
// as ${VAR}, as here, or as ${env:VAR}.
func (r *reader) clientSecret(n *node) string {
	text, ok := r.spelled(n)
	if !ok {
		return ""
	}
	text, wrong := r.expand(strings.ReplaceAll(text, "${env:", "${"))
	if wrong != "" {
		r.failAt(n, "%s", wrong)
	}
	return text
}
