package config

import (
	"slices"
	"strings"
)

// clientServers returns the key under which a file of a desktop client has its
// servers, "" if the file is not of that kind. VS Code has them under "servers"
// like our own format, but each with a "type", which ours does not know: such
// a file can only be one of the two.
func clientServers(root *node) string {
	if root.get("mcpServers") != nil {
		return "mcpServers"
	}
	servers := root.get("servers")
	if !root.json || servers == nil || servers.kind != kindMap || len(servers.pairs) == 0 {
		return ""
	}
	own := fileKeys()
	for _, p := range root.pairs {
		if p.key.text != "servers" && slices.Contains(own, p.key.text) {
			return ""
		}
	}
	for _, p := range servers.pairs {
		if typ := p.value.get("type"); typ == nil || typ.kind != kindString {
			return ""
		}
	}
	return "servers"
}

// clientFile reads the servers of a desktop client's file.
func (r *reader) clientFile(f *File, root *node, serversKey string) {
	var servers *node
	own := fileKeys()
	for _, p := range r.entries(root) {
		key := p.key
		switch {
		case key.text == serversKey:
			servers = p.value
		case slices.Contains(own, key.text):
			r.warn(key, "%s is not used: a file with %s has servers only; use the flag, or servers instead of %s", key.at, serversKey, serversKey)
		default:
			r.warn(key, "%s is not used", key.at)
		}
	}
	if servers.kind != kindMap || len(servers.pairs) == 0 {
		r.failAt(servers, `expected at least one server, such as {"files": {"command": "npx", "args": ["-y", "some-server"]}}, found %s`, emptyOr(servers))
		return
	}
	if r.tooMany(servers, "servers") {
		return
	}
	// Names that need no change come first, so that no other takes them.
	taken := map[string]bool{}
	for _, p := range servers.pairs {
		if validName(p.key.text) {
			taken[p.key.text] = true
		}
	}
	var other *node
	for _, p := range r.entries(servers) {
		key := p.key
		s := Server{Name: key.text, Pos: Pos{r.file, key.line, key.col}}
		switch r.clientServer(&s, key, p.value) {
		case entryOther:
			if other == nil {
				other = key
			}
		case entryUsed:
			if !validName(s.Name) {
				s.Name = slug(s.Name, taken)
				taken[s.Name] = true
				r.warn(key, "%s: the name is served as %s: a server's name is of %s", key.at, quote(s.Name), allowedInNames)
			}
			f.Servers = append(f.Servers, s)
		}
	}
	if len(f.Servers) > 0 || len(r.errs) > 0 {
		return
	}
	if other != nil {
		r.fail(other.line, other.col, "%s: no revision of MCP speaks over WebSocket, and the file has no other server", other.at)
		return
	}
	r.failAt(servers, "every server is disabled: enable one")
}

type entryKind int

const (
	entryUsed entryKind = iota
	entryDisabled
	entryOther // of a kind that is not known here
)

// clientServer reads one entry. Of the keys that clients have besides, it
// knows those that decide whether there is something to start.
func (r *reader) clientServer(s *Server, key, n *node) entryKind {
	if n.kind != kindMap {
		r.failAt(n, `expected an object such as {"command": "npx", "args": ["-y", "some-server"]}, found %s`, n.found())
		return entryUsed
	}
	if d := n.get("disabled"); d != nil && d.kind == kindBool && d.text == "true" {
		r.warn(key, "%s is left out: it is disabled", key.at)
		return entryDisabled
	}
	command := n.get("command")
	if command == nil && isRemote(n) {
		return r.clientRemote(s, key, n)
	}
	if command == nil {
		r.fail(key.line, key.col, `%s: no command: write what starts the server, such as "command": "npx", or where it is, as "url": "https://example.org/mcp"`, key.at)
	}
	for _, p := range r.entries(n) {
		k, v := p.key, p.value
		switch {
		case k.text == "command":
			s.Command, _ = r.word(v, "a program")
			r.warnOfVariable(v)
		case v.kind == kindNull && (k.text == "args" || k.text == "env" || k.text == "cwd"):
		case k.text == "args":
			s.Args = r.texts(v, r.clientText)
		case k.text == "env":
			s.Env = r.env(v, r.clientText)
		case k.text == "cwd":
			s.Dir, _ = r.word(v, "a folder")
			r.warnOfVariable(v)
		case k.text == "type" && v.text == "stdio":
		case k.text == "disabled" && v.text == "false":
		default:
			r.warn(k, "%s is not used", k.at)
		}
	}
	r.warnOfLine(command, n.get("args"))
	return entryUsed
}

func (r *reader) clientText(n *node) string {
	text, _ := r.spelled(n)
	r.warnOfVariable(n)
	return text
}

// warnOfVariable tells of text that some client replaces and others do not:
// each has its own rules, and none of them holds here.
func (r *reader) warnOfVariable(n *node) {
	if strings.Contains(n.text, "${") {
		r.warn(n, "%s: the server gets ${…} as it is written, no variable is put in", n.at)
	}
}
