// Package state owns podd's two directories, root and run: their modes, locks and format number, the unix sockets, the
// space for another pod, and their removal. It knows none of the files that other packages keep in them. The daemon and
// the commands call it.
package state

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/checkpoint"
)

// stateFormat is the version of the state directory's format. It is raised by changes that an older podd cannot read.
const stateFormat = 1

// Directories are the root and the run directory, locked.
type Directories struct {
	// Root and Run are the paths without symbolic links.
	Root, Run string
	locks     []*checkpoint.Lock
}

// Open creates the directories, locks both for the life of the process and checks the format of root. Run is locked
// too: a second daemon with another root but the same run directory would tear down the pods of the first. It records
// the version of podd, which an older podd that cannot read the format names in its error.
func Open(root, run, version string, log logrus.FieldLogger) (*Directories, error) {
	s := &Directories{}
	var err error
	if s.Root, err = secureDir(root, rootMode, log); err != nil {
		return nil, fmt.Errorf("root: %w", err)
	}
	if s.Run, err = secureDir(run, runMode, log); err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	for _, dir := range []string{s.Root, s.Run} {
		lock, err := checkpoint.Acquire(filepath.Join(dir, "lock"))
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.locks = append(s.locks, lock)
	}
	if err := checkpoint.CheckLayout(filepath.Join(s.Root, "layout"), stateFormat, "podd "+version); err != nil {
		return nil, errors.Join(fmt.Errorf("root: %w", err), s.Close())
	}
	return s, nil
}

// Close unlocks both.
func (s *Directories) Close() error {
	var errs []error
	for _, l := range s.locks {
		errs = append(errs, l.Unlock())
	}
	return errors.Join(errs...)
}
