package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/openat"
)

// makeHostDir creates the missing directories of a host path, with mode 0755 and owned by root, and returns its real
// path. Kubernetes expects this of a runtime: for a hostPath volume without a type the kubelet creates nothing.
//
// Symbolic links to existing directories are followed, as /var/run to /run; a dangling one and magic links (those of
// /proc) are errors. Each directory is created in its opened parent, and a symbolic link that takes the place of a
// created directory is an error. A path with ".." is rejected: its target depends on the directories created.
func makeHostDir(path string) (string, error) {
	if slices.Contains(strings.Split(path, "/"), "..") {
		return "", invalid(`host path %q does not exist, and is not created because it contains ".."`, path)
	}
	at, missing, err := openParent(filepath.Clean(path))
	if err != nil {
		return "", createError(path, err)
	}
	defer func() { at.Close() }()
	for _, name := range missing {
		next, err := openat.MakeDir(at, name)
		if err != nil {
			return "", createError(path, err)
		}
		at.Close()
		at = next
	}
	real, err := os.Readlink(openat.Path(at))
	if err != nil {
		return "", createError(path, err)
	}
	return real, nil
}

// openParent opens the deepest existing directory of path and returns the names of those missing below it.
func openParent(path string) (*os.File, []string, error) {
	root, err := os.OpenFile("/", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	var missing []string
	for ; ; path = filepath.Dir(path) {
		at, err := openat.Open(root, path, how)
		if err == nil {
			slices.Reverse(missing)
			return at, missing, nil
		}
		if !errors.Is(err, fs.ErrNotExist) || path == "/" {
			return nil, nil, err
		}
		missing = append(missing, filepath.Base(path))
	}
}

// createError adds the kind: ErrNotFound for a path that existing files make impossible to create.
func createError(path string, err error) error {
	err = fmt.Errorf("host path %q does not exist and cannot be created: %w", path, err)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("%w: %w", errdefs.ErrNotFound, err)
	}
	return err
}
