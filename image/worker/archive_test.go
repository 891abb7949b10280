package worker

import (
	"archive/tar"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestExtract: a later entry replaces an earlier one, not the file that it links to. Nothing is written, linked or read
// outside the directory.
func TestExtract(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "in"), 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(filepath.Join(dir, "in"))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, c := range []struct {
		kind          byte
		name, content string // of a link: its target
		fails         bool
	}{
		{tar.TypeReg, "a", "1", false},
		{tar.TypeLink, "b/hard", "./a", false},
		{tar.TypeSymlink, "b/soft", "../a", false},
		{tar.TypeReg, "b/hard", "2", false},
		{tar.TypeReg, "b/soft", "3", false},
		{tar.TypeReg, "../outside", "4", false}, // skipped, as all that no image needs
		{tar.TypeReg, outside, "4", false},
		{tar.TypeLink, "c", "../outside", true},
		{tar.TypeLink, "c", outside, true},
		{tar.TypeLink, "c", "none", true},
		{tar.TypeSymlink, "d", "../outside", false},
		{tar.TypeLink, "e", "d", false},
		{tar.TypeSymlink, "up", "..", false},
		{tar.TypeReg, "up/outside", "4", true},
		{tar.TypeChar, "f", "", false},
	} {
		h := &tar.Header{Typeflag: c.kind, Name: c.name, Linkname: c.content}
		if err := extract(root, h, strings.NewReader(c.content)); (err != nil) != c.fails {
			t.Errorf("extract(%s) = %v, want an error: %t", c.name, err, c.fails)
		}
	}
	for name, want := range map[string]string{"a": "1", "b/hard": "2", "b/soft": "3", "d": "", "e": "", "f": ""} {
		if got, err := root.ReadFile(name); string(got) != want || (err != nil) != (want == "") {
			t.Errorf("%s has %q, %v, want %q", name, got, err, want)
		}
	}
	if got, err := os.ReadFile(outside); err != nil || string(got) != "secret" {
		t.Errorf("the file outside has %q, %v", got, err)
	}
}
