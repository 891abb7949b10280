package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// RemoveCgroup removes the cgroup at path, an absolute cgroupfs path, from every hierarchy in which it is empty. One
// that is in use stays, and is no error.
func RemoveCgroup(path string) error {
	hierarchies, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return fmt.Errorf("list cgroup hierarchies: %w", err)
	}
	var errs []error
	for _, h := range hierarchies {
		err := unix.Rmdir(filepath.Join(h.Mountpoint, path))
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.EBUSY), errors.Is(err, unix.ENOTEMPTY):
		default:
			errs = append(errs, &os.PathError{Op: "rmdir", Path: filepath.Join(h.Mountpoint, path), Err: err})
		}
	}
	return errors.Join(errs...)
}
