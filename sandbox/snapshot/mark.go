package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
)

// Mark is the path of a directory by which the next podd knows that a container may be frozen.
type Mark string

// MarkOf returns the mark of the container whose record is in a directory.
func MarkOf(record string) Mark { return Mark(filepath.Join(record, "dump")) }

// Set makes the mark, before the container is frozen. The caller calls unset when it runs again. An error is
// errdefs.ErrFailedPrecondition if the container could not be thawed after a podd was killed.
func (m Mark) Set() (unset func(), err error) {
	err = os.Mkdir(string(m), 0o700)
	if errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("%w: the container may be frozen since podd was killed in a checkpoint: "+
			"restart podd, which tries again to thaw it, or stop the container", errdefs.ErrFailedPrecondition)
	}
	return func() { _ = os.Remove(string(m)) }, err
}

// Clear calls thaw if a podd was killed while the container may have been frozen. If that fails, the mark stays.
func (m Mark) Clear(thaw func() error) error {
	if _, err := os.Lstat(string(m)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := thaw(); err != nil {
		return err
	}
	return os.RemoveAll(string(m))
}
