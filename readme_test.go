package holdfast_test

import (
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var goFence = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// maxReadmeMain is how long the README's main may be: embedding is promised to
// be short.
const maxReadmeMain = 15

// The README's program is the package's example, which the compiler has seen,
// and imports what it needs.
func TestReadmeProgramIsTheExample(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	programs := goFence.FindAllSubmatch(readme, -1)
	if len(programs) != 1 {
		t.Fatalf("%d Go programs in README.md, want one", len(programs))
	}
	program := programs[0][1]
	if pretty, err := format.Source(program); err != nil || string(pretty) != string(program) {
		t.Errorf("gofmt would change it (%v):\n%s", err, pretty)
	}
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, got := funcSource(t, "README.md", program, "main")
	_, want := funcSource(t, "example_test.go", example, "Example")
	if got != want {
		t.Errorf("README.md and Example in example_test.go differ:\n%s\n%s", got, want)
	}
	if n := strings.Count(got, "\n") + 1; n > maxReadmeMain {
		t.Errorf("main has %d lines, at most %d", n, maxReadmeMain)
	}
	file, _ := funcSource(t, "README.md", program, "main")
	used := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok {
				used[id.Name] = true
			}
		}
		return true
	})
	for _, spec := range file.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if !used[path.Base(imp)] {
			t.Errorf("README.md imports %s without using it", imp)
		}
		delete(used, path.Base(imp))
	}
	delete(used, "gw") // a variable
	if len(used) > 0 {
		t.Errorf("README.md uses %v without importing them", used)
	}
}

// funcSource returns the file, and the source of a function from brace to brace.
func funcSource(t *testing.T, name string, src []byte, fn string) (*ast.File, string) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range file.Decls {
		if d, ok := decl.(*ast.FuncDecl); ok && d.Name.Name == fn {
			return file, string(src[fset.Position(d.Body.Lbrace).Offset : fset.Position(d.Body.Rbrace).Offset+1])
		}
	}
	t.Fatalf("%s: no function %s", name, fn)
	return nil, ""
}
