package shim

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// files holds bin/keeper if it was built; bin always holds a README, so that podd builds without it.
//
//go:embed all:bin
var files embed.FS

// ErrNotBuilt is returned by a podd that was built without the program.
var ErrNotBuilt = errors.New("built without the keeper of shims' output: run make pause")

// InstallKeeper puts the keeper into dir and returns its path. It replaces another version by rename, so the keepers
// that run are not disturbed, and leaves the same version alone.
func InstallKeeper(dir string) (string, error) {
	program, err := files.ReadFile("bin/keeper")
	if errors.Is(err, fs.ErrNotExist) {
		return "", ErrNotBuilt
	}
	if err != nil {
		return "", fmt.Errorf("read embedded keeper: %w", err)
	}
	return install(dir, program)
}

func install(dir string, program []byte) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("install keeper: %w", err)
	}
	path := filepath.Join(dir, "keeper")
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, program) {
		return path, nil
	}
	tmp, err := os.CreateTemp(dir, ".keeper-*")
	if err != nil {
		return "", fmt.Errorf("install keeper: %w", err)
	}
	defer os.Remove(tmp.Name()) // fails after the rename, as it should
	_, err = tmp.Write(program)
	if err = errors.Join(err, tmp.Chmod(0o500), tmp.Close()); err != nil {
		return "", fmt.Errorf("install keeper: %w", err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return "", fmt.Errorf("install keeper: %w", err)
	}
	return path, nil
}
