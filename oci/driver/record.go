package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/checkpoint"
)

// recordLimit bounds what is read of a record: a shim can write to its bundle.
const recordLimit = 64 << 10

// WriteRecord replaces a record of a bundle atomically; the run directory is a tmpfs, so nothing is synced.
func WriteRecord(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(path), err)
	}
	if err := checkpoint.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("write container state: %w", err)
	}
	return nil
}

// ReadRecord reads a record of a bundle; errdefs.ErrNotFound when there is none.
func ReadRecord(path string, v any) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("container %s: %w", filepath.Base(filepath.Dir(path)), errdefs.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("read container state: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, recordLimit))
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return fmt.Errorf("read container state: %w", err)
	}
	return nil
}
