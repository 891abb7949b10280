package garbage

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/sandbox/record"
)

// Quarantine moves a damaged record away for an administrator; the next collection frees its resources.
func (j *Janitor) Quarantine(path string, cause error) {
	to, err := checkpoint.Quarantine(path, j.Machine.Paths.Quarantine())
	log := j.Log.WithError(cause).WithField("record", path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return // it has been removed
	case err != nil:
		log.WithField("quarantine", err).Error("record is damaged, failed to move it to the quarantine")
		return
	}
	log.WithField("kept", to).Error("record is damaged, moved it to the quarantine")
	j.addQuarantined(Trouble{Path: to, Since: time.Now(), Error: cause.Error()})
}

// ListQuarantine notes the records that are in the quarantine since an earlier start.
func (j *Janitor) ListQuarantine() {
	names, err := record.Names(j.Machine.Paths.Quarantine())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		j.Log.WithError(err).Error("failed to list the quarantine")
	}
	for _, name := range names {
		j.addQuarantined(Trouble{Path: filepath.Join(j.Machine.Paths.Quarantine(), name)})
	}
}

func (j *Janitor) addQuarantined(t Trouble) {
	t.Kind, t.What = Quarantined, "record"
	t.ID, _, _ = strings.Cut(filepath.Base(t.Path), "-")
	j.mu.Lock()
	defer j.mu.Unlock()
	j.quarantined = append(j.quarantined, t)
}

// RemoveUnfinished removes a record that was not synced and is damaged, by a power failure or a failing disk. It is not
// quarantined, because its creation was not answered. The next collection frees its resources.
func (j *Janitor) RemoveUnfinished(path string, cause error) {
	log := j.Log.WithError(cause).WithField("record", path)
	if err := checkpoint.Remove(filepath.Dir(path), filepath.Base(path)); err != nil {
		log.WithField("removal", err).Error("record was not written completely, failed to remove it")
		return
	}
	log.Warn("record was not synced and is damaged, by a power failure or a failing disk, removed it")
}
