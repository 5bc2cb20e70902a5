package holdfast_test

import (
	"go/ast"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	fence      = regexp.MustCompile("(?ms)^```.*?^```$")
	codeSpan   = regexp.MustCompile("`([^`\n]+)`")
	linkTarget = regexp.MustCompile(`\]\(([^)\s]+)\)|(?:src|srcset|href)="([^"]+)"`)
	hereTarget = regexp.MustCompile(`(?:^|\s)(\./[\w./-]+)`)
	pathShape  = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)*/?$`)
	sourceName = regexp.MustCompile(`\.(go|md|mjs|py|sh|svg|txtar)$|^(Makefile|LICENSE)$`)
	publicName = regexp.MustCompile(`\bholdfast\.([A-Z]\w*)`)
)

// roots are the folders whose mention makes a code span a path. `tools` is not
// among them: tools/list and tools/call are methods of the protocol.
var roots = []string{"internal", "cmd", "docs", "jsonrpc", "eventlog", "examples", "gosdk", "interop", "conformance", "proxies", "liveness", "bench", "deploy", ".ci"}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// named lists the paths that a document names, each as a list of the places
// where it may be. Of records only the links count.
func named(doc, text string) map[string][]string {
	paths := map[string][]string{}
	dir := path.Dir(doc)
	prose := fence.ReplaceAllString(text, "")
	for _, m := range linkTarget.FindAllStringSubmatch(prose, -1) {
		target, _, _ := strings.Cut(m[1]+m[2], "#")
		if target != "" && !strings.Contains(target, ":") {
			paths[target] = []string{path.Join(dir, target)}
		}
	}
	if strings.HasPrefix(doc, "docs/adr/") || doc == "CHANGELOG.md" {
		return paths // they tell what was planned, or true at the time
	}
	for _, m := range codeSpan.FindAllStringSubmatch(prose, -1) {
		span := strings.TrimPrefix(m[1], "./")
		first, _, _ := strings.Cut(span, "/")
		isPath := sourceName.MatchString(span) || first != span && slices.Contains(roots, first)
		if isPath && pathShape.MatchString(span) && !strings.HasPrefix(span, "..") {
			paths[span] = []string{path.Join(dir, span), span}
		}
	}
	for _, block := range fence.FindAllString(text, -1) {
		for _, m := range hereTarget.FindAllStringSubmatch(block, -1) {
			if target := strings.TrimSuffix(m[1], "..."); target != "./" {
				paths[target] = []string{path.Join(dir, target), target}
			}
		}
	}
	return paths
}

func TestPathsNamedInDocsExist(t *testing.T) {
	docs := repoFiles(t, ".md")
	if !slices.Contains(docs, "README.md") {
		t.Fatal("README.md not found")
	}
	for _, doc := range docs {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for name, places := range named(doc, string(text)) {
			if !slices.ContainsFunc(places, exists) {
				t.Errorf("%s names %s, which does not exist", doc, name)
			}
		}
	}
}

func TestNamesOfTheAPIInDocsExist(t *testing.T) {
	public := map[string]bool{}
	for _, src := range sources(t) {
		if src.pkg == "." && !src.test {
			for _, decl := range src.ast.Decls {
				addExported(public, decl)
			}
		}
	}
	for _, doc := range repoFiles(t, ".md") {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range publicName.FindAllStringSubmatch(string(text), -1) {
			if !public[m[1]] {
				t.Errorf("%s names %s, which the package does not declare", doc, m[0])
			}
		}
	}
}

func addExported(names map[string]bool, decl ast.Decl) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			names[d.Name.Name] = true
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				names[s.Name.Name] = true
			case *ast.ValueSpec:
				for _, id := range s.Names {
					names[id.Name] = true
				}
			}
		}
	}
}

// A check of paths that finds none would pass for ever.
func TestNamedFindsPaths(t *testing.T) {
	text := "See [that](docs/x.md#y), `internal/none`, `ARCH.md`, `tools/call`, `text/event-stream`, " +
		"<img src=\"docs/img/x.svg\"> and [outside](https://example.org/x).\n\n```sh\ngo run ./cmd/none serve\ngo test ./...\n```\n"
	var got []string
	for name := range named("sub/doc.md", text) {
		got = append(got, name)
	}
	slices.Sort(got)
	want := []string{"./cmd/none", "ARCH.md", "docs/img/x.svg", "docs/x.md", "internal/none"}
	if !slices.Equal(got, want) {
		t.Errorf("named found %q, want %q", got, want)
	}
}
