package cgroups

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// RemoveEmpty removes the cgroup at path, an absolute cgroupfs path, from every hierarchy in which it is empty. It
// keeps those in use and returns no error for them.
func RemoveEmpty(path string) error {
	h, err := mounted()
	if err != nil {
		return err
	}
	var errs []error
	for _, root := range h.dirs() {
		dir := filepath.Join(root, path)
		err := unix.Rmdir(dir)
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.EBUSY), errors.Is(err, unix.ENOTEMPTY):
		default:
			errs = append(errs, &os.PathError{Op: "rmdir", Path: dir, Err: err})
		}
	}
	return errors.Join(errs...)
}

// Children returns the names of the cgroups directly below parent, an absolute cgroupfs path, in any hierarchy, sorted.
func Children(parent string) ([]string, error) {
	h, err := mounted()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, root := range h.dirs() {
		entries, _ := os.ReadDir(filepath.Join(root, parent)) // absent from some hierarchies
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
