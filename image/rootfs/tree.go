package rootfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Limits of the walk of a tree of directories. A container chooses how many files it makes, and how deep: paths in it
// can be longer than the kernel takes, and directories deeper than descriptors suffice for.
const (
	// walkBatch is how many names of a directory are read at a time.
	walkBatch = 1000
	// maxOpenDirs is how deep directories are open at a time.
	maxOpenDirs = 256
)

// openDir opens the directory name in at for reading. A symbolic link is unix.ELOOP or unix.ENOTDIR.
func openDir(at int, name string) (*os.File, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// eachName calls f for the names in a directory until f returns an error.
func eachName(dir *os.File, f func(name string) error) error {
	for {
		names, err := dir.Readdirnames(walkBatch)
		for _, name := range names {
			if err := f(name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// removeTree is os.RemoveAll for files that a container has written. That one has all directories from the top to the
// bottom open, so that it can exhaust the daemon's descriptors and never ends with success. It continues after an
// error, and returns the first. No process may change the tree at the same time.
func removeTree(path string) error {
	top, err := openDir(unix.AT_FDCWD, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer top.Close()
	r := treeRemover{top: top}
	if err := r.removeDir(unix.AT_FDCWD, path, 0); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// treeRemover removes the tree below top.
type treeRemover struct {
	top *os.File
	// moved is how many directories were moved to top.
	moved int
}

// remove removes the file or directory name, whose parent is depth directories below top.
func (r *treeRemover) remove(parent int, name string, depth int) error {
	err := unix.Unlinkat(parent, name, 0)
	if errors.Is(err, unix.EISDIR) {
		return r.removeDir(parent, name, depth)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "unlink", Path: name, Err: err}
	}
	return nil
}

func (r *treeRemover) removeDir(parent int, name string, depth int) error {
	for {
		err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist):
			return nil
		case !errors.Is(err, unix.ENOTEMPTY):
			return &fs.PathError{Op: "rmdir", Path: name, Err: err}
		case depth == maxOpenDirs:
			return r.raise(parent, name)
		}
		// More than once: directories moved to top are found the next time, and while a directory is read files that are
		// removed can hide others.
		if err := r.empty(parent, name, depth+1); err != nil {
			return err
		}
	}
}

// empty removes the content of a directory.
func (r *treeRemover) empty(parent int, name string, depth int) error {
	dir, err := openDir(parent, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	var first error
	err = eachName(dir, func(name string) error {
		if err := r.remove(int(dir.Fd()), name, depth); err != nil && first == nil {
			first = err
		}
		return nil
	})
	if first != nil {
		return first
	}
	return err
}

// raise moves a directory to top.
func (r *treeRemover) raise(parent int, name string) error {
	for {
		r.moved++
		to := fmt.Sprintf(".deep-%d", r.moved)
		err := unix.Renameat2(parent, name, int(r.top.Fd()), to, unix.RENAME_NOREPLACE)
		if !errors.Is(err, fs.ErrExist) {
			return os.NewSyscallError("rename", err)
		}
	}
}
