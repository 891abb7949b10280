package host

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/openat"
)

// TestOpenInRootWithoutFallback: a lookup that failed for lack of descriptors must not make later ones less strict.
func TestOpenInRootWithoutFallback(t *testing.T) {
	root := t.TempDir()
	if err := os.Symlink("/proc/self/root", filepath.Join(root, "magic")); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	in := unix.OpenHow{Flags: unix.O_PATH, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	noDescriptors(t, func() {
		if _, err := openat.Open(dir, "etc", in); !errors.Is(err, unix.EMFILE) {
			t.Errorf("openat2 without descriptors: error %v, want %v", err, unix.EMFILE)
		}
	})
	if f, err := openInRoot("/", "/proc/self/exe"); !errors.Is(err, unix.ELOOP) {
		t.Errorf("openInRoot of a magic link = %v, %v, want %v", f, err, unix.ELOOP)
	}
	if f, err := openInRoot(root, "magic/etc"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("openInRoot of a link out of the root = %v, %v, want %v", f, err, unix.ENOENT)
	}
}

// noDescriptors runs f while the process can open no file.
func noDescriptors(t *testing.T, f func()) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := unix.Rlimit{Cur: 0, Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	f()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
}
