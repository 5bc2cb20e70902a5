package config

import (
	"slices"
	"strings"
	"time"
)

// maxToolName is how many bytes the name of a tool may have here. Every call
// is compared with the patterns.
const maxToolName = 256

const leastTool = "{build_report: {on_disconnect: linger}}"

func (r *reader) clocksFields(c *Clocks) []field {
	return []field{
		{"ping_interval", r.duration(&c.PingInterval, true)},
		{"ping_timeout", r.duration(&c.PingTimeout, false)},
		{"ping_misses", r.count(&c.PingMisses, 1)},
		{"request_timeout", r.duration(&c.RequestTimeout, true)},
		{"request_max", r.duration(&c.RequestMax, true)},
		{"orphan_grace", r.duration(&c.OrphanGrace, true)},
		{"task_after", r.duration(&c.TaskAfter, true)},
	}
}

func (r *reader) toolFields(t *Tool) []field {
	return []field{
		{"adopt", r.choice(&t.Adopt, "auto", "key", "never")},
		{"on_disconnect", r.choice(&t.OnDisconnect, "cancel", "keep", "linger")},
		{"request_timeout", r.duration(&t.RequestTimeout, true)},
		{"request_max", r.duration(&t.RequestMax, true)},
		{"orphan_grace", r.duration(&t.OrphanGrace, true)},
		{"task", func(n *node) { r.task(t, n) }},
	}
}

// task reads which calls of a tool become tasks.
func (r *reader) task(t *Tool, n *node) {
	words := []string{"never", "always", "required"}
	d, err := time.ParseDuration(n.text)
	switch {
	case n.kind == kindString && slices.Contains(words, n.text):
		t.Task = n.text
	case n.kind == kindString && err == nil && d >= minDuration:
		t.TaskAfter = d
	default:
		r.failAt(n, "expected never, always, required or a duration such as 30s, found %s", n.found())
	}
}

// tools reads what a server's entry says of its tools.
func (r *reader) tools(n *node) []Tool {
	if n.kind != kindMap || len(n.pairs) == 0 {
		r.failAt(n, "expected tools by their names, such as %s, found %s", leastTool, emptyOr(n))
		return nil
	}
	if r.tooMany(n, "tools") {
		return nil
	}
	var all []Tool
	for _, p := range r.entries(n) {
		key := p.key
		if key.text == "" || len(key.text) > maxToolName || strings.ContainsFunc(key.text, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			r.fail(key.line, key.col, "%s: expected the name of a tool, or a pattern such as \"charge_*\", of at most %d bytes", key.at, maxToolName)
			continue
		}
		t := Tool{Name: key.text, Pos: Pos{r.file, key.line, key.col}}
		r.tool(&t, p.value)
		all = append(all, t)
	}
	return all
}

func (r *reader) tool(t *Tool, n *node) {
	if n.kind != kindMap {
		r.failAt(n, "expected what holds for its calls, such as {adopt: never}, found %s", n.found())
		return
	}
	r.object(n, r.toolFields(t), func(key string) string {
		isKey := func(f field) bool { return f.key == key }
		switch {
		case slices.ContainsFunc(r.clocksFields(&Clocks{}), isKey), slices.ContainsFunc(r.childrenFields(&Children{}), isKey):
			return "it belongs to the server"
		case slices.Contains(fileKeys(), key):
			return "it belongs to the top level of the file"
		}
		return ""
	})
}
