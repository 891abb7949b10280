package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/checkpoint"
)

// Bundle is the directory of one container, <run directory>/<id>.
type Bundle string

// NewBundle names the container's bundle. The id becomes a path and an argument of other programs, so it is checked
// here.
func NewBundle(runDir, id string) (Bundle, error) {
	if err := CheckID(id); err != nil {
		return "", err
	}
	return Bundle(filepath.Join(runDir, id)), nil
}

// CheckID refuses ids that are not safe as a file name or an argument: errdefs.ErrInvalidArgument.
func CheckID(id string) error {
	ok := id != "" && len(id) <= 200 && id[0] != '.' && id[0] != '-'
	for _, c := range id {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		ok = ok && (letter || c >= '0' && c <= '9' || strings.ContainsRune("_.-", c))
	}
	if !ok {
		return fmt.Errorf("container id %.80q: %w", id, errdefs.ErrInvalidArgument)
	}
	return nil
}

// Dir is the bundle's path.
func (b Bundle) Dir() string { return string(b) }

// ID is the container's id.
func (b Bundle) ID() string { return filepath.Base(string(b)) }

// File is the path of a file in the bundle.
func (b Bundle) File(name string) string { return filepath.Join(string(b), name) }

// Config is the path of the container's config.json.
func (b Bundle) Config() string { return b.File("config.json") }

// Exists reports whether the directory exists.
func (b Bundle) Exists() bool { return FileExists(string(b)) }

// Create makes the directory with its config.json. Both are for root only: the spec holds the environment. The error is
// errdefs.ErrAlreadyExists when the directory exists.
func (b Bundle) Create(s *specs.Spec) error {
	if err := os.MkdirAll(filepath.Dir(string(b)), 0o700); err != nil {
		return fmt.Errorf("create run directory: %w", err)
	}
	if err := os.Mkdir(string(b), 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("bundle %s: %w", b, errdefs.ErrAlreadyExists)
		}
		return fmt.Errorf("create bundle: %w", err)
	}
	data, err := PlainJSON(s)
	if err != nil {
		return fmt.Errorf("encode config.json: %w", err)
	}
	if err := os.WriteFile(b.Config(), data, 0o600); err != nil {
		return fmt.Errorf("write config.json: %w", err)
	}
	return nil
}

// PlainJSON is checkpoint.PlainJSON on one line.
func PlainJSON(v any) ([]byte, error) { return checkpoint.PlainJSON(v, "") }

// FileExists reports whether there is a file, of any kind, at the path.
func FileExists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
