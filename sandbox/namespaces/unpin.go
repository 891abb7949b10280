package namespaces

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// maxStacked bounds how many mounts are taken off one pin file. Pin never makes more than one.
const maxStacked = 64

// Unpin unmounts and removes pin files; a namespace ends when nothing else uses it. An absent file is no error. All
// paths are tried, and the errors of those that stay are joined. A file that is not a pin, because it is no empty
// regular file once it is unmounted, is left alone: errdefs.ErrFailedPrecondition.
//
// Other mount namespaces may hold copies of the pin, by propagation or because they were made while it existed.
// Removing the file makes the kernel detach every one of them (Linux 3.18), so they cannot keep the namespace alive.
func (p *Pinner) Unpin(ctx context.Context, paths ...string) error {
	var errs []error
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		if err := unpin(path); err != nil {
			errs = append(errs, fmt.Errorf("unpin namespace: %w", err))
		}
	}
	return errors.Join(errs...)
}

func unpin(path string) error {
	if err := checkPath(path); err != nil {
		return err
	}
	if err := checkPin(path); err != nil {
		return absentIsNil(err)
	}
	if err := unmount(path); err != nil {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	if err := checkPin(path); err != nil { // again: something else may have been under the mount
		return absentIsNil(err)
	}
	return absentIsNil(os.Remove(path))
}

// checkPin refuses what Pin cannot have made. A mounted namespace looks like an empty file, too.
func checkPin(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() != 0 {
		return fmt.Errorf(
			"%w: %s is not a pin file (%v, %d bytes), it stays", errdefs.ErrFailedPrecondition, path, info.Mode(), info.Size(),
		)
	}
	return nil
}

func absentIsNil(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// unmount takes every namespace mount off path. Anything else that is mounted there is not ours and stays.
func unmount(path string) error {
	for range maxStacked {
		var st unix.Statfs_t
		err := unix.Statfs(path, &st)
		if errors.Is(err, unix.ENOENT) || err == nil && st.Type != unix.NSFS_MAGIC {
			return nil
		}
		if err != nil {
			return err
		}
		// Detached, not waited for: somebody may be inside. EINVAL: a mount that another call took off just now.
		err = unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return errors.New("too many mounts on one file")
}

// Pinned lists the pin files in dir, mounted or not, sorted: what a crash may have left is among them. A directory
// that does not exist has none.
func (p *Pinner) Pinned(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list pinned namespaces: %w", err)
	}
	var paths []string
	for _, e := range entries {
		if e.Type().IsRegular() {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}
