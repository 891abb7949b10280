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

// Limits of functions: short enough to read at once, few enough parameters not to be mixed up.
const (
	maxLines      = 80
	maxLinesNine  = 35 // of nine functions in ten
	maxParameters = 5
)

// maxMethods limits the methods of a type: one with more is several types. The types in largeTypes have other limits.
const maxMethods = 60

// largeTypes have more methods, each for a reason, and room for a tenth more.
var largeTypes = map[string]struct {
	methods int
	why     string
}{
	"sandbox.Engine":   {117, "each verb of the CRI with its steps, on the same tables of pods and containers"},
	"oci/runc.Runtime": {101, "the contract of oci.Runtime, each verb with its steps around the OCI runtime and conmon"},
	"server.Server":    {78, "one method for each RPC of the CRI, with its conversions"},
	"oci/shim.Runtime": {76, "the contract of oci.Runtime, each verb with its calls to the shim"},
}

// maxSandboxLines limits package sandbox without tests and subpackages: one person can read it in a sitting. It leaves
// 5 % for growth.
const maxSandboxLines = 5110

// ofLibraries are methods of a library's interface that a type of podd replaces: their parameters are given.
var ofLibraries = []string{"PutLayer"} // storage.Store

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

// sources lists the Go files of podd, without tests and test/.
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
		t.Fatalf("parsed %d functions, want at least 100", len(all))
	}
	var lengths []int
	for _, f := range all {
		lengths = append(lengths, f.lines)
		if f.lines > maxLines {
			t.Errorf("%s: %s has %d lines, want at most %d", f.pos, f.name, f.lines,
				maxLines)
		}
		if f.parameters > maxParameters && !slices.Contains(ofLibraries, f.name) {
			t.Errorf("%s: %s has %d parameters, want at most %d: pass a struct", f.pos, f.name, f.parameters,
				maxParameters)
		}
	}
	slices.Sort(lengths)
	if p90 := lengths[len(lengths)*9/10]; p90 > maxLinesNine {
		t.Errorf("lines of functions, 90th percentile = %d, want at most %d", p90, maxLinesNine)
	}
}

func TestNothingRunsByItself(t *testing.T) {
	for _, f := range functions(t) {
		if f.name == "init" && f.parameters == 0 {
			t.Errorf("%s: init(), want none: it runs for every importer, in an order that is hard to see; call it from "+
				"main", f.pos)
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
			t.Errorf("%s/README.md: %v, want a page of 200 bytes or more: what the folder is, how it works, what it "+
				"keeps on disk", e.Name(), err)
		}
	}
}

// The top level is what a newcomer sees first: additions must be deliberate.
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
			t.Errorf("top level has %s, want it in a folder, or in the list of test/arch", n)
		}
	}
	for _, n := range topLevel {
		if n != "bin" && !slices.Contains(names, n) {
			t.Errorf("top level lacks %s, want it there", n)
		}
	}
}

// TestSize prints the figures; run it with -v.
func TestSize(t *testing.T) {
	code, tests := 0, 0
	for _, p := range directories(t) {
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

func TestTypesHaveFewMethods(t *testing.T) {
	counts := methodsOfTypes(t)
	for name, n := range counts {
		limit, why := maxMethods, "move a part of it to another type"
		if large, ok := largeTypes[name]; ok {
			limit, why = large.methods, large.why
			if n <= maxMethods {
				t.Errorf("%s has %d methods, want its row removed from largeTypes", name, n)
			}
		}
		if n > limit {
			t.Errorf("%s has %d methods, want at most %d: %s", name, n, limit, why)
		}
	}
	for name := range largeTypes {
		if counts[name] == 0 {
			t.Errorf("largeTypes has %s, want only types that exist", name)
		}
	}
}

// methodsOfTypes counts the methods of each type of podd, without tests and test/.
func methodsOfTypes(t *testing.T) map[string]int {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, path := range sources(t) {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil {
				counts[dir+"."+receiver(f)]++
			}
		}
	}
	return counts
}

// TestSandboxCanBeReadAtOnce limits the flat files of package sandbox.
func TestSandboxCanBeReadAtOnce(t *testing.T) {
	sandbox, err := filepath.Abs("../../sandbox")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, path := range sources(t) {
		if filepath.Dir(path) != sandbox {
			continue
		}
		n, err := countLines(path)
		if err != nil {
			t.Fatal(err)
		}
		lines += n
	}
	t.Logf("package sandbox has %d lines", lines)
	if lines == 0 || lines > maxSandboxLines {
		t.Errorf("package sandbox has %d lines, want 1 to %d: move a part of it to a package below", lines,
			maxSandboxLines)
	}
}

// receiver returns the name of the method's type.
func receiver(f *ast.FuncDecl) string {
	typ := f.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr: // of a generic type
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}
