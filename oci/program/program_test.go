package program

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
)

func embedded(content string) fstest.MapFS {
	return fstest.MapFS{"bin/README": {}, "bin/tool": {Data: []byte(content)}}
}

func TestInstall(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "libexec")
	path := filepath.Join(dir, "tool")
	for _, version := range []string{"one", "one", "two"} {
		got, err := Install(embedded(version), path, 0o555)
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

// TestInstallChangesModes: the modes of an older podd's files are changed, also if the content is the same.
func TestInstallChangesModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "libexec")
	path := filepath.Join(dir, "tool")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("one"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(embedded("one"), path, 0o500); err != nil {
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
	if _, err := Install(embedded("one"), path, 0o555); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Install(embedded("one"), path, 0o555); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("the same version was written again (%v), want the same file", err)
	}
}

func TestInstallErrors(t *testing.T) {
	if _, err := Install(fstest.MapFS{}, filepath.Join(t.TempDir(), "tool"), 0o555); !errors.Is(err, ErrNotBuilt) {
		t.Errorf("Install of a program that was not built = %v, want %v", err, ErrNotBuilt)
	}
	if _, err := Install(embedded("x"), "/proc/no/such/tool", 0o555); err == nil {
		t.Error("Install into /proc succeeded, want an error")
	}
}
