package state

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// The space that a new pod with a few containers needs in the run directory: bundles, sockets and pid files.
const (
	minRunBytes = 1 << 20
	minRunFiles = 256
)

// CheckSpace returns an error if the run directory dir has no space for another pod. The kubelet watches
// the filesystems of images and volumes, but not this one.
func CheckSpace(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("measure the space in the run directory %s: %w", dir, err)
	}
	if free := fs.Bavail * uint64(fs.Bsize); free < minRunBytes {
		return fmt.Errorf("no space for pods in the run directory %s: %d bytes are free, %d are needed",
			dir, free, minRunBytes)
	}
	if fs.Files > 0 && fs.Ffree < minRunFiles { // 0: the filesystem does not limit them
		return fmt.Errorf("no space for pods in the run directory %s: %d inodes are free, %d are needed",
			dir, fs.Ffree, minRunFiles)
	}
	return nil
}
