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

	"github.com/podd-project/podd/checkpoint"
)

// loadRetry is how long a record that could not be read is let be.
const loadRetry = time.Second

// UnreadRecord is a record that cannot be read at present: for lack of file descriptors, say, or because the disk does
// not answer. What it stands for is left alone meanwhile.
type UnreadRecord struct {
	Path  string    `json:"path"`
	Error string    `json:"error"`
	Since time.Time `json:"since"`
	// Pod is the id of the pod that the record is of, or whose container's it is.
	Pod string `json:"pod"`
}

// id is that of the pod or container.
func (u UnreadRecord) id() string { return filepath.Base(u.Path) }

// unread are the records that cannot be read at present, by path.
type unread struct {
	mu      sync.Mutex
	records map[string]UnreadRecord
}

func (u *unread) add(r UnreadRecord) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.records == nil {
		u.records = map[string]UnreadRecord{}
	}
	if old, ok := u.records[r.Path]; ok {
		r.Since = old.Since
	}
	u.records[r.Path] = r
}

func (u *unread) remove(path string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.records, path)
}

// list returns the records in the order of their paths.
func (u *unread) list() []UnreadRecord {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.SortedFunc(maps.Values(u.records), func(a, b UnreadRecord) int { return cmp.Compare(a.Path, b.Path) })
}

// containersOf returns the ids of p's containers that are known by their directory only.
func (u *unread) containersOf(p *Pod) []string {
	var ids []string
	for _, r := range u.list() {
		if r.Pod == p.ID && r.id() != p.ID {
			ids = append(ids, r.id())
		}
	}
	return ids
}

// forget drops what is known of a pod's containers: they are removed.
func (u *unread) forget(p *Pod) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.records, func(_ string, r UnreadRecord) bool { return r.Pod == p.ID })
}

// explain replaces the error of a lookup that found nothing when there is a record of that id after all.
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

// take has load read the record at path and take over what it stands for. A damaged record is moved away. With any
// other error the record may be sound: it is left where it is and read again, until it can be read or is found to be
// damaged, or the engine is closed.
func (e *Engine) take(path, pod string, load func() error) {
	if e.taken(path, pod, load) {
		return
	}
	e.work.Go(func() {
		for sleep(e.life.ctx, loadRetry) {
			if e.taken(path, pod, load) {
				e.unread.remove(path)
				e.collectSoon() // if it is damaged, what it stood for is garbage from now on
				e.Log.WithField("record", path).Info("record could be read at last, or need not be read any more")
				return
			}
		}
	})
}

// taken is one attempt of take; false asks for another.
func (e *Engine) taken(path, pod string, load func() error) bool {
	err := load()
	switch {
	case err == nil:
		return true
	case checkpoint.IsPermanent(err):
		e.quarantine(path, err)
		return true
	}
	known := e.unread.has(path)
	e.unread.add(UnreadRecord{Path: path, Pod: pod, Error: err.Error(), Since: time.Now()})
	if !known { // once, not every second
		e.Log.WithError(err).WithField("record", path).Error("record cannot be read at present, what it stands for is left alone")
	}
	return false
}

func (u *unread) has(path string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, ok := u.records[path]
	return ok
}

// Unread returns the records that cannot be read at present.
func (e *Engine) Unread() []UnreadRecord { return e.unread.list() }
