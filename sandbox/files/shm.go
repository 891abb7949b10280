package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// shmSize is the size of a pod's /dev/shm in bytes, as in Docker and other CRI runtimes.
const shmSize = 64 << 20

// Mounter mounts a pod's filesystems; an interface for the engine's tests.
type Mounter interface {
	// Mount mounts a new filesystem on path, which it makes if need be, owned by uid and gid. label is its SELinux
	// context, "" for none.
	Mount(ctx context.Context, path string, uid, gid uint32, label string) error
	// Unmount removes all mounts on path; an absent mount is no error.
	Unmount(ctx context.Context, path string) error
}

// Tmpfs is the Mounter of a node.
type Tmpfs struct{}

// Mount mounts a tmpfs; see Mounter.
func (Tmpfs) Mount(_ context.Context, path string, uid, gid uint32, label string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("mount shm: %w", err)
	}
	options := fmt.Sprintf("mode=1777,size=%d,uid=%d,gid=%d", shmSize, uid, gid)
	if label != "" {
		options += fmt.Sprintf(",context=%q", label)
	}
	if err := unix.Mount("shm", path, "tmpfs", unix.MS_NOEXEC|unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount shm on %s: %w", path, err)
	}
	return nil
}

// Unmount unmounts lazily; see Mounter.
func (Tmpfs) Unmount(_ context.Context, path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		switch {
		case err == nil:
			continue
		case errors.Is(err, unix.EINVAL), errors.Is(err, fs.ErrNotExist):
			return nil
		}
		return fmt.Errorf("unmount %s: %w", path, err)
	}
}
