package holdfast_test

import (
	"go/ast"
	"strings"
	"testing"
)

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
