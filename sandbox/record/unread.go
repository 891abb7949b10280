package record

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

// Unread is a record that cannot be read at present, for example for lack of file descriptors or because of an I/O
// error.
type Unread struct {
	Path  string
	Error string
	Since time.Time
	// Pod is the id of the pod that the record or its container belongs to.
	Pod string
}

// ID returns the id of the pod or container.
func (u Unread) ID() string { return filepath.Base(u.Path) }

// UnreadRecords are the records that cannot be read at present. The zero value has none. It is safe for concurrent use.
type UnreadRecords struct {
	mu      sync.Mutex        // guards records
	records map[string]Unread // by path
}

// Add adds a record and reports whether it is a new one. Of a known one it keeps Since.
func (u *UnreadRecords) Add(r Unread) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.records == nil {
		u.records = map[string]Unread{}
	}
	old, known := u.records[r.Path]
	if known {
		r.Since = old.Since
	}
	u.records[r.Path] = r
	return !known
}

// Remove removes the record at path, which has been read or is gone.
func (u *UnreadRecords) Remove(path string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.records, path)
}

// List returns the records sorted by path.
func (u *UnreadRecords) List() []Unread {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.SortedFunc(maps.Values(u.records), func(a, b Unread) int { return cmp.Compare(a.Path, b.Path) })
}

// ContainersOf returns the ids of a pod's containers whose records cannot be read.
func (u *UnreadRecords) ContainersOf(pod string) []string {
	var ids []string
	for _, r := range u.List() {
		if r.Pod == pod && r.ID() != pod {
			ids = append(ids, r.ID())
		}
	}
	return ids
}

// RemovePod removes the records of a pod's containers, which were removed with it.
func (u *UnreadRecords) RemovePod(pod string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.records, func(_ string, r Unread) bool { return r.Pod == pod })
}

// Explain replaces errdefs.ErrNotFound for an id whose record cannot be read.
func (u *UnreadRecords) Explain(id string, err error) error {
	if !errdefs.IsNotFound(err) {
		return err
	}
	for _, r := range u.List() {
		if r.ID() == id {
			return fmt.Errorf("%w: its record cannot be read, podd tries again: %s", errdefs.ErrUnavailable, r.Error)
		}
	}
	return err
}
