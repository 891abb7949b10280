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

// maxStacked bounds how many mounts are removed from one pin file. Pin never makes more than one.
const maxStacked = 64

// Unpin unmounts and removes pin files; a namespace ends when nothing else uses it. An absent file is not an error. All
// paths are tried, and the errors are joined. A file that is not an empty regular file once it is unmounted is not a
// pin and is left alone: errdefs.ErrFailedPrecondition.
//
// Other mount namespaces may have copies of the pin, by propagation or because they were created while it existed. When
// the file is removed the kernel detaches all of them (Linux 3.18), so they do not keep the namespace alive.
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
	if err := checkPin(path); err != nil { // again: another file may have been under the mount
		return absentIsNil(err)
	}
	return absentIsNil(os.Remove(path))
}

// checkPin refuses files that Pin cannot have created. A mounted namespace looks like an empty file, too.
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

// unmount removes every namespace mount from path. Other mounts there are not podd's and stay.
func unmount(path string) error {
	for range maxStacked {
		mounted, err := isMounted(path)
		if err != nil || !mounted {
			return err
		}
		// Detached, because a process may be using it. EINVAL: another call has just unmounted it.
		err = unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return errors.New("too many mounts on one file")
}

// isMounted reports whether a namespace is mounted on the file, which may be absent.
func isMounted(path string) (bool, error) {
	var st unix.Statfs_t
	err := unix.Statfs(path, &st)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return st.Type == unix.NSFS_MAGIC, err
}

// Lost returns the kind ("net") of a namespace of r that is not pinned any longer: its file is absent, or nothing is
// mounted on it. "" if there is none, or if it is not known.
func (p *Pinner) Lost(r Request) string {
	for _, k := range r.kinds() {
		if mounted, err := isMounted(k.path); err == nil && !mounted {
			return k.name
		}
	}
	return ""
}

// Pinned lists the pin files in dir, mounted or not, sorted, including leftovers of a crash. A directory that does not
// exist has none.
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
