package holdfast_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// What came of the matrix, as it stands in docs/eras.md.

var updateDocs = flag.Bool("update", false, "write into the documentation what the tests found")

const (
	matrixPage  = "docs/eras.md"
	matrixTitle = "## The matrix\n"
)

// compare holds the section of the documentation against what was run, or
// writes it.
func (r *tables) compare(t *testing.T) {
	t.Helper()
	if !r.whole() {
		some := flag.Lookup("test.run").Value.String() + flag.Lookup("test.skip").Value.String()
		if !strings.Contains(some, "/") { // nobody has asked for less than all
			t.Error("not every cell that is possible has run")
		}
		return
	}
	page, err := os.ReadFile(matrixPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), matrixTitle)
	after := ""
	if !found {
		before = strings.TrimRight(before, "\n") + "\n\n"
	} else if _, next, more := strings.Cut(rest, "\n## "); more {
		after = "\n## " + next
	}
	want := before + r.section() + after
	switch {
	case want == string(page):
	case *updateDocs:
		if err := os.WriteFile(matrixPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the section %q of %s is not what was run; go test -run TestMatrix . -update writes it", strings.TrimSpace(matrixTitle), matrixPage)
	}
}

// section is the section as it must be.
func (r *tables) section() string {
	var b strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&b, format+"\n", args...) }
	all, held := len(sides())*len(sides())*len(operations()), 0
	for _, cells := range r.held {
		held += len(cells)
	}
	without := r.without()
	possible := all
	for _, n := range without {
		possible -= n
	}
	line("%s", matrixTitle)
	line("Each revision over each transport, on both sides. Made by `TestMatrix`, which runs every cell over pipes in")
	line("memory or sockets on loopback, and fails if this section says anything else. A server there speaks its one")
	line("revision, whatever it is asked for; a client stays only if it is told its own or an earlier one. HTTP+SSE is")
	line("deprecated since 2025-03-26, and kept for compatibility by all revisions with a handshake.")
	line("")
	line("**%d of the %d cells that the specification makes possible hold**, of %d in all. A number is how many of", held, possible, all)
	line("the %d operations hold; a letter stands for why one cannot be.", len(operations()))
	line("")
	r.crossings(line)
	line("")
	line("| | why not | cells |")
	line("| --- | --- | --- |")
	for _, letter := range slices.Sorted(maps.Keys(reasons)) {
		line("| %s | %s | %d |", letter, reasons[letter], without[letter])
	}
	line("")
	line("| operation | what must hold | cells |")
	line("| --- | --- | --- |")
	for _, o := range operations() {
		n := 0
		for _, cells := range r.held {
			if cells[o.name] {
				n++
			}
		}
		line("| %s | %s | %d |", o.name, o.what, n)
	}
	for _, ways := range []struct {
		title string
		each  []cutWay
	}{{"cut before: the client", waysBefore}, {"cut behind: the server", waysBehind}} {
		line("")
		line("| %s | how it goes on |", ways.title)
		line("| --- | --- |")
		for _, w := range ways.each {
			line("| %s | %s |", w.who, w.how)
		}
	}
	return b.String()
}

// crossings is who meets whom.
func (r *tables) crossings(line func(format string, args ...any)) {
	head, rule := "| client ↓ server →", "| ---"
	for _, server := range sides() {
		head += " | " + server.era + "<br>" + server.way
		rule += " | ---"
	}
	line("%s |", head)
	line("%s |", rule)
	for _, client := range sides() {
		var row strings.Builder
		row.WriteString("| " + client.String())
		for _, server := range sides() {
			x := pair{speaker{client}, place{server}}
			letters := map[string]bool{}
			for _, name := range names() {
				if letter := x.impossible(name); letter != "" {
					letters[letter] = true
				}
			}
			cell := strings.Join(slices.Sorted(maps.Keys(letters)), "")
			if n := len(r.held[x]); n > 0 {
				cell = strings.TrimSpace(fmt.Sprintf("%d %s", n, cell))
			}
			row.WriteString(" | " + cell)
		}
		line("%s |", row.String())
	}
}

// without counts the cells that cannot be, by the reason.
func (r *tables) without() map[string]int {
	n := map[string]int{}
	for _, client := range sides() {
		for _, server := range sides() {
			x := pair{speaker{client}, place{server}}
			for _, name := range names() {
				if letter := x.impossible(name); letter != "" {
					n[letter]++
				}
			}
		}
	}
	return n
}
