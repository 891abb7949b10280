package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sirupsen/logrus"
)

// Modes of podd's directories. Nobody but root enters the run directory. The root directory may be searched, not
// listed, by others: the first process of a container in a user namespace is another user to the kernel, and has
// to get to its root file system; all else below root is closed again.
const (
	runMode  fs.FileMode = 0o700
	rootMode fs.FileMode = 0o711
)

// secureDir makes sure that path is a directory of ours with the given mode, and returns its path without symbolic
// links, as the kernel's mount table will have it. A directory that is too open is closed, with a warning; one
// that belongs to someone else is refused.
func secureDir(path string, mode fs.FileMode, log logrus.FieldLogger) (string, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(resolved)
	switch {
	case err != nil:
		return "", err
	case !info.IsDir():
		return "", fmt.Errorf("%s is not a directory", path)
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != uint32(os.Geteuid()) {
		return "", fmt.Errorf("%s belongs to uid %d, not to uid %d, which podd runs as: chown it or use another directory", path, owner, os.Geteuid())
	}
	have := info.Mode().Perm()
	if have&^mode != 0 {
		log.WithFields(logrus.Fields{"dir": resolved, "mode": fmt.Sprintf("%04o", have), "want": fmt.Sprintf("%04o", mode)}).
			Warn("directory was open to others, closing it")
	}
	if have != mode {
		return resolved, os.Chmod(resolved, mode)
	}
	return resolved, nil
}
