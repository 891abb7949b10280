package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Tmpfs is a filesystem in memory.
type Tmpfs struct {
	// Name is its source in the table of mounts.
	Name string
	// Size is in bytes.
	Size int64
	// Mode, UID and GID are those of its root directory.
	Mode     uint32
	UID, GID uint32
	// Label is its SELinux context, "" for none.
	Label string
}

// Mounter mounts a pod's filesystems; an interface for the engine's tests.
type Mounter interface {
	// Mount mounts a new filesystem on path, a directory that it makes if need be. No program in it can be run, and no
	// device opened.
	Mount(ctx context.Context, path string, fs Tmpfs) error
	// Unmount removes all mounts on path; an absent mount is not an error.
	Unmount(ctx context.Context, path string) error
}

// Kernel is the Mounter of a node.
type Kernel struct{}

// Mount mounts a tmpfs; see Mounter.
func (Kernel) Mount(_ context.Context, path string, fs Tmpfs) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("mount %s: %w", fs.Name, err)
	}
	options := fmt.Sprintf("mode=%o,size=%d,uid=%d,gid=%d", fs.Mode, fs.Size, fs.UID, fs.GID)
	if fs.Label != "" {
		options += fmt.Sprintf(",context=%q", fs.Label)
	}
	if err := unix.Mount(fs.Name, path, "tmpfs", unix.MS_NOEXEC|unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount %s on %s: %w", fs.Name, path, err)
	}
	return nil
}

// Unmount unmounts lazily; see Mounter.
func (Kernel) Unmount(_ context.Context, path string) error {
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
