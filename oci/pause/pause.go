// Package pause carries podd's own pause program, the first process of pods that share a PID namespace, and
// installs it as a root filesystem. It needs no image, so nothing is pulled and nothing can be collected.
//
// It writes one directory and knows of nothing else. The sandbox engine's wiring calls it once at start.
package pause

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// files holds bin/pause if it was built; bin always holds a README, so that podd builds without a C compiler.
//
//go:embed all:bin
var files embed.FS

// ErrNotBuilt is returned by a podd that was built without the program.
var ErrNotBuilt = errors.New("built without pause: run make pause")

// Install makes dir a root filesystem that holds the program as /pause, and returns dir's absolute path. It
// replaces another version by rename, so processes of the old one are not disturbed, and leaves the same
// version alone. Mount points that a runtime needs in a read-only root are made too.
func Install(dir string) (rootfs string, err error) {
	program, err := files.ReadFile("bin/pause")
	return install(dir, program, err)
}

func install(dir string, program []byte, err error) (string, error) {
	if errors.Is(err, fs.ErrNotExist) {
		return "", ErrNotBuilt
	}
	if err != nil {
		return "", fmt.Errorf("read embedded pause: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", fmt.Errorf("install pause: %w", err)
	}
	for _, d := range []string{"dev", "proc", "sys", "etc"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return "", fmt.Errorf("install pause: %w", err)
		}
	}
	path := filepath.Join(dir, "pause")
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, program) {
		return dir, nil
	}
	if err := replace(path, program); err != nil {
		return "", fmt.Errorf("install pause: %w", err)
	}
	return dir, nil
}

// replace writes the program beside its place and renames it there: a running one cannot be written to.
func replace(path string, program []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".pause-*")
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
