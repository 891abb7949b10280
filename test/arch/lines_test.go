package arch

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is the longest line of Go, in characters. A tab counts as one. A struct tag with the documentation of a
// configuration key is exempt, because it cannot be broken.
const maxColumns = 120

// longLines are the folders that still have longer lines, without those below them. Nothing may be added.
var longLines = strings.Fields(`test/k8s/suite`)

func TestLinesAreShort(t *testing.T) {
	skip := map[string]bool{}
	for _, dir := range longLines {
		skip[dir] = true
	}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel("../..", path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || name == "bin" || strings.HasPrefix(name, ".") && name != "."):
			return fs.SkipDir
		case d.IsDir(), !strings.HasSuffix(name, ".go"), skip[filepath.Dir(name)]:
			return nil
		}
		checkLines(t, path, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func checkLines(t *testing.T, path, name string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for number, line := range bytes.Split(text, []byte("\n")) {
		if n := utf8.RuneCount(line); n > maxColumns && !bytes.Contains(line, []byte(`" comment:"`)) {
			t.Errorf("%s:%d: %d columns, want at most %d", name, number+1, n, maxColumns)
		}
	}
}
