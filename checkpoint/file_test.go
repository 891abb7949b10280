package checkpoint

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/iotest"
)

func TestWriteFile(t *testing.T) {
	old := syscall.Umask(0o077) // must not change the mode asked for
	defer syscall.Umask(old)
	fill := func(path string, data []byte, mode fs.FileMode) error {
		return FillFileSync(path, func(w io.Writer) error {
			_, err := io.Copy(w, iotest.OneByteReader(bytes.NewReader(data)))
			return err
		}, mode)
	}
	for name, write := range map[string]func(string, []byte, fs.FileMode) error{
		"": WriteFile, "sync": WriteFileSync, "fill": fill,
	} {
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

func TestFillFileKeepsTheOldFileWhenItFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tool")
	if err := WriteFileSync(path, []byte("old"), 0o500); err != nil {
		t.Fatal(err)
	}
	want := errors.New("damaged")
	err := FillFileSync(path, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half of the ne")
		return want
	}, 0o500)
	if !errors.Is(err, want) {
		t.Errorf("FillFileSync = %v, want %v", err, want)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "old" {
		t.Errorf("content = %q, %v, want %q", got, err, "old")
	}
	assertOnly(t, dir, "tool")
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
