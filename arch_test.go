package holdfast_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/holdfast-mcp/holdfast"

// rows is the whole architecture: a package may import packages of the rows
// above its own and nothing else of this module. A new package is a new entry
// here, in the row where it belongs.
var rows = [][]string{
	{"jsonrpc", "eventlog", "internal/sse", "internal/httpstream", "internal/lineserver", "internal/observe", "internal/liveness"},
	{"internal/era", "internal/stdio", "internal/guard", "internal/wire", "internal/demo", "internal/testkit", "internal/ledger", "internal/pathlimit", "internal/httpclient"},
	{"internal/conversation", "internal/calls", "internal/route"},
	{"internal/session", "internal/exchange", "internal/chaos"},
	{"internal/era/httpsse", "internal/era/streamable", "internal/era/stateless", "internal/era/pipe", "internal/soak"},
	{"internal/remote"},
	{"."},
	{"internal/config", "internal/showcase"},
	{"internal/cli"},
	{"cmd/holdfast"},
}

// onlyIn names, for the start of an import path, the packages that alone may
// import it. Test files may import anything.
var onlyIn = map[string][]string{
	"os/exec":                        {"internal/stdio", "internal/testkit", "internal/soak"},
	"os/signal":                      {"internal/cli", "internal/testkit"},
	"golang.org/x/sys/":              {"internal/stdio"},
	"github.com/goccy/go-yaml":       {"internal/config"},
	"github.com/rs/cors":             {"internal/guard"},
	"github.com/spf13/":              {"internal/cli"},
	"github.com/shirou/gopsutil/":    {"internal/stdio"},
	"golang.org/x/term":              {"internal/cli"},
	"github.com/rogpeppe/":           {},                                  // tests only
	module + "/internal/testkit":     {"internal/chaos", "internal/soak"}, // tests only
	module + "/internal/chaos":       {"internal/soak"},                   // tests only
	module + "/internal/soak":        {},                                  // tests only
	module + "/internal/era/httpsse": {"."},                               // deprecated since 2025-03-26: deleted with its wiring
	"encoding/json/v2":               {},                                  // still an experiment
	"github.com/modelcontextproto":   {},                                  // peers, in nested modules only
	"github.com/mark3labs/":          {},
}

// versionsIn names the packages that may spell a protocol version in a string:
// a revision is retired by deleting a folder, not by hunting for its name.
var versionsIn = []string{"internal/era", "internal/demo", "internal/testkit"}

var versionName = regexp.MustCompile(`^20\d\d-\d\d-\d\d$`)

// source is one parsed Go file of this module.
type source struct {
	file string // slash-separated, from the module's root
	pkg  string // its folder, "." for the root
	test bool
	fset *token.FileSet
	ast  *ast.File
}

// sources reads every Go file itself rather than ask the go command, which
// then sees what the test read and does not serve a stale cached pass.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	for _, file := range repoFiles(t, ".go") {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, source{file, path.Dir(file), strings.HasSuffix(file, "_test.go"), fset, f})
	}
	if len(all) == 0 {
		t.Fatal("no Go files found: the test runs in the wrong folder")
	}
	return all
}

// repoFiles lists the files of this module whose names end in suffix. Hidden
// folders, testdata, installed packages and nested modules are left out.
func repoFiles(t *testing.T, suffix string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir():
			if strings.HasSuffix(file, suffix) {
				files = append(files, filepath.ToSlash(file))
			}
			return nil
		case file == ".":
			return nil
		case strings.HasPrefix(d.Name(), "."), d.Name() == "testdata", d.Name() == "node_modules":
			return fs.SkipDir
		case suffix == ".go" && exists(filepath.Join(file, "go.mod")):
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestImportsGoOneWay(t *testing.T) {
	row := map[string]int{}
	for i, names := range rows {
		for _, name := range names {
			row[name] = i
		}
	}
	for _, src := range sources(t) {
		me, listed := row[src.pkg]
		if !listed {
			t.Errorf("%s: package %s is in no row of the table", src.file, src.pkg)
		}
		if src.test {
			continue
		}
		for _, spec := range src.ast.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			for start, who := range onlyIn {
				if strings.HasPrefix(imp, start) && !slices.Contains(who, src.pkg) {
					t.Errorf("%s: imports %s, which only %v may", src.file, imp, who)
				}
			}
			dep, ours := strings.CutPrefix(imp+"/", module+"/")
			if dep = strings.TrimSuffix(dep, "/"); dep == "" {
				dep = "."
			}
			if at, ok := row[dep]; ours && (!ok || at >= me) {
				t.Errorf("%s: imports %s, which is in no row above its own", src.file, dep)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	doc := map[string]string{}
	for _, src := range sources(t) {
		if !src.test && src.ast.Doc != nil {
			doc[src.pkg] += src.ast.Doc.Text()
		}
	}
	for _, name := range slices.Concat(rows...) {
		want := "Package " + path.Base(name) + " "
		switch {
		case name == ".":
			want = "Package holdfast "
		case strings.HasPrefix(name, "cmd/"):
			want = "Command " + path.Base(name) + " "
		}
		if !strings.HasPrefix(doc[name], want) {
			t.Errorf("package %s: no such package, or its comment does not start with %q", name, want)
		}
	}
}

func TestVersionsAreNamedInEra(t *testing.T) {
	for _, src := range sources(t) {
		allowed := func(pkg string) bool { return src.pkg == pkg || strings.HasPrefix(src.pkg, pkg+"/") }
		if src.test || slices.ContainsFunc(versionsIn, allowed) {
			continue
		}
		ast.Inspect(src.ast, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && versionName.MatchString(strings.Trim(lit.Value, "\"`")) {
				t.Errorf("%s: spells the protocol version %s", src.fset.Position(lit.Pos()), lit.Value)
			}
			return true
		})
	}
}
