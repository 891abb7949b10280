package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
)

// Entry is how an object is found. It never changes.
type Entry[K comparable] struct {
	ID string
	// Name is what makes the object unique to the kubelet: a repeated create finds it.
	Name    K
	Created time.Time
}

// Table indexes objects by id and by name. Its mutex is the innermost one and is held over map access only.
type Table[K, T comparable] struct {
	what  string
	entry func(T) Entry[K]

	mu     sync.Mutex // guards both maps
	byID   map[string]T
	byName map[K]T
}

// NewTable returns an empty table of objects that are called what in errors. entry says how each is found.
func NewTable[K, T comparable](what string, entry func(T) Entry[K]) *Table[K, T] {
	return &Table[K, T]{what: what, entry: entry, byID: map[string]T{}, byName: map[K]T{}}
}

// Add adds o and returns true, or returns the object that has its name.
func (t *Table[K, T]) Add(o T) (other T, added bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	entry := t.entry(o)
	if other, ok := t.byName[entry.Name]; ok {
		return other, false
	}
	t.byID[entry.ID], t.byName[entry.Name] = o, o
	return other, true
}

// Adopt adds an object of an earlier daemon. A named one is also found by its name. It returns another object that has
// the name, if any, which keeps it unless replace is true. Two of one name are legal: the creation of one failed, and
// so did its undo.
func (t *Table[K, T]) Adopt(o T, named, replace bool) (other T, found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	entry := t.entry(o)
	t.byID[entry.ID] = o
	if !named {
		return other, false
	}
	other, found = t.byName[entry.Name]
	if !found || replace {
		t.byName[entry.Name] = o
	}
	return other, found
}

// Remove removes o and frees its name.
func (t *Table[K, T]) Remove(o T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, t.entry(o).ID)
	t.freeNameLocked(o)
}

// FreeName lets another object have o's name while o is still there: o's creation failed, and so did its undo.
func (t *Table[K, T]) FreeName(o T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.freeNameLocked(o)
}

func (t *Table[K, T]) freeNameLocked(o T) {
	if name := t.entry(o).Name; t.byName[name] == o {
		delete(t.byName, name)
	}
}

// List returns the objects that keep accepts, oldest first; nil accepts all.
func (t *Table[K, T]) List(keep func(T) bool) []T {
	t.mu.Lock()
	objects := make([]T, 0, len(t.byID))
	for _, o := range t.byID {
		if keep == nil || keep(o) {
			objects = append(objects, o)
		}
	}
	t.mu.Unlock()
	slices.SortFunc(objects, func(a, b T) int {
		x, y := t.entry(a), t.entry(b)
		return cmp.Or(x.Created.Compare(y.Created), cmp.Compare(x.ID, y.ID))
	})
	return objects
}

// Find returns the object whose id is id or, if there is only one, starts with it. Errors: errdefs.ErrNotFound, and
// errdefs.ErrInvalidArgument for an id that is empty or ambiguous.
func (t *Table[K, T]) Find(id string) (T, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var none, found T
	if o, ok := t.byID[id]; ok {
		return o, nil
	}
	if id == "" {
		return none, fmt.Errorf("%w: %s id is empty", errdefs.ErrInvalidArgument, t.what)
	}
	for full, o := range t.byID {
		if !strings.HasPrefix(full, id) {
			continue
		}
		if found != none {
			return none, fmt.Errorf("%w: %s id %q is ambiguous, give more of it", errdefs.ErrInvalidArgument, t.what, id)
		}
		found = o
	}
	if found == none {
		return none, fmt.Errorf("%s %q: %w", t.what, id, errdefs.ErrNotFound)
	}
	return found, nil
}
