package rootfs

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// Size is the disk space taken by files.
type Size struct{ Bytes, Inodes uint64 }

// Plus returns the sum of two sizes.
func (a Size) Plus(b Size) Size { return Size{a.Bytes + b.Bytes, a.Inodes + b.Inodes} }

// Measure adds up a directory tree. It logs unreadable directories, and returns zero for a tree that does not exist.
func Measure(ctx context.Context, root string, log logrus.FieldLogger) Size {
	w := walker{seen: map[uint64]bool{}}
	if err := w.walk(ctx, root); ignoreGone(err) != nil && ctx.Err() == nil {
		log.WithError(err).WithField("path", root).Warn("failed to measure disk usage")
	}
	if w.cut {
		log.WithField("path", root).Warn("disk usage is too low: very many directories are very deep")
	}
	return w.total
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Limits of the memory of a walk.
const (
	// maxLinked is how many files with several names are remembered. Further ones count once for each name.
	maxLinked = 100_000
	// maxDeferred is how many directories deeper than maxOpenDirs are remembered, to be walked afterwards. Further ones
	// are not counted.
	maxDeferred = 100_000
)

// walker adds up a directory tree: allocated blocks, and files with several names once. Files that vanish during the
// walk are not counted. It does not leave the tree, even while a container replaces directories by links.
type walker struct {
	total Size
	// seen has the inodes of files with several names.
	seen map[uint64]bool
	// deferred are directories to walk. Not their paths: those can be longer than memory.
	deferred []unix.FileHandle
	// cut reports that directories were not counted.
	cut bool
}

// walk returns when ctx ends, or with the first error.
func (w *walker) walk(ctx context.Context, root string) error {
	top, err := openDir(unix.AT_FDCWD, root)
	if err != nil {
		return err
	}
	defer top.Close()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(top.Fd()), &st); err == nil {
		w.add(&st)
	}
	if err := w.directory(ctx, top, 1); err != nil {
		return err
	}
	for len(w.deferred) > 0 {
		last := len(w.deferred) - 1
		handle := w.deferred[last]
		w.deferred = w.deferred[:last]
		fd, err := unix.OpenByHandleAt(int(top.Fd()), handle, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)
		if err == nil {
			err = w.walkDir(ctx, os.NewFile(uintptr(fd), root), 1)
		}
		if err = ignoreMoved(err); err != nil {
			return err
		}
	}
	return nil
}

// walkDir is directory, and closes dir.
func (w *walker) walkDir(ctx context.Context, dir *os.File, depth int) error {
	defer dir.Close()
	return w.directory(ctx, dir, depth)
}

// directory adds up the content of dir.
func (w *walker) directory(ctx context.Context, dir *os.File, depth int) error {
	return ignoreMoved(eachName(dir, func(name string) error { return w.entry(ctx, int(dir.Fd()), name, depth) }))
}

// entry adds a file, or a directory with its content.
func (w *walker) entry(ctx context.Context, parent int, name string, depth int) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var st unix.Stat_t
	if err := unix.Fstatat(parent, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return ignoreMoved(&os.PathError{Op: "lstat", Path: name, Err: err})
	}
	w.add(&st)
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return nil
	case depth >= maxOpenDirs:
		w.deferDir(parent, name)
		return nil
	}
	dir, err := openDir(parent, name)
	if err != nil {
		return ignoreMoved(err)
	}
	return w.walkDir(ctx, dir, depth+1)
}

// deferDir remembers a directory by its handle. Some filesystems have no handles.
func (w *walker) deferDir(parent int, name string) {
	if len(w.deferred) >= maxDeferred {
		w.cut = true
		return
	}
	handle, _, err := unix.NameToHandleAt(parent, name, 0)
	if err != nil {
		w.cut = w.cut || ignoreMoved(err) != nil
		return
	}
	w.deferred = append(w.deferred, handle)
}

// ignoreMoved returns nil for the error of a file that was removed, or replaced by another one, during the walk.
func ignoreMoved(err error) error {
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ESTALE) {
		return nil
	}
	return ignoreGone(err)
}

func (w *walker) add(st *unix.Stat_t) {
	if w.seen[st.Ino] {
		return
	}
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR && len(w.seen) < maxLinked {
		w.seen[st.Ino] = true
	}
	w.total = w.total.Plus(Size{Bytes: uint64(st.Blocks) * 512, Inodes: 1})
}
