package holdfast_test

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// pure names the packages that decide without doing anything, so that all that
// they may do can be tried. They stay small enough to be read in one sitting.
var pure = map[string]int{"internal/ledger": 700, "internal/liveness": 700}

func TestPurePackagesStaySmall(t *testing.T) {
	lines := map[string]int{}
	for _, src := range sources(t) {
		if _, ok := pure[src.pkg]; !ok || src.test {
			continue
		}
		lines[src.pkg] += src.fset.File(src.ast.FileStart).LineCount()
		for _, spec := range src.ast.Imports {
			path := strings.Trim(spec.Path.Value, `"`)
			if top, _, _ := strings.Cut(path, "/"); slices.Contains([]string{"os", "io", "net", "sync", "context"}, top) {
				t.Errorf("%s: imports %s", src.file, path)
			}
		}
		ast.Inspect(src.ast, func(n ast.Node) bool {
			if what := impure(n); what != "" {
				t.Errorf("%s: %s", src.fset.Position(n.Pos()), what)
			}
			return true
		})
	}
	for pkg, limit := range pure {
		if n := lines[pkg]; n == 0 || n > limit {
			t.Errorf("%s has %d lines, at most %d", pkg, n, limit)
		}
	}
}

// impure says what a pure package must not do, "" if n does not.
func impure(n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "starts a goroutine"
	case *ast.SelectorExpr:
		x, ok := n.X.(*ast.Ident)
		if ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker"}, n.Sel.Name) {
			return "looks at a clock"
		}
	}
	return ""
}

const (
	maxFileLines = 500
	maxFuncLines = 60
)

// wiring names the functions that are a list of parts put together, longer
// than others but with nothing to follow, and how long they may be.
var wiring = map[string]int{}

func TestFilesAndFunctionsStaySmall(t *testing.T) {
	seen := map[string]bool{}
	for _, src := range sources(t) {
		if n := src.fset.File(src.ast.FileStart).LineCount(); n > maxFileLines {
			t.Errorf("%s: %d lines, at most %d", src.file, n, maxFileLines)
		}
		for _, decl := range src.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := funcName(src.pkg, fn)
			limit := maxFuncLines
			if n, ok := wiring[name]; ok {
				limit, seen[name] = n, true
			}
			begin, end := src.fset.Position(fn.Pos()).Line, src.fset.Position(fn.End()).Line
			if n := end - begin + 1; n > limit {
				t.Errorf("%s:%d: %s has %d lines, at most %d", src.file, begin, name, n, limit)
			}
			if fn.Name.Name == "init" && fn.Recv == nil {
				t.Errorf("%s:%d: init runs before anybody asked for it", src.file, begin)
			}
		}
	}
	for name := range wiring {
		if !seen[name] {
			t.Errorf("%s may be long, but there is no such function", name)
		}
	}
}

// funcName is "package.Func" or "package.Type.Method".
func funcName(pkg string, fn *ast.FuncDecl) string {
	parts := []string{pkg}
	if fn.Recv != nil {
		typ := fn.Recv.List[0].Type
		if star, ok := typ.(*ast.StarExpr); ok {
			typ = star.X
		}
		if generic, ok := typ.(*ast.IndexExpr); ok {
			typ = generic.X
		}
		if id, ok := typ.(*ast.Ident); ok {
			parts = append(parts, id.Name)
		}
	}
	return strings.Join(append(parts, fn.Name.Name), ".")
}
