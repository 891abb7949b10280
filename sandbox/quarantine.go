package sandbox

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/podd-project/podd/checkpoint"
)

// quarantineList is the names of the damaged records that were moved away, kept in memory: who asks waits for no disk.
type quarantineList struct {
	mu    sync.Mutex // guards names
	names []string
}

func (q *quarantineList) add(names ...string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.names = append(q.names, names...)
}

// Quarantined returns the names, in the quarantine directory, of the records that were found damaged by this daemon and
// those before it, and which nobody has removed since this one was started.
func (e *Engine) Quarantined() []string {
	e.quarantined.mu.Lock()
	defer e.quarantined.mu.Unlock()
	return slices.Clone(e.quarantined.names)
}

// quarantine keeps a record that is damaged for a person; the garbage collection frees what it stood for.
func (e *Engine) quarantine(path string, cause error) {
	to, err := checkpoint.Quarantine(path, e.quarantineDir())
	log := e.Log.WithError(cause).WithField("record", path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return // it was removed meanwhile
	case err != nil:
		log.WithField("quarantine", err).Error("record is damaged, and cannot be moved away")
		return
	}
	log.WithField("kept", to).Error("record is damaged, it was moved away")
	e.quarantined.add(filepath.Base(to))
}
