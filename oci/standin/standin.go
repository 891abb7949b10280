// Package standin carries podd's stand-in program, the process that a monitor watches in place of a container that
// has none on the host because it runs under a kernel of its own (see standin.c), and installs it.
//
// It writes one file and knows of nothing else. The sandbox engine's wiring calls it once at start.
package standin

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// files holds bin/standin if it was built; bin always holds a README, so that podd builds without a C compiler.
//
//go:embed all:bin
var files embed.FS

// ErrNotBuilt is returned by a podd that was built without the program.
var ErrNotBuilt = errors.New("built without stand-in: run make pause")

// Install writes the program into dir and returns its absolute path. Another version is replaced by rename, so
// processes of the old one are not disturbed.
func Install(dir string) (string, error) {
	program, err := files.ReadFile("bin/standin")
	if errors.Is(err, fs.ErrNotExist) {
		return "", ErrNotBuilt
	}
	if err != nil {
		return "", fmt.Errorf("read embedded stand-in: %w", err)
	}
	return install(dir, program)
}

func install(dir string, program []byte) (string, error) {
	path, err := filepath.Abs(filepath.Join(dir, "standin"))
	if err != nil {
		return "", fmt.Errorf("install stand-in: %w", err)
	}
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, program) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("install stand-in: %w", err)
	}
	if err := replace(path, program); err != nil {
		return "", fmt.Errorf("install stand-in: %w", err)
	}
	return path, nil
}

// replace writes the program beside its place and renames it there: a running one cannot be written to.
func replace(path string, program []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".standin-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // fails after the rename, as it should
	_, err = tmp.Write(program)
	if err = errors.Join(err, tmp.Chmod(0o555), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
