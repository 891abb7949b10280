package image

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
)

// What a walk keeps in memory. A container chooses how many files it makes, and how deep.
const (
	// walkBatch is how many names of a directory are read at a time.
	walkBatch = 1000
	// maxLinked is how many files with several names are remembered. Further ones count once for each name.
	maxLinked = 100_000
	// maxOpenDirs is how deep directories are open at a time. Deeper ones are walked afterwards, from the root; if more
	// than maxDeferred wait for that, at once.
	maxOpenDirs = 256
	maxDeferred = 10_000
)

// walker adds up a directory tree: allocated blocks, and files with several names once. Files that vanish meanwhile are
// not counted. It does not leave the tree, even while a container replaces directories by links.
type walker struct {
	total diskSize
	// seen has the inodes of files with several names.
	seen map[uint64]bool
	// deferred are directories to walk, relative to the root.
	deferred []string
}

// walk returns when ctx ends, or with the first error.
func (w *walker) walk(ctx context.Context, root string) error {
	top, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer top.Close()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if info, err := top.Lstat("."); err == nil {
		w.add(info)
	}
	if err := w.directory(ctx, top, ".", 1); err != nil {
		return err
	}
	for len(w.deferred) > 0 {
		last := len(w.deferred) - 1
		path := w.deferred[last]
		w.deferred = w.deferred[:last]
		if err := w.open(ctx, top, path, path, 1); err != nil {
			return err
		}
	}
	return nil
}

// open walks a directory of parent; path is its path below the root.
func (w *walker) open(ctx context.Context, parent *os.Root, name, path string, depth int) error {
	dir, err := parent.OpenRoot(name)
	if err != nil {
		return ignoreGone(err)
	}
	defer dir.Close()
	return w.directory(ctx, dir, path, depth)
}

// directory adds up what is in dir.
func (w *walker) directory(ctx context.Context, dir *os.Root, path string, depth int) error {
	list, err := dir.Open(".")
	if err != nil {
		return ignoreGone(err)
	}
	defer list.Close()
	for {
		names, err := list.Readdirnames(walkBatch)
		for _, name := range names {
			if err := w.entry(ctx, dir, name, path+"/"+name, depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return ignoreGone(err)
		}
	}
}

// entry adds a file, or a directory with what is in it.
func (w *walker) entry(ctx context.Context, dir *os.Root, name, path string, depth int) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	info, err := dir.Lstat(name)
	if err != nil {
		return ignoreGone(err)
	}
	w.add(info)
	switch {
	case !info.IsDir():
		return nil
	case depth >= maxOpenDirs && len(w.deferred) < maxDeferred:
		w.deferred = append(w.deferred, path)
		return nil
	}
	return w.open(ctx, dir, name, path, depth+1)
}

func (w *walker) add(info os.FileInfo) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || w.seen[st.Ino] {
		return
	}
	if st.Nlink > 1 && !info.IsDir() && len(w.seen) < maxLinked {
		w.seen[st.Ino] = true
	}
	w.total = w.total.plus(diskSize{bytes: uint64(st.Blocks) * 512, inodes: 1})
}
