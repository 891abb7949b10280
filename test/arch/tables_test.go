package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestTablesNameTests: the tables that say what podd can do name the test that proves it, and it exists.
func TestTablesNameTests(t *testing.T) {
	exist := testNames(t)
	for _, page := range []string{"README.md", "FIELDS.md"} {
		text := readPage(t, page)
		for _, name := range regexp.MustCompile(`\bTest[A-Z]\w*`).FindAllString(text, -1) {
			if !exist[name] {
				t.Errorf("server/%s names %s, and there is no such test", page, name)
			}
		}
	}
	for line := range strings.Lines(readPage(t, "FIELDS.md")) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 6 {
			continue
		}
		if can := strings.TrimSpace(cells[1]); (can == "f" || can == "p") && !strings.Contains(cells[5], "Test") {
			t.Errorf("server/FIELDS.md claims %q without a test", strings.TrimSpace(cells[0]))
		}
	}
}

// TestTableOfRPCs: the table has a row for each RPC of cri-api.
func TestTableOfRPCs(t *testing.T) {
	text := readPage(t, "README.md")
	rows := 0
	for _, d := range [][]string{methods(cri.RuntimeService_ServiceDesc), methods(cri.ImageService_ServiceDesc)} {
		for _, name := range d {
			if !strings.Contains(text, "\n| "+name+" | ") {
				t.Errorf("server/README.md has no row for %s", name)
			}
			rows++
		}
	}
	if !strings.Contains(text, "## The "+strconv.Itoa(rows)+" RPCs") {
		t.Errorf("cri-api has %d RPCs, server/README.md says something else", rows)
	}
}

func methods(d grpc.ServiceDesc) (names []string) {
	for _, m := range d.Methods {
		names = append(names, m.MethodName)
	}
	for _, s := range d.Streams {
		names = append(names, s.StreamName)
	}
	return names
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../server", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// testNames are the names of all test functions of the module.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == "bin" || strings.HasPrefix(d.Name(), ".") && d.Name() != "..") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				names[f.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
