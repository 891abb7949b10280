package sandbox

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/podd-project/podd/checkpoint"
)

// quarantineList holds the names of the damaged records that were moved away, so that readers do not wait for the disk.
type quarantineList struct {
	mu    sync.Mutex // guards names
	names []string
}

func (q *quarantineList) add(names ...string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.names = append(q.names, names...)
}

func (q *quarantineList) list() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.names)
}

// Quarantined returns the names, in the quarantine directory, of the records found damaged by this daemon, and of those
// that were there when it started.
func (e *Engine) Quarantined() []string { return e.janitor.quarantined.list() }

// quarantine moves a damaged record away for an administrator; the garbage collection frees its resources.
func (j *janitor) quarantine(path string, cause error) {
	to, err := checkpoint.Quarantine(path, j.e.paths.Quarantine())
	log := j.e.deps.Log.WithError(cause).WithField("record", path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return // it was removed meanwhile
	case err != nil:
		log.WithField("quarantine", err).Error("record is damaged, failed to move it to the quarantine")
		return
	}
	log.WithField("kept", to).Error("record is damaged, moved it to the quarantine")
	j.quarantined.add(filepath.Base(to))
}

// removeUnfinished removes a record that was not synced and is damaged, by a loss of the power or a disk that failed.
// It is not quarantined, because its creation was not answered. The garbage collection frees its resources.
func (j *janitor) removeUnfinished(path string, cause error) {
	log := j.e.deps.Log.WithError(cause).WithField("record", path)
	if err := checkpoint.Remove(filepath.Dir(path), filepath.Base(path)); err != nil {
		log.WithField("removal", err).Error("record was not written completely, failed to remove it")
		return
	}
	log.Warn("record was not synced and is damaged, by a power failure or a failing disk, removed it")
}
