package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/oci/spec/host"
)

// RemoveDir removes one of the directories, but not its entry keep. It holds the lock, so that no daemon starts in it,
// and refuses to remove anything if something is mounted below it: those files belong to others.
func RemoveDir(dir, keep string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	lock, err := checkpoint.Acquire(filepath.Join(dir, "lock"))
	if err != nil {
		return err
	}
	defer lock.Unlock()
	mounts, err := host.MountsBelow(dir)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("there are mounts below it, unmount them first: %v", mounts)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	kept := false
	var errs []error
	for _, e := range entries {
		if e.Name() == keep {
			kept = true
			continue
		}
		errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	if !kept {
		errs = append(errs, os.Remove(dir))
	}
	return errors.Join(errs...)
}

// RemoveSocket removes the socket that a killed daemon left, and its directory if nothing else is in it. A socket that
// another process listens on stays. An empty path is none.
func RemoveSocket(path string) error {
	if path == "" || checkStale(path) != nil {
		return nil
	}
	for _, name := range []string{path, path + freshSocket} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the socket %s: %w", path, err)
		}
	}
	_ = os.Remove(filepath.Dir(path)) // fails if other files are there
	return nil
}
