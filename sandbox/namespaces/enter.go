package namespaces

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// enter moves the calling thread, which must be one of thread.Run's, into the pinned namespaces.
func enter(kinds []kind) error {
	for _, k := range kinds {
		if err := enterOne(k); err != nil {
			return fmt.Errorf("enter %s namespace %s: %w", k.name, k.path, err)
		}
	}
	return nil
}

func enterOne(k kind) error {
	fd, err := unix.Open(k.path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// The kernel checks that the file is a namespace of this type: an unmounted pin file is EINVAL.
	return unix.Setns(fd, k.flag)
}
