package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
)

func set(paths ...string) map[string]struct{} {
	out := map[string]struct{}{}
	for _, p := range paths {
		out[p] = struct{}{}
	}
	return out
}

func TestMakeVolumes(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	for _, err := range []error{
		os.Mkdir(filepath.Join(root, "there"), 0o700),
		os.MkdirAll(filepath.Join(root, "run"), 0o755),
		os.Mkdir(filepath.Join(root, "var"), 0o755),
		os.Symlink("/run", filepath.Join(root, "var/run")),
		os.Symlink(outside, filepath.Join(root, "out")),
		os.Symlink("../../../../../../../.."+outside, filepath.Join(root, "up")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = 4000, 4001
	}
	volumes := set("/data", "/a/b/c", "/var/run/db", "/there", "/../../x", "/", "C:/odd", "../y", "")
	if err := MakeVolumes(t.Context(), root, volumes, uid, gid); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"data", "a", "a/b", "a/b/c", "run/db", "x", "C:", "C:/odd", "y"} {
		info, err := os.Lstat(filepath.Join(root, p))
		if err != nil || !info.IsDir() || info.Mode().Perm() != 0o755 {
			t.Errorf("volume %s: %v, %v, want a directory of mode 0755", p, info, err)
			continue
		}
		if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != uid || int(st.Gid) != gid {
			t.Errorf("owner of %s = %d:%d, want %d:%d", p, st.Uid, st.Gid, uid, gid)
		}
	}
	if info, _ := os.Lstat(filepath.Join(root, "there")); info.Mode().Perm() != 0o700 {
		t.Errorf("mode of an existing directory = %v, want 0700 as before", info.Mode().Perm())
	}
	// CVE-2022-23648: a volume below a link out of the image.
	for _, path := range []string{"/out/x", "/up/x", "out/x"} {
		_ = MakeVolumes(t.Context(), root, set(path), uid, gid) // they are made below root, or not at all
	}
	if err := MakeVolumes(t.Context(), root, set("/a\x00b"), uid, gid); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("volume with a NUL byte: %v, want an invalid argument", err)
	}
	write(t, filepath.Join(root, "file"), "")
	if err := MakeVolumes(t.Context(), root, set("/file/x"), uid, gid); err == nil {
		t.Error("MakeVolumes below a file: no error")
	}
	if left, _ := os.ReadDir(outside); len(left) > 0 {
		t.Errorf("created outside of the image: %q", left)
	}
}

// TestMakeVolumesBelowDanglingLinks: the target of a link is made, in the image.
func TestMakeVolumesBelowDanglingLinks(t *testing.T) {
	root, outside := t.TempDir(), filepath.Join(t.TempDir(), "none")
	for link, target := range map[string]string{
		"var/run": "/run", "opt/app": "../srv/app", "deep/a": "/deep/b", "deep/b": "c", "real/sub/up": "../beside",
		"by": "real/sub", "out": outside, "loop": "/loop", "chain": "/var/run/chain",
	} {
		path := filepath.Join(root, link)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(target, path)); err != nil {
			t.Fatal(err)
		}
	}
	uid, gid := os.Getuid(), os.Getgid()
	volumes := set("/var/run/db", "/opt/app/data", "/deep/a/x", "/by/up/x", "/out/x", "/chain")
	if err := MakeVolumes(t.Context(), root, volumes, uid, gid); err != nil {
		t.Fatal(err)
	}
	for _, made := range []string{"run/db", "srv/app/data", "deep/c/x", "real/beside/x", outside + "/x", "run/chain"} {
		if info, err := os.Lstat(filepath.Join(root, made)); err != nil || !info.IsDir() {
			t.Errorf("%s: %v, %v, want a directory", made, info, err)
		}
	}
	if _, err := os.Lstat(outside); err == nil {
		t.Errorf("%s was made outside of the image", outside)
	}
	if err := MakeVolumes(t.Context(), root, set("/loop/x"), uid, gid); err == nil {
		t.Error("a volume below a link to itself: no error")
	}
	if err := os.Symlink(strings.Repeat("/x", maxTarget+1), filepath.Join(root, "far")); err != nil {
		t.Fatal(err)
	}
	if err := MakeVolumes(t.Context(), root, set("/far/x"), uid, gid); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("a volume below a link to %d directories: %v, want an invalid argument", maxTarget+1, err)
	}
}

// TestMakeParents: mount points and the working directory may be below a dangling link; what cannot be made is left to
// the runtime.
func TestMakeParents(t *testing.T) {
	root := t.TempDir()
	for _, err := range []error{os.Mkdir(filepath.Join(root, "var"), 0o755),
		os.Symlink("/run", filepath.Join(root, "var/run")), os.Symlink("/loop", filepath.Join(root, "loop"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	paths := []string{"/var/run/app/file", "/var/run/secrets/kubernetes.io/serviceaccount", "/loop/x/y", "/top", ""}
	if err := MakeParents(t.Context(), root, paths, os.Getuid(), os.Getgid()); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"run/app": true, "run/secrets/kubernetes.io": true,
		"run/secrets/kubernetes.io/serviceaccount": false, "top": false} {
		if _, err := os.Lstat(filepath.Join(root, path)); (err == nil) != want {
			t.Errorf("%s: %v, want it: %v", path, err, want)
		}
	}
}

// TestMakeVolumesCancelled: a creation that is cancelled makes no more volumes.
func TestMakeVolumesCancelled(t *testing.T) {
	root := t.TempDir()
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the caller has gone")
	cancel(cause)
	if err := MakeVolumes(ctx, root, set("/a", "/b"), os.Getuid(), os.Getgid()); !errors.Is(err, cause) {
		t.Errorf("MakeVolumes after the cancellation: %v, want %v", err, cause)
	}
	if left, _ := os.ReadDir(root); len(left) > 0 {
		t.Errorf("made after the cancellation: %v, want nothing", left)
	}
}

// TestMakeVolumesSwapped races with a process that exchanges a directory for a link.
func TestMakeVolumesSwapped(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	if err := errors.Join(
		os.Mkdir(filepath.Join(root, "data"), 0o755), os.Symlink(outside, filepath.Join(root, "evil")),
	); err != nil {
		t.Fatal(err)
	}
	swapping(t, filepath.Join(root, "data"), filepath.Join(root, "evil"))
	made := 0
	for range 2000 {
		if MakeVolumes(t.Context(), root, set("/data/a/b"), os.Getuid(), os.Getgid()) == nil {
			made++
		}
		if r, err := os.OpenRoot(root); err == nil { // os.RemoveAll would follow the link
			_ = r.RemoveAll("data/a")
			r.Close()
		}
	}
	if made == 0 {
		t.Error("MakeVolumes never succeeded, want it to at times: the race proves nothing")
	}
	if left, _ := os.ReadDir(outside); len(left) > 0 {
		t.Errorf("created outside of the image: %q", left)
	}
}
