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

// MountsBelow lists what is mounted strictly below dir, the deepest first, as it can be unmounted one by one.
func MountsBelow(dir string) ([]string, error) {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return !strings.HasPrefix(m.Mountpoint, dir+"/"), false
	})
	if err != nil {
		return nil, fmt.Errorf("read mountinfo: %w", err)
	}
	paths := make([]string, 0, len(mounts))
	for _, m := range slices.Backward(mounts) { // later ones may lie on earlier ones
		paths = append(paths, m.Mountpoint)
	}
	slices.SortStableFunc(paths, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	return paths, nil
}

// UnmountBelow takes away everything that is mounted below dir. What is mounted is not followed, and is not waited for.
func UnmountBelow(dir string) error {
	paths, err := MountsBelow(dir)
	errs := []error{err}
	for _, path := range paths {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // it went with another
			errs = append(errs, &os.PathError{Op: "umount", Path: path, Err: err})
		}
	}
	return errors.Join(errs...)
}
