package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What a function may be: short enough to be read at once, with few enough parameters to be called right.
const (
	maxLines      = 80
	maxLinesNine  = 35 // of nine functions in ten
	maxParameters = 5
)

// Limits of the engine, which every verb of a pod's life would otherwise end up in. Lower them when it shrinks.
const (
	maxEngineMethods = 115
	maxSandboxLines  = 5700
)

// function is one function of the module.
type function struct {
	name       string
	pos        token.Position
	lines      int
	parameters int
	body       *ast.BlockStmt
}

// functions parses every file that is not a test, outside test/.
func functions(t *testing.T) []function {
	t.Helper()
	var all []function
	for _, path := range sources(t) {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			pos := fset.Position(f.Pos())
			all = append(all, function{
				name: f.Name.Name, pos: pos, parameters: f.Type.Params.NumFields(), body: f.Body,
				lines: fset.Position(f.End()).Line - pos.Line + 1,
			})
		}
	}
	return all
}

// sources lists the Go files that make up podd.
func sources(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, p := range packages(t) {
		if inside(strings.TrimPrefix(p.ImportPath, module), "test") {
			continue
		}
		for _, f := range p.GoFiles {
			files = append(files, filepath.Join(p.Dir, f))
		}
	}
	return files
}

func TestFunctionsAreShort(t *testing.T) {
	all := functions(t)
	if len(all) < 100 {
		t.Fatalf("only %d functions found", len(all))
	}
	var lengths []int
	for _, f := range all {
		lengths = append(lengths, f.lines)
		if f.lines > maxLines {
			t.Errorf("%s: %s has %d lines, %d may be: one function does one thing at one level", f.pos, f.name, f.lines,
				maxLines)
		}
		if f.parameters > maxParameters {
			t.Errorf("%s: %s has %d parameters, %d may be: give them a struct with names", f.pos, f.name, f.parameters,
				maxParameters)
		}
	}
	slices.Sort(lengths)
	if p90 := lengths[len(lengths)*9/10]; p90 > maxLinesNine {
		t.Errorf("nine functions in ten have up to %d lines, %d may be", p90, maxLinesNine)
	}
}

func TestNothingRunsByItself(t *testing.T) {
	for _, f := range functions(t) {
		if f.name == "init" && f.parameters == 0 {
			t.Errorf("%s: init() runs for whoever imports the package, in an order that nobody sees: call it from main", f.pos)
		}
	}
}

func TestEveryTopFolderHasAReadme(t *testing.T) {
	entries, err := os.ReadDir("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") || e.Name() == "bin" {
			continue
		}
		if info, err := os.Stat(filepath.Join("../..", e.Name(), "README.md")); err != nil || info.Size() < 200 {
			t.Errorf("%s/README.md: %v: say what the folder is, how it works and what it keeps on disk, in one screen", e.Name(),
				err)
		}
	}
}

// The top level is what a newcomer sees first, so nothing is added to it in passing.
var topLevel = strings.Fields("cmd server oci sandbox image network streaming checkpoint contrib test " +
	"go.mod go.sum Makefile README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md LICENSE bin")

func TestTheTopLevelIsAsPlanned(t *testing.T) {
	entries, err := os.ReadDir("../..")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	for _, n := range names {
		if !slices.Contains(topLevel, n) {
			t.Errorf("%s at the top level: put it below a folder, or say in test/arch why it must be there", n)
		}
	}
	for _, n := range topLevel {
		if n != "bin" && !slices.Contains(names, n) {
			t.Errorf("no %s at the top level", n)
		}
	}
}

// TestSize prints the figures; run it with -v.
func TestSize(t *testing.T) {
	code, tests := 0, 0
	for _, p := range packages(t) {
		goFiles, err := filepath.Glob(filepath.Join(p.Dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range goFiles {
			n, err := countLines(f)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(f, "_test.go") || inside(strings.TrimPrefix(p.ImportPath, module), "test") ||
				strings.HasSuffix(p.Name, "test") {
				tests += n
			} else {
				code += n
			}
		}
	}
	t.Logf("%d lines of code, %d of tests", code, tests)
	if tests < code {
		t.Errorf("%d lines of tests for %d lines of code: there should be at least as many", tests, code)
	}
}

func countLines(path string) (int, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("count lines: %w", err)
	}
	return strings.Count(string(data), "\n"), nil
}

// TestEngineStaysSmall limits the methods of sandbox.Engine and the lines of its package, without tests and
// subpackages.
func TestEngineStaysSmall(t *testing.T) {
	sandbox, methods, lines := sandboxDir(t), 0, 0
	for _, path := range sources(t) {
		if filepath.Dir(path) != sandbox {
			continue
		}
		n, err := countLines(path)
		if err != nil {
			t.Fatal(err)
		}
		lines += n
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && receiver(f) == "Engine" {
				methods++
			}
		}
	}
	t.Logf("sandbox.Engine has %d methods, its package %d lines", methods, lines)
	if methods == 0 || methods > maxEngineMethods {
		t.Errorf("sandbox.Engine has %d methods, want 1 to %d: move a part of it to a type of its own", methods,
			maxEngineMethods)
	}
	if lines > maxSandboxLines {
		t.Errorf("package sandbox has %d lines, want at most %d: move a part of it to a package below", lines,
			maxSandboxLines)
	}
}

func sandboxDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../sandbox")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// receiver returns the name of the method's type, or "" for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	typ := f.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if name, ok := typ.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}
