package checkpoint

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestWriteFile(t *testing.T) {
	old := syscall.Umask(0o077) // must not change the mode asked for
	defer syscall.Umask(old)
	for name, write := range map[string]func(string, []byte, fs.FileMode) error{"": WriteFile, "sync": WriteFileSync} {
		t.Run(name, func(t *testing.T) {
			dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "target")
			path := filepath.Join(dir, "net.conflist")
			if err := os.WriteFile(elsewhere, []byte("untouched"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(elsewhere, path); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"first", "the second"} {
				if err := write(path, []byte(want), 0o644); err != nil {
					t.Fatal(err)
				}
				if got, err := os.ReadFile(path); err != nil || string(got) != want {
					t.Errorf("content = %q, %v, want %q", got, err, want)
				}
			}
			if info, err := os.Lstat(path); err != nil || info.Mode() != 0o644 {
				t.Errorf("Lstat = %v, %v, want a regular file of mode 0644", info, err)
			}
			if got, _ := os.ReadFile(elsewhere); string(got) != "untouched" {
				t.Errorf("target of the replaced symbolic link = %q, want %q", got, "untouched")
			}
			assertOnly(t, dir, "net.conflist")
		})
	}
}

func TestWriteFileLeavesNothingWhenItFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "directory")
	if err := os.MkdirAll(filepath.Join(path, "in"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, []byte("x"), 0o600); err == nil {
		t.Error("WriteFile over a directory: no error, want one")
	}
	assertOnly(t, dir, "directory")
}
