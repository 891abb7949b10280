package sandbox

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
)

// UnreadRecord is a record that cannot be read at present, for example for lack of file descriptors or because of an
// I/O error. The resources of its pod or container are left in place meanwhile.
type UnreadRecord struct {
	Path  string    `json:"path"`
	Error string    `json:"error"`
	Since time.Time `json:"since"`
	// Pod is the id of the pod that the record or its container belongs to.
	Pod string `json:"pod"`
}

// id returns the id of the pod or container.
func (u UnreadRecord) id() string { return filepath.Base(u.Path) }

// unread are the records that cannot be read at present, by path.
type unread struct {
	mu      sync.Mutex // guards records
	records map[string]UnreadRecord
}

// add reports whether the record is a new one. Of a known one it keeps Since.
func (u *unread) add(r UnreadRecord) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.records == nil {
		u.records = map[string]UnreadRecord{}
	}
	old, known := u.records[r.Path]
	if known {
		r.Since = old.Since
	}
	u.records[r.Path] = r
	return !known
}

func (u *unread) remove(path string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.records, path)
}

// list returns the records sorted by path.
func (u *unread) list() []UnreadRecord {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.SortedFunc(maps.Values(u.records), func(a, b UnreadRecord) int { return cmp.Compare(a.Path, b.Path) })
}

// containersOf returns the ids of p's containers whose records cannot be read.
func (u *unread) containersOf(p *Pod) []string {
	var ids []string
	for _, r := range u.list() {
		if r.Pod == p.ID && r.id() != p.ID {
			ids = append(ids, r.id())
		}
	}
	return ids
}

// removePod removes the records of a pod's containers, which were removed with it.
func (u *unread) removePod(p *Pod) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.records, func(_ string, r UnreadRecord) bool { return r.Pod == p.ID })
}

// explain replaces errdefs.ErrNotFound for an id whose record cannot be read.
func (u *unread) explain(id string, err error) error {
	if !errdefs.IsNotFound(err) {
		return err
	}
	for _, r := range u.list() {
		if r.id() == id {
			return fmt.Errorf("%w: its record cannot be read, podd tries again: %s", errdefs.ErrUnavailable, r.Error)
		}
	}
	return err
}

// Unread returns the records that cannot be read at present.
func (e *Engine) Unread() []UnreadRecord { return e.recovery.unread.list() }
