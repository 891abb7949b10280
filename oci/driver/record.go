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
	"github.com/podd-project/podd/oci/process"
)

const (
	// recordLimit bounds the part of a record that is read, in bytes: a shim can write to its bundle.
	recordLimit = 64 << 10
	// recordVersion is the newest version of records that is understood.
	recordVersion = 1
)

// Header is the first part of a container's record, from which a later daemon reaches the container.
type Header struct {
	Version int `json:"v"`
	// Boot is the kernel's boot id: after another boot no process of the record exists.
	Boot string `json:"boot"`
}

// NewHeader returns the header of a record that is written now.
func NewHeader() Header { return Header{Version: recordVersion, Boot: process.BootID()} }

// ThisBoot reports whether the record was written since the last boot.
func (h Header) ThisBoot() bool { return h.Boot == process.BootID() }

// CheckVersion refuses a record of a newer daemon: errdefs.ErrFailedPrecondition.
func (h Header) CheckVersion() error {
	if h.Version > recordVersion {
		return fmt.Errorf("container state of version %d: %w", h.Version, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// WriteRecord writes a record into a bundle atomically. Nothing is synced: the run directory is a tmpfs.
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

// ReadRecord reads a record of a bundle. errdefs.ErrNotFound if there is none.
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
