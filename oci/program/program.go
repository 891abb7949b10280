// Package program installs the small programs that are embedded in podd. Its callers are the packages that embed them:
// oci/pause, oci/runc/initproxy and oci/shim.
package program

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/podd-project/podd/checkpoint"
)

// ErrNotBuilt is the error of a podd that was built without the program.
var ErrNotBuilt = errors.New("podd was built without it: run make embedded")

// Install writes the program bin/<last element of path> of the embedded files to path with this mode, and returns the
// absolute path. A file with the same content and mode is left alone; another version is replaced by rename, because a
// running program cannot be written to and must not change.
//
// The directory is made, or changed to be, as open as the program, and writable by its owner.
func Install(embedded fs.FS, path string, mode fs.FileMode) (string, error) {
	name := filepath.Base(path)
	program, err := fs.ReadFile(embedded, "bin/"+name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("install %s: %w", name, ErrNotBuilt)
	}
	if err != nil {
		return "", fmt.Errorf("install %s: %w", name, err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", fmt.Errorf("install %s: %w", name, err)
	}
	if err = makeDir(filepath.Dir(path), mode|0o200); err == nil && !installed(path, program, mode) {
		err = checkpoint.WriteFileSync(path, program, mode)
	}
	if err != nil {
		return "", fmt.Errorf("install %s: %w", name, err)
	}
	return path, nil
}

func installed(path string, program []byte, mode fs.FileMode) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != mode {
		return false
	}
	have, err := os.ReadFile(path)
	return err == nil && bytes.Equal(have, program)
}

// makeDir makes a directory, and its parents with mode 0755. The mode of an existing one is changed only if it differs:
// the disk may be read-only.
func makeDir(dir string, mode fs.FileMode) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() == mode {
		return err
	}
	return os.Chmod(dir, mode)
}
