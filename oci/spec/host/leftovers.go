package host

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// MountsBelow returns the mount points strictly below dir, the deepest first, the order to unmount them in.
func MountsBelow(dir string) ([]string, error) {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return !strings.HasPrefix(m.Mountpoint, dir+"/"), false
	})
	if err != nil {
		return nil, fmt.Errorf("read mountinfo: %w", err)
	}
	paths := make([]string, 0, len(mounts))
	for _, m := range slices.Backward(mounts) { // later mounts may cover earlier ones
		paths = append(paths, m.Mountpoint)
	}
	slices.SortStableFunc(paths, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	return paths, nil
}

// UnmountBelow lazily unmounts everything below dir, without following symbolic links.
func UnmountBelow(dir string) error {
	paths, err := MountsBelow(dir)
	errs := []error{err}
	for _, path := range paths {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // unmounted along with another
			errs = append(errs, &os.PathError{Op: "umount", Path: path, Err: err})
		}
	}
	return errors.Join(errs...)
}
