package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/checkpoint"
)

// stateFormat is the number of the state directory's format, raised when an older podd could not read it.
const stateFormat = 1

// state is the daemon's hold on its two directories.
type state struct {
	// root and run are the directories without symbolic links.
	root, run string
	locks     []*checkpoint.Lock
}

// openState makes the directories, locks both for the life of the process and checks the format of root. Both
// are locked: a second daemon with a root of its own but our run directory would tear our pods down.
func openState(c Config, log logrus.FieldLogger) (*state, error) {
	s := &state{}
	var err error
	if s.root, err = secureDir(c.Root, rootMode, log); err != nil {
		return nil, fmt.Errorf("root: %w", err)
	}
	if s.run, err = secureDir(c.Run, runMode, log); err != nil {
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
