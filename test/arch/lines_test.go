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

func TestLinesAreShort(t *testing.T) {
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
		case d.IsDir(), !strings.HasSuffix(name, ".go"):
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
