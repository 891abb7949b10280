package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/podd-project/podd/oci/process"
)

// busyTimeout is how long cgroups may stay busy after their last process was killed: a dying process is not listed in
// cgroup.procs, but keeps its cgroup until the kernel has released it.
const busyTimeout = 2 * time.Second

// Remove removes the directories with all below them, deepest first. No process may be in them.
func (d Dirs) Remove() error {
	return d.removeUntil(context.Background(), func() bool {
		for _, dir := range d {
			if len(members(dir)) > 0 {
				return true
			}
		}
		return false
	})
}

// Destroy kills every process in the cgroups and removes them. Missing cgroups are ignored. The runtime of an
// interrupted creation may still be entering them, one hierarchy after the other: it is killed in whichever it is.
func (d Dirs) Destroy(ctx context.Context) error {
	if err := d.Kill(ctx); err != nil {
		return err
	}
	return d.removeUntil(ctx, func() bool {
		for _, dir := range d {
			for _, p := range members(dir) {
				killMember(dir, p)
			}
		}
		return false
	})
}

// removeUntil removes the directories, again and again while they are busy, up to busyTimeout or until giveUp returns
// true.
func (d Dirs) removeUntil(ctx context.Context, giveUp func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, busyTimeout)
	defer cancel()
	var err error
	_ = process.Poll(ctx, func() bool {
		err = d.remove()
		return !errors.Is(err, syscall.EBUSY) || giveUp()
	})
	return err
}

// remove tries to remove every directory once.
func (d Dirs) remove() error {
	var errs []error
	for _, dir := range d {
		var dirs []string
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, sub := range slices.Backward(dirs) { // WalkDir visits a directory before those in it
			if err := os.Remove(sub); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("remove cgroup: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}
