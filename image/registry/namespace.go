package registry

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// namespaceSuffix ends the names of the files in PolicyDir and AuthDir.
const namespaceSuffix = ".json"

// ForNamespace returns the configuration of a namespace of Kubernetes: with its own signature policy and its own
// credentials, if PolicyDir and AuthDir have any. A file that cannot be read is an error, not one that is missing.
func (c Config) ForNamespace(namespace string) (Config, error) {
	policy, err := namespaceFile(c.PolicyDir, namespace)
	if err != nil {
		return c, fmt.Errorf("policy_dir: %w", err)
	}
	if policy != "" {
		c.Policy, c.PolicyRequired = policy, true
	}
	auth, err := namespaceFile(c.AuthDir, namespace)
	if err != nil {
		return c, fmt.Errorf("auth_dir: %w", err)
	}
	if auth != "" {
		c.AuthFile = auth
	}
	return c, nil
}

// namespaceFile returns the path of a namespace's file in dir, "" if there is none. A dangling link counts as a
// file: using the node's rules instead would be laxer than intended.
func namespaceFile(dir, namespace string) (string, error) {
	if dir == "" || namespace == "" {
		return "", nil
	}
	if strings.Contains(namespace, "/") {
		return "", fmt.Errorf("%w: namespace %q contains a slash", errdefs.ErrInvalidArgument, namespace)
	}
	path := filepath.Join(dir, namespace+namespaceSuffix)
	_, err := os.Lstat(path)
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	}
	return "", fmt.Errorf("%w: look for the file of namespace %q: %w", errdefs.ErrFailedPrecondition, namespace, err)
}

// namespaceOf returns the namespace that a file of PolicyDir or AuthDir is for, from its name.
func namespaceOf(file string) (string, bool) {
	name, ok := strings.CutSuffix(file, namespaceSuffix)
	return name, ok && name != "" && !strings.HasPrefix(name, ".")
}

// SeparatesNamespaces reports whether PolicyDir has a policy of any namespace.
func (c Config) SeparatesNamespaces() (bool, error) {
	if c.PolicyDir == "" {
		return false, nil
	}
	entries, err := os.ReadDir(c.PolicyDir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		_, ok := namespaceOf(e.Name())
		return ok
	}), err
}
