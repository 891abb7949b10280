package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/oci/openat"
	"github.com/podd-project/podd/oci/space"
)

// Staging returns the path of a new directory for the saved images, among the records of pods. The removal of a pod or
// container does not touch it; if podd is killed, the next one removes it.
func Staging(pods string) string { return checkpoint.Temporary(pods, "dump") }

// moveStaged moves the runtime's output to the directory of the images: by rename, or by copy if that is on another
// filesystem. Discard removes any leftovers.
func (w *Writer) moveStaged(ctx context.Context) error {
	if w.staging == "" {
		return nil
	}
	from, err := openDir(w.staging)
	if err != nil {
		return err
	}
	defer from.Close()
	names, err := from.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		err := unix.Renameat(int(from.Fd()), name, int(w.images.Fd()), name)
		if errors.Is(err, unix.EXDEV) {
			return errors.Join(w.copyStaged(ctx, from), w.removeStaging())
		}
		if err != nil {
			return fmt.Errorf("%.200q: %w", name, err)
		}
	}
	return w.removeStaging()
}

// copyStaged copies all files, if there is space for them.
func (w *Writer) copyStaged(ctx context.Context, from *os.File) error {
	var names []string
	var size int64
	err := fs.WalkDir(os.DirFS(w.staging), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			names, size = append(names, name), size+info.Size()
		}
		return err
	})
	if err == nil {
		err = space.Check(w.imagePath(), uint64(size))
	}
	for _, name := range names {
		if err == nil {
			err = w.copyFile(ctx, from, name)
		}
	}
	return err
}

// copyFile copies a regular file, and makes its directories.
func (w *Writer) copyFile(ctx context.Context, from *os.File, name string) error {
	in, err := openFile(from, name)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := w.makeDirs(filepath.Dir(name)); err != nil {
		return err
	}
	out, err := openat.Open(w.images, name, unix.OpenHow{
		Flags: unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL, Mode: 0o600, Resolve: openat.NoLinks,
	})
	if err != nil {
		return err
	}
	_, err = io.Copy(out, reader{ctx, in})
	return errors.Join(err, out.Close())
}
