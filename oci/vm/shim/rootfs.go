package shim

import (
	"fmt"
	"os"

	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"
)

// mountRoot mounts the root file system of a container on target, where the caller leaves that to the shim, as
// containerd does. The jail gets separate mounts (jail.Share, Config.Files), after which unmount removes this one.
func mountRoot(mounts []*types.Mount, target string) (unmount func() error, err error) {
	if len(mounts) == 0 {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(target, 0o711); err != nil {
		return nil, err
	}
	unmount = func() error {
		if err := mount.UnmountAll(target, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount the root file system: %w", err)
		}
		return nil
	}
	if err := mount.All(mount.FromProto(mounts), target); err != nil {
		_ = unmount() // those mounted before the one that failed
		return nil, fmt.Errorf("mount the root file system: %w", err)
	}
	return unmount, nil
}
