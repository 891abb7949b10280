package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// testFiles has the functions of all test files of the module, by folder and name.
type testFiles map[string]map[string]testFunc

// testFunc is a function of a test file.
type testFunc struct {
	// subtests are the string literals that may name a subtest.
	subtests map[string]bool
	// uses are the identifiers in the function, among them the functions that it calls.
	uses []string
}

// check returns an error unless the test exists in the folder, test/integration if empty, and has the subtests.
func (f testFiles) check(folder, test, subtests string) error {
	if folder == "" {
		folder = "test/integration"
	}
	var found []string
	for dir, funcs := range f {
		if _, ok := funcs[test]; ok && (dir == folder || strings.HasSuffix(dir, "/"+folder)) {
			found = append(found, dir)
		}
	}
	if len(found) != 1 {
		return fmt.Errorf("%d folders %s have the test %v, want 1", len(found), folder, found)
	}
	for name := range strings.SplitSeq(strings.Trim(subtests, "/"), "/") {
		if name != "" && !f.hasSubtest(found[0], test, name) {
			return fmt.Errorf("no subtest %q, want it in %s", name, test)
		}
	}
	return nil
}

// hasSubtest reports whether the test, or a function of its folder that it uses, has a subtest of this name: a literal,
// or a golden file.
func (f testFiles) hasSubtest(dir, test, name string) bool {
	seen := map[string]bool{}
	for next := []string{test}; len(next) > 0; next = next[1:] {
		fn, ok := f[dir][next[0]]
		if !ok || seen[next[0]] {
			continue
		}
		if fn.subtests[name] {
			return true
		}
		seen[next[0]] = true
		next = append(next, fn.uses...)
	}
	golden, err := filepath.Glob(filepath.Join("../..", dir, "testdata", name+".*"))
	return err == nil && len(golden) > 0
}

func parseTests(t *testing.T) testFiles {
	t.Helper()
	files := testFiles{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "bin" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".git")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel("../..", filepath.Dir(path))
		if err != nil {
			return err
		}
		if files[dir] == nil {
			files[dir] = map[string]testFunc{}
		}
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Body != nil {
				files[dir][fn.Name.Name] = parseTest(fn)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// parseTest collects the literals that may name a subtest: arguments of Run and sample.Some, keys and names in
// tables, lists of strings.
func parseTest(fn *ast.FuncDecl) testFunc {
	f := testFunc{subtests: map[string]bool{}}
	add := func(e ast.Expr) {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if name, err := strconv.Unquote(lit.Value); err == nil {
				f.subtests[name] = true
			}
		}
	}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			f.uses = append(f.uses, n.Name)
		case *ast.CallExpr:
			sel, ok := n.Fun.(*ast.SelectorExpr)
			for i, arg := range n.Args {
				if ok && (sel.Sel.Name == "Run" && i == 0 || sel.Sel.Name == "Some") {
					add(arg)
				}
			}
		case *ast.KeyValueExpr:
			add(n.Key)
			if key, ok := n.Key.(*ast.Ident); ok && key.Name == "name" {
				add(n.Value)
			}
		case *ast.CompositeLit:
			for i, e := range n.Elts {
				if i == 0 || isStrings(n.Type) {
					add(e)
				}
			}
		}
		return true
	})
	return f
}

// isStrings reports whether the type is []string.
func isStrings(e ast.Expr) bool {
	list, ok := e.(*ast.ArrayType)
	if !ok {
		return false
	}
	elem, ok := list.Elt.(*ast.Ident)
	return ok && elem.Name == "string"
}
