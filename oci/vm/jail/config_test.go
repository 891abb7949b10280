package jail

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestConfigStaysInTheSharedDirectory: a guest that replaces a container's new directory by a link, to the host's root
// by /proc/1/root for example, does not make the host write there.
func TestConfigStaysInTheSharedDirectory(t *testing.T) {
	outside, shared := t.TempDir(), t.TempDir()
	for name, target := range map[string]string{
		"absolute": outside,
		"relative": "../" + filepath.Base(outside),
		"magic":    "/proc/self/root" + outside,
		"other":    ".",
	} {
		if err := os.Symlink(target, filepath.Join(shared, name)); err != nil {
			t.Fatal(err)
		}
		if _, err := openDirectory(shared, name); !errors.Is(err, unix.ELOOP) {
			t.Errorf("openDirectory of link %s = %v, want %v", name, err, unix.ELOOP)
		}
	}
}

// TestConfigIsNew: a file or link that the guest has put into the directory is neither written nor followed.
func TestConfigIsNew(t *testing.T) {
	outside, shared := filepath.Join(t.TempDir(), "file"), t.TempDir()
	if err := os.Mkdir(filepath.Join(shared, "c"), 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := openDirectory(shared, "c")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := os.Symlink(outside, filepath.Join(shared, "c", "config.json")); err != nil {
		t.Fatal(err)
	}
	if err := writeConfig(dir, []byte("{}")); err == nil {
		t.Error("writeConfig on a link = nil, want an error")
	}
	if _, err := os.Lstat(outside); err == nil {
		t.Error("the host has a new file")
	}
}
