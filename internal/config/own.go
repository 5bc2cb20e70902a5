package config

import "slices"

const leastFile = "servers: {files: {command: [npx, -y, some-server]}}"

// ownFile reads the gateway's own format.
func (r *reader) ownFile(f *File, root *node) {
	fields := r.fileFields(f)
	r.object(root, fields, func(key string) string {
		if slices.Contains([]string{"command", "args", "env", "cwd", "url", "headers", "ca", "insecure_http"}, key) {
			return "it belongs to a server, as in " + leastFile
		}
		if plain(key) == "mcpservers" {
			return `did you mean "mcpServers"?`
		}
		return ""
	})
	r.checkWarm(f, root)
	if root.get("servers") == nil {
		r.fail(1, 1, "no servers: write at least %s", leastFile)
	}
	if p := root.get("sse_path"); p != nil || root.get("path") != nil {
		if mcp, sse := f.paths(); mcp == sse {
			if p == nil {
				p = root.get("path")
			}
			r.failAt(p, "path and sse_path are both %s: they must differ", quote(sse))
		}
	}
}

func (r *reader) fileFields(f *File) []field {
	fields := []field{
		{"listen", r.checked(&f.Listen, checkListen)},
		{"path", r.checked(&f.Path, checkPath)},
		{"sse_path", r.checked(&f.SSEPath, checkPath)},
		{"public_url", r.checked(&f.PublicURL, checkPublicURL)},
		{"allow_host", r.checkedList(&f.AllowHost, checkHost)},
		{"allow_origin", r.checkedList(&f.AllowOrigin, checkOrigin)},
		{"max_body", r.size(&f.MaxBody)},
		{"max_sessions", r.count(&f.MaxSessions, 1)},
		{"drain", r.duration(&f.Drain, true)},
		{"log_format", r.choice(&f.LogFormat, "text", "json")},
		{"log_level", r.choice(&f.LogLevel, "debug", "info", "warn", "error")},
		{"heartbeat", r.duration(&f.Heartbeat, false)},
		{"answer_grace", r.duration(&f.AnswerGrace, true)},
		{"session_timeout", r.duration(&f.SessionTimeout, false)},
		{"reconnect_grace", r.duration(&f.ReconnectGrace, true)},
		{"question_timeout", r.duration(&f.QuestionTimeout, false)},
		{"probe_timeout", r.duration(&f.ProbeTimeout, false)},
		{"reconnect_wait", r.duration(&f.ReconnectWait, false)},
		{"state_key", func(n *node) { r.stateKey(f, n) }},
		{"write_timeout", r.duration(&f.WriteTimeout, false)},
		{"result_ttl", r.duration(&f.ResultTTL, false)},
		{"adopt_window", r.duration(&f.AdoptWindow, true)},
	}
	fields = append(fields, r.childrenFields(&f.Children)...)
	fields = append(fields, r.clocksFields(&f.Clocks)...)
	return append(fields, field{"servers", func(n *node) { r.ownServers(f, n) }})
}

// fileKeys lists the keys of the top level.
func fileKeys() []string {
	var keys []string
	for _, f := range (&reader{}).fileFields(&File{}) {
		keys = append(keys, f.key)
	}
	return keys
}

func (r *reader) childrenFields(c *Children) []field {
	return []field{
		{"isolation", r.choice(&c.Isolation, "session", "shared")},
		{"max_children", r.count(&c.MaxChildren, 1)},
		{"warm", r.count(&c.Warm, 0)},
		{"start_timeout", r.duration(&c.StartTimeout, false)},
		{"stop_timeout", r.duration(&c.StopTimeout, false)},
	}
}

func (r *reader) ownServers(f *File, servers *node) {
	if servers.kind != kindMap || len(servers.pairs) == 0 {
		r.failAt(servers, "expected at least one server by its name, such as %s, found %s", leastFile, emptyOr(servers))
		return
	}
	if r.tooMany(servers, "servers") {
		return
	}
	for _, p := range r.entries(servers) {
		key := p.key
		if !validName(key.text) {
			r.fail(key.line, key.col, "%s: a server's name is of %s", key.at, allowedInNames)
			continue
		}
		s := Server{Name: key.text, Pos: Pos{r.file, key.line, key.col}}
		r.ownServer(&s, key, p.value)
		f.Servers = append(f.Servers, s)
	}
}

func (r *reader) ownServer(s *Server, key, n *node) {
	missing := func() {
		r.fail(key.line, key.col, "%s: no command: write what starts the server, such as command: [npx, -y, some-server], or where it is, as url: https://example.org/mcp", key.at)
	}
	switch n.kind {
	case kindNull:
		missing()
		return
	case kindMap:
	default:
		r.failAt(n, "expected a mapping with at least command: [npx, -y, some-server] or url: https://example.org/mcp, found %s", n.found())
		return
	}
	fields := append([]field{
		{"command", func(n *node) { r.ownCommand(s, n) }},
		{"args", func(n *node) { s.Args = append(s.Args, r.texts(n, r.ownText)...) }},
		{"env", func(n *node) { s.Env = r.env(n, r.ownText) }},
		{"cwd", func(n *node) { s.Dir = r.ownWord(n, "a folder") }},
	}, r.remoteFields(s)...)
	fields = append(fields, r.childrenFields(&s.Children)...)
	fields = append(fields, r.clocksFields(&s.Clocks)...)
	fields = append(fields, field{"tools", func(n *node) { s.Tools = r.tools(n) }})
	r.object(n, fields, func(key string) string {
		switch {
		case key == "type":
			return "leave it out: a command speaks stdio, and what is at a url is found out"
		case slices.Contains(fileKeys(), key):
			return "it belongs to the top level of the file"
		}
		return ""
	})
	command := n.get("command")
	if !r.fits(n) && command == nil {
		missing()
	}
	if args := n.get("args"); args != nil && command != nil && command.kind == kindList {
		r.failAt(args, "command is a list and holds the arguments already: put them all there")
	}
	r.warnOfLine(command, n.get("args"))
}

// ownCommand reads a program, or a list of a program and its arguments.
func (r *reader) ownCommand(s *Server, n *node) {
	const example = "a program, or a list such as [npx, -y, some-server]"
	if n.kind != kindList {
		s.Command = r.ownWord(n, example)
		return
	}
	if len(n.items) == 0 {
		r.failAt(n, "expected %s, found an empty list", example)
		return
	}
	n.setItemPaths()
	s.Command = r.ownWord(n.items[0], "a program")
	for _, item := range n.items[1:] {
		s.Args = append(s.Args, r.ownText(item))
	}
}

// ownText reads a text for a program and puts environment variables in.
func (r *reader) ownText(n *node) string {
	text, ok := r.spelled(n)
	if !ok {
		return ""
	}
	text, bad := r.expand(text)
	if bad != "" {
		r.failAt(n, "%s", bad)
	}
	return text
}

func (r *reader) ownWord(n *node, example string) string {
	if _, ok := r.word(n, example); !ok {
		return ""
	}
	before := len(r.errs)
	text := r.ownText(n)
	if text == "" && len(r.errs) == before {
		r.failAt(n, "expected %s, found a variable that is empty", example)
	}
	return text
}

// minStateKey is how many characters a state_key must have.
const minStateKey = 16

// stateKey reads the secret of requestState.
func (r *reader) stateKey(f *File, n *node) {
	before := len(r.errs)
	f.StateKey = r.ownText(n)
	if len(f.StateKey) < minStateKey && len(r.errs) == before {
		r.failAt(n, "expected a secret of at least %d characters", minStateKey)
	}
}

// checkWarm refuses more spare children than children, where the file says
// both. What it leaves to the default may still come from a flag.
func (r *reader) checkWarm(f *File, root *node) {
	check := func(c Children, n *node) {
		if n != nil && c.MaxChildren > 0 && c.Warm > c.MaxChildren {
			r.failAt(n, "warm (%d) is more than max_children (%d)", c.Warm, c.MaxChildren)
		}
	}
	check(f.Children, root.get("warm"))
	servers := root.get("servers")
	if servers == nil {
		return
	}
	for _, s := range f.Servers {
		entry := servers.get(s.Name)
		where := entry.get("warm")
		if where == nil {
			where = entry.get("max_children")
		}
		check(s.Children.Or(f.Children), where)
	}
}

func emptyOr(n *node) string {
	if n.kind == kindMap {
		return "none"
	}
	return n.found()
}
