package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// runName is the directory used as /run: a tmpfs, as on every node. On ext4 nearly half of podd's CPU time in the churn
// was the creation of files and directories, which does not happen on a node.
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

// fileSystem describes that of /tmp, where all servers have what is not on that tmpfs.
func fileSystem() string {
	list, err := mountinfo.GetMounts(mountinfo.ParentsFilter("/tmp"))
	if err != nil || len(list) == 0 {
		return "?"
	}
	innermost := list[0]
	for _, m := range list {
		if len(m.Mountpoint) >= len(innermost.Mountpoint) { // of equals the last covers the others
			innermost = m
		}
	}
	if !strings.HasPrefix(innermost.FSType, "ext") {
		return innermost.FSType
	}
	// the kernel's journals, by device
	journals, _ := filepath.Glob("/proc/fs/jbd2/" + filepath.Base(innermost.Source) + "-*") // a glob that is valid
	if len(journals) == 0 {
		return innermost.FSType + " without a journal"
	}
	return innermost.FSType + " with a journal"
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
