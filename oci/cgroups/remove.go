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
)

// Remove removes the directories with all below them, deepest first. No process may be in them.
func (d Dirs) Remove() error {
	var errs []error
	deadline := time.Now().Add(busyTimeout)
	for _, dir := range d {
		var dirs []string
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, sub := range slices.Backward(dirs) { // WalkDir visits a directory before those in it
			if err := removeDir(sub, deadline); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("remove cgroup: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}

// busyTimeout is how long cgroups may stay busy after their last process was killed: a dying process is no longer
// listed in cgroup.procs, but keeps its cgroup until the kernel has released it.
const busyTimeout = 2 * time.Second

func removeDir(dir string, deadline time.Time) error {
	for {
		err := os.Remove(dir)
		if !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) {
			return err
		}
		if procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs")); len(procs) > 0 {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Destroy kills every process in the cgroups and removes them. Cgroups that do not exist are no error.
func (d Dirs) Destroy(ctx context.Context) error {
	if err := d.Kill(ctx); err != nil {
		return err
	}
	return d.Remove()
}
