package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// runName is the directory used as /run: a tmpfs, as on every node. On ext4 nearly half of podd's CPU time in the churn
// was the creation of files and directories (RESULTS.md), which does not happen on a node.
const runName = "run"

// mountRun creates and mounts that directory in dir.
func mountRun(dir string) error {
	path := filepath.Join(dir, runName)
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("podd-bench", path, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount a tmpfs on %s: %w", path, err)
	}
	return nil
}

// unmountBelow unmounts everything below dir.
func unmountBelow(dir string) error {
	list, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	errs := []error{err}
	for _, m := range slices.Backward(list) {
		errs = append(errs, unix.Unmount(m.Mountpoint, unix.MNT_DETACH))
	}
	return errors.Join(errs...)
}
