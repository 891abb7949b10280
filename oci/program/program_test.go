package program

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
)

// embedded returns what `make embedded` makes of a program with that content.
func embedded(t *testing.T, content string) fstest.MapFS {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return fstest.MapFS{
		"bin/README": {}, "bin/tool.gz": {Data: packed.Bytes()},
		"bin/tool.sha256": {Data: fmt.Appendf(nil, "%x\n", sha256.Sum256([]byte(content)))},
	}
}

func TestInstall(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "libexec")
	path := filepath.Join(dir, "tool")
	for _, version := range []string{"one", "one", "two"} {
		got, err := Install(embedded(t, version), path, 0o555)
		if err != nil || got != path {
			t.Fatalf("Install = %q, %v, want %q", got, err, path)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != version {
			t.Errorf("installed %q, %v, want %q", data, err, version)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o555 {
			t.Errorf("installed file = %v, %v, want mode 0555", info, err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("files = %v, %v, want 1", entries, err)
	}
}

// TestInstallChangesModes: the modes of files that exist are changed, also if the content is the same.
func TestInstallChangesModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "libexec")
	path := filepath.Join(dir, "tool")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("one"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(embedded(t, "one"), path, 0o500); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{dir: 0o700, path: 0o500} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("mode of %s = %v, %v, want %v", name, info, err, want)
		}
	}
}

// The same version is not written again: it may be running, and the disk may be read-only.
func TestInstallLeavesTheSameAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tool")
	if _, err := Install(embedded(t, "one"), path, 0o555); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Install(embedded(t, "one"), path, 0o555); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("the same version was written again (%v), want the same file", err)
	}
}

// TestInstallReadsTheProgramOnce: while the same version is installed, podd does not touch the pages of the embedded
// one, which would be counted as its memory.
func TestInstallReadsTheProgramOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tool")
	files := &countingFS{FS: embedded(t, "one"), opened: map[string]int{}}
	for range 3 {
		if _, err := Install(files, path, 0o555); err != nil {
			t.Fatal(err)
		}
	}
	if n := files.opened["bin/tool.gz"]; n != 1 {
		t.Errorf("the program was read %d times, want 1", n)
	}
	if err := os.WriteFile(path, []byte("changed"), 0o555); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(files, path, 0o555); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "one" {
		t.Errorf("a changed program was left as %q, %v, want it replaced", data, err)
	}
}

// countingFS counts how often each file is opened.
type countingFS struct {
	fs.FS
	opened map[string]int
}

func (c *countingFS) Open(name string) (fs.File, error) {
	c.opened[name]++
	return c.FS.Open(name)
}

func TestInstallErrors(t *testing.T) {
	tool := func(t *testing.T) string { return filepath.Join(t.TempDir(), "tool") }
	for _, absent := range []string{"bin/tool.gz", "bin/tool.sha256"} {
		files := embedded(t, "one")
		delete(files, absent)
		if _, err := Install(files, tool(t), 0o555); !errors.Is(err, ErrNotBuilt) {
			t.Errorf("Install without %s = %v, want %v", absent, err, ErrNotBuilt)
		}
	}
	mixed := embedded(t, "one")
	mixed["bin/tool.gz"] = embedded(t, "two")["bin/tool.gz"]
	path := tool(t)
	if _, err := Install(mixed, path, 0o555); !errors.Is(err, errMixed) {
		t.Errorf("Install of a program with the digest of another one = %v, want %v", err, errMixed)
	}
	cut := embedded(t, "one")
	cut["bin/tool.gz"].Data = cut["bin/tool.gz"].Data[:12]
	if _, err := Install(cut, path, 0o555); err == nil {
		t.Error("Install of half a program succeeded, want an error")
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after two errors the program is installed (%v), want none", err)
	}
	if _, err := Install(embedded(t, "x"), "/proc/no/such/tool", 0o555); err == nil {
		t.Error("Install into /proc succeeded, want an error")
	}
}
