package host

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMakeMountPoints: whatever an image has in the place of a mount point is replaced, and nothing that a link leads
// to is touched.
func TestMakeMountPoints(t *testing.T) {
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = 4000, 4001
	}
	outside := t.TempDir()
	for name, plant := range map[string]func(path string) error{
		"nothing":       func(string) error { return nil },
		"absolute link": func(path string) error { return os.Symlink(outside, path) },
		"relative link": func(path string) error { return os.Symlink("inside", path) },
		"dangling link": func(path string) error { return os.Symlink("/no/such", path) },
		"loop":          func(path string) error { return os.Symlink(filepath.Base(path), path) },
		"magic link":    func(path string) error { return os.Symlink("/proc/self/root", path) },
		"file":          func(path string) error { return os.WriteFile(path, []byte("x"), 0o644) },
		"FIFO":          func(path string) error { return unix.Mkfifo(path, 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if err := os.Mkdir(filepath.Join(root, "inside"), 0o755); err != nil {
				t.Fatal(err)
			}
			for _, p := range mountPoints {
				if err := plant(filepath.Join(root, p)); err != nil {
					t.Fatal(err)
				}
			}
			if err := MakeMountPoints(root, uid, gid); err != nil {
				t.Fatal(err)
			}
			for _, p := range mountPoints {
				info, err := os.Lstat(filepath.Join(root, p))
				if err != nil || info.Mode() != os.ModeDir|0o755 {
					t.Errorf("/%s = %v, %v, want a directory of mode 0755", p, info, err)
					continue
				}
				if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != uid || int(st.Gid) != gid {
					t.Errorf("owner of /%s = %d:%d, want %d:%d", p, st.Uid, st.Gid, uid, gid)
				}
			}
		})
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("files in the target of the links = %v, %v, want none", entries, err)
	}
}

// TestMakeMountPointsKeepsDirectories: directories stay as they are.
func TestMakeMountPointsKeepsDirectories(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "dev", "shm"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := MakeMountPoints(root, os.Getuid(), os.Getgid()); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(root, "dev"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("/dev = %v, %v, want mode 0700 as before", info, err)
	}
	if _, err := os.Stat(filepath.Join(root, "dev", "shm")); err != nil {
		t.Errorf("/dev/shm: %v, want it kept", err)
	}
}
