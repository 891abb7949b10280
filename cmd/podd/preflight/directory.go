package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// unsuitable are filesystems on which overlayfs cannot have its upper directory, by statfs(2)'s f_type.
var unsuitable = map[int64]string{
	unix.OVERLAYFS_SUPER_MAGIC: "overlayfs", unix.NFS_SUPER_MAGIC: "NFS", unix.FUSE_SUPER_MAGIC: "FUSE",
	unix.SMB2_SUPER_MAGIC: "SMB", unix.MSDOS_SUPER_MAGIC: "FAT", unix.V9FS_MAGIC: "9p",
}

// minImageBytes is the space below which hardly an image can be pulled.
const minImageBytes = 1 << 30

// Root checks the directory of images and root filesystems, which need not exist yet. Quota returns why the filesystem
// lacks quotas that the configuration needs, and is nil if it needs none.
func (r *Report) Root(path string, quota func(dir string) error) {
	const what = "root"
	existing, fs, err := filesystem(path)
	if err != nil {
		r.Add(Problem, what, "%v", err)
		return
	}
	if name, bad := unsuitable[int64(fs.Type)]; bad {
		r.Add(Problem, what, "%s is on %s, which overlayfs cannot write to: use another filesystem, such as ext4 or XFS",
			path, name)
		return
	}
	if quota != nil {
		if err := quota(existing); err != nil {
			r.Add(Problem, what, "%v", err)
			return
		}
	}
	free := fs.Bavail * uint64(fs.Bsize)
	switch {
	case int64(fs.Type) == unix.TMPFS_MAGIC:
		r.Add(Note, what, "%s is on a tmpfs: its images are in memory, and a reboot loses them", path)
	case free < minImageBytes:
		r.Add(Problem, what, "%s has %d MiB free, want %d or more for images", existing, free>>20, minImageBytes>>20)
	default:
		r.Add(OK, what, "%s, %d GiB free", path, free>>30)
	}
}

// Run checks the directory of sockets and bundles, which need not exist yet. Space returns why it is too small for a
// pod.
func (r *Report) Run(path string, space func(dir string) error) {
	const what = "run"
	existing, fs, err := filesystem(path)
	if err == nil {
		err = space(existing)
	}
	switch {
	case err != nil:
		r.Add(Problem, what, "%v", err)
	case int64(fs.Type) != unix.TMPFS_MAGIC:
		r.Add(Note, what, "%s is not on a tmpfs: its contents outlive a reboot", path)
	default:
		r.Add(OK, what, "%s", path)
	}
}

// filesystem returns the closest existing directory of path and its filesystem. Like podd's start, it refuses a
// directory of another user.
func filesystem(path string) (existing string, st unix.Statfs_t, err error) {
	info, err := os.Stat(path)
	for existing = path; errors.Is(err, fs.ErrNotExist) && existing != "/"; {
		existing = filepath.Dir(existing)
		_, err = os.Stat(existing)
	}
	if err != nil {
		return existing, st, err
	}
	if existing == path {
		owner, ok := info.Sys().(*syscall.Stat_t)
		if !info.IsDir() || !ok || int(owner.Uid) != os.Geteuid() {
			return existing, st, fmt.Errorf("%s is not a directory of this user", path)
		}
	}
	if err := unix.Statfs(existing, &st); err != nil {
		return existing, st, &os.PathError{Op: "statfs", Path: existing, Err: err}
	}
	return existing, st, nil
}
