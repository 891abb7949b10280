package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sirupsen/logrus"
)

// Modes of podd's directories. Only root can enter the run directory. Others can search, but not list, the root
// directory: the first process of a container in a user namespace has another uid on the host and must reach its root
// filesystem. All other directories below root are closed.
const (
	runMode  fs.FileMode = 0o700
	rootMode fs.FileMode = 0o711
)

// secureDir makes path a directory with the given mode, owned by the daemon's uid, and returns its path without
// symbolic links, as in the kernel's mount table. It restricts the mode of an existing directory, with a warning if
// others had access, and refuses one with another owner.
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
		return "", fmt.Errorf("%s is owned by uid %d, but podd runs as uid %d: chown it or use another directory",
			path, owner, os.Geteuid())
	}
	have := info.Mode().Perm()
	if have&^mode != 0 {
		log.WithFields(logrus.Fields{
			"dir": resolved, "mode": fmt.Sprintf("%04o", have), "want": fmt.Sprintf("%04o", mode),
		}).Warn("directory was accessible to others, restricting its mode")
	}
	if have != mode {
		return resolved, os.Chmod(resolved, mode)
	}
	return resolved, nil
}
