package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/checkpoint"
)

// stateFormat is the version of the state directory's format. It is raised by changes that an older podd cannot read.
const stateFormat = 1

// state holds the locks of the daemon's two directories.
type state struct {
	// root and run are the directories without symbolic links.
	root, run string
	locks     []*checkpoint.Lock
}

// openState creates the directories, locks both for the life of the process and checks the format of root. Run is
// locked too: a second daemon with another root but the same run directory would tear down the pods of the first.
// The version of podd is recorded, for the error of an older one.
func openState(root, run, version string, log logrus.FieldLogger) (*state, error) {
	s := &state{}
	var err error
	if s.root, err = secureDir(root, rootMode, log); err != nil {
		return nil, fmt.Errorf("root: %w", err)
	}
	if s.run, err = secureDir(run, runMode, log); err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	for _, dir := range []string{s.root, s.run} {
		lock, err := checkpoint.Acquire(filepath.Join(dir, "lock"))
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.locks = append(s.locks, lock)
	}
	if err := checkpoint.CheckLayout(filepath.Join(s.root, "layout"), stateFormat, "podd "+version); err != nil {
		return nil, errors.Join(fmt.Errorf("root: %w", err), s.close())
	}
	return s, nil
}

func (s *state) close() error {
	var errs []error
	for _, l := range s.locks {
		errs = append(errs, l.Unlock())
	}
	return errors.Join(errs...)
}
