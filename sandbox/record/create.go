package record

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/podd-project/podd/checkpoint"
)

// Sync is a new record that is being committed.
type Sync struct {
	done chan struct{} // closed at the end, err set before
	err  error
}

// Create writes a new record and its status to dir, atomically, and starts to commit the record: until that is done it
// is UnsyncedFile. From now on the death of podd loses nothing, and once Wait has returned nil, neither does a power
// loss. The directory also gets the empty directories below, for records whose commit does not sync dir.
func Create(disk checkpoint.Disk, dir string, record any, status Status, below ...string) (*Sync, error) {
	err := disk.Create(filepath.Dir(dir), filepath.Base(dir), func(dir string) error {
		errs := []error{
			checkpoint.WriteNew(filepath.Join(dir, UnsyncedFile), Version, record),
			WriteStatus(checkpoint.Files{}, dir, status),
		}
		for _, name := range below {
			errs = append(errs, os.Mkdir(filepath.Join(dir, name), 0o700))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return nil, err
	}
	s := &Sync{done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.err = disk.Commit(filepath.Join(dir, UnsyncedFile), File)
	}()
	return s, nil
}

// Wait returns when the record is on disk, or why it is not. Call it before the creation is answered and before the
// directory is removed.
func (s *Sync) Wait() error {
	<-s.done
	return s.err
}
