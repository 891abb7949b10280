package host

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mountHost resolves a mount of path with a Resolver that creates missing host paths.
func mountHost(t *testing.T, path string) (string, error) {
	t.Helper()
	got, err := NewResolver(1, true).Mounts(t.Context(), []*cri.Mount{{ContainerPath: "/to", HostPath: path}}, nil)
	if err != nil {
		return "", err
	}
	if !got[0].IsDir {
		t.Errorf("%s: IsDir = false, want true", path)
	}
	return got[0].Source, nil
}

func TestMissingHostPath(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(
		os.Mkdir(filepath.Join(dir, "private"), 0o700), os.Symlink("private", filepath.Join(dir, "link")),
	); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"one": "one", "a/b/c": "a/b/c", "link/x/y": "private/x/y", "s//l/./ash/": "s/l/ash",
	} {
		got, err := mountHost(t, dir+"/"+path)
		if want := filepath.Join(dir, want); err != nil || got != want {
			t.Errorf("%s: source = %q, %v; want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"one", "a", "a/b", "a/b/c", "private/x", "private/x/y", "s/l/ash"} {
		info, err := os.Lstat(filepath.Join(dir, path))
		if err != nil || info.Mode() != os.ModeDir|0o755 {
			t.Errorf("%s: %v, %v; want a directory of mode 0755", path, info, err)
			continue
		}
		if uid := info.Sys().(*syscall.Stat_t).Uid; int(uid) != os.Geteuid() {
			t.Errorf("%s: owner = %d, want %d", path, uid, os.Geteuid())
		}
	}
	if info, _ := os.Stat(filepath.Join(dir, "private")); info.Mode().Perm() != 0o700 {
		t.Errorf("mode of an existing parent = %v, want 0700", info.Mode())
	}
}

func TestMissingHostPathRefused(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	if err := errors.Join(
		os.Symlink(outside+"/none", filepath.Join(dir, "dangling")),
		os.Symlink("/proc/self/root"+outside, filepath.Join(dir, "magic")),
		os.Symlink("loop", filepath.Join(dir, "loop")),
	); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "file"), "")
	for path, kind := range map[string]error{
		dir + "/dangling":                      errdefs.ErrNotFound,
		dir + "/dangling/x":                    errdefs.ErrNotFound,
		dir + "/magic/x":                       errdefs.ErrNotFound,
		"/proc/self/root" + outside + "/magic": errdefs.ErrNotFound,
		dir + "/file/x":                        nil,
		dir + "/loop/x":                        nil,
		dir + "/new/../x":                      errdefs.ErrInvalidArgument,
		outside + "/../" + "none/such":         errdefs.ErrInvalidArgument,
		"/proc/none":                           nil,
	} {
		if source, err := mountHost(t, path); err == nil || kind != nil && !errors.Is(err, kind) {
			t.Errorf("%s: source = %q, error = %v, want %v", path, source, err, kind)
		}
	}
	if left, _ := os.ReadDir(outside); len(left) > 0 {
		t.Errorf("%q was created through a link", left)
	}
	if _, err := os.Lstat(filepath.Join(dir, "new")); err == nil {
		t.Error("new was created for a path that is refused")
	}
}

// TestMissingHostPathSwapped races with a process that replaces a created directory by a link.
func TestMissingHostPathSwapped(t *testing.T) {
	for range 500 {
		dir, outside := t.TempDir(), t.TempDir()
		link := filepath.Join(dir, "link")
		if err := os.Symlink(outside, link); err != nil {
			t.Fatal(err)
		}
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
					_ = unix.Renameat2(unix.AT_FDCWD, dir+"/a", unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
				}
			}
		}()
		_, _ = mountHost(t, dir+"/a/b/c")
		close(stop)
		<-done
		if left, _ := os.ReadDir(outside); len(left) > 0 {
			t.Fatalf("%q was created through a link", left)
		}
	}
}
