// Package program installs the small programs that podd carries in itself: see oci/pause, oci/runc/initproxy and oci/shim, which
// embed them and are its only callers. It writes one file and knows of nothing else.
package program

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrNotBuilt is what Install returns, with the program's name, in a podd that was built without it.
var ErrNotBuilt = errors.New("podd was built without it: run make embedded")

// Install writes the program bin/<last element of path> of the embedded files to path, executable for whom mode says, and
// returns the absolute path. It makes the directory with 0755. The same version is left alone; another one is replaced
// by rename, for a running program cannot be written to, and processes of the old one are not disturbed.
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
	if err := replace(path, program, mode); err != nil {
		return "", fmt.Errorf("install %s: %w", name, err)
	}
	return path, nil
}

// replace writes the program beside its place and renames it there.
func replace(path string, program []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // fails after the rename, as it should
	_, err = tmp.Write(program)
	if err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
