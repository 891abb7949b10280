package driver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
)

// LookPath finds a handler's executable by path, or by name in the directories of search. PATH is not used: what runs
// as root is named by the configuration. The error is errdefs.ErrInvalidArgument for an empty name,
// errdefs.ErrUnavailable for a missing program.
func LookPath(handler, name string, search []string) (string, error) {
	if name == "" {
		return "", fmt.Errorf("handler %s names no binary: %w", handler, errdefs.ErrInvalidArgument)
	}
	if strings.Contains(name, "/") {
		if err := checkExecutable(name); err != nil {
			return "", fmt.Errorf("handler %s: %w: %w", handler, err, errdefs.ErrUnavailable)
		}
		return filepath.Abs(name)
	}
	for _, dir := range search {
		path := filepath.Join(dir, name)
		if filepath.IsAbs(path) && checkExecutable(path) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("handler %s: no %s in %s: %w", handler, name, strings.Join(search, ", "), errdefs.ErrUnavailable)
}

// checkExecutable returns why the file cannot be run, or nil.
func checkExecutable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("%s is not an executable file", path)
	}
	return nil
}
