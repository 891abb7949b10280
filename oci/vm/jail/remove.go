package jail

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// removeTree removes a directory of the tmpfs Shared. It stops at anything that is mounted in it.
func removeTree(dir string) error {
	var root unix.Stat_t
	if err := unix.Lstat(dir, &root); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		if st.Dev != root.Dev {
			return &fs.PathError{Op: "remove", Path: path, Err: unix.EBUSY}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
