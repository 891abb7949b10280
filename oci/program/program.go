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
// absolute path. It creates the directory with mode 0755. A file with the same content is left alone; another version
// is replaced by rename, because a running program cannot be written to and must not change.
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
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, program) {
		return path, nil
	}
	if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
		err = checkpoint.WriteFileSync(path, program, mode)
	}
	if err != nil {
		return "", fmt.Errorf("install %s: %w", name, err)
	}
	return path, nil
}
