package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/openat"
)

// mountPoints are the directories in the root of every root filesystem on which spec.Container mounts a filesystem.
// Those below them are on these mounts; /etc may be a link, which runtimes resolve with the root filesystem as "/".
var mountPoints = [...]string{"dev", "proc", "sys"}

// MakeMountPoints makes /dev, /proc and /sys directories in a container's root filesystem, owned by uid and gid (the
// container's root as seen on the host). Anything else there, such as a link that the image has, is replaced, as Docker
// does: runtimes followed such links on the host (CVE-2026-47766, CVE-2026-41579, CVE-2023-27561, CVE-2023-28642).
// Existing directories are not changed. No process may run in the root filesystem yet.
func MakeMountPoints(rootfs string, uid, gid int) error {
	root, err := os.OpenFile(rootfs, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range mountPoints {
		if err := makeMountPoint(root, name, uid, gid); err != nil {
			return fmt.Errorf("make mount point /%s: %w", name, err)
		}
	}
	return nil
}

func makeMountPoint(root *os.File, name string, uid, gid int) error {
	f, err := openat.Open(root, name, unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	switch {
	case err == nil:
		return f.Close()
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR): // a link, or another file
		if err := unix.Unlinkat(int(root.Fd()), name, 0); err != nil {
			return &fs.PathError{Op: "unlink", Path: "/" + name, Err: err}
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return makeDirAt(root, name, "/"+name, uid, gid)
}

// makeDirAt makes a directory in parent, which follows no link. path names it in errors.
func makeDirAt(parent *os.File, name, path string, uid, gid int) error {
	if err := unix.Mkdirat(int(parent.Fd()), name, 0o755); err != nil {
		return &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	if err := unix.Fchownat(int(parent.Fd()), name, uid, gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "chown", Path: path, Err: err}
	}
	return nil
}
