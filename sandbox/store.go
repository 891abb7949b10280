package sandbox

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
)

// store is the engine's index of its pods and containers.
type store struct {
	pods       *table[podName, *Pod]
	containers *table[containerName, *Container]
}

func newStore() store {
	return store{
		pods:       newTable[podName, *Pod]("pod sandbox"),
		containers: newTable[containerName, *Container]("container"),
	}
}

// containersOf returns the containers of p, oldest first.
func (s store) containersOf(p *Pod) []*Container {
	return s.containers.list(func(c *Container) bool { return c.pod == p })
}

// newID returns a random id of 64 hexadecimal digits.
func newID() string {
	var b [32]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

// podName is what makes a pod sandbox unique to the kubelet.
type podName struct {
	name, namespace, uid string
	attempt              uint32
}

// containerName is what makes a container unique in its pod.
type containerName struct {
	pod, name string
	attempt   uint32
}

func (p *Pod) key() (id string, name podName) {
	m := p.Config.GetMetadata()
	return p.ID, podName{m.GetName(), m.GetNamespace(), m.GetUid(), m.GetAttempt()}
}

func (p *Pod) created() time.Time  { return p.CreatedAt }
func (p *Pod) creating() *creation { return &p.creation }

func (c *Container) key() (id string, name containerName) {
	m := c.Config.GetMetadata()
	return c.ID, containerName{c.PodID, m.GetName(), m.GetAttempt()}
}

func (c *Container) created() time.Time  { return c.CreatedAt }
func (c *Container) creating() *creation { return &c.creation }

// keyed is an object with an id and a name, by which a repeated create finds it.
type keyed[K comparable] interface {
	comparable
	key() (id string, name K)
	created() time.Time
	creating() *creation
	log() logrus.FieldLogger
}

// table indexes objects by id and by name. Its mutex is the innermost one and is held over map access only.
type table[K comparable, T keyed[K]] struct {
	what string

	mu     sync.Mutex // guards both maps
	byID   map[string]T
	byName map[K]T
}

func newTable[K comparable, T keyed[K]](what string) *table[K, T] {
	return &table[K, T]{what: what, byID: map[string]T{}, byName: map[K]T{}}
}

// add adds o and returns true, or returns the object that has its name.
func (t *table[K, T]) add(o T) (other T, added bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, name := o.key()
	if other, ok := t.byName[name]; ok {
		return other, false
	}
	t.byID[id], t.byName[name] = o, o
	return other, true
}

// adopt adds an object of an earlier daemon. A named one is also found by its name. It returns another object that has
// the name, if any, which keeps it unless replace is true. Two of one name are legal: the creation of one failed, and
// so did its undo.
func (t *table[K, T]) adopt(o T, named, replace bool) (other T, found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, name := o.key()
	t.byID[id] = o
	if !named {
		return other, false
	}
	other, found = t.byName[name]
	if !found || replace {
		t.byName[name] = o
	}
	return other, found
}

func (t *table[K, T]) remove(o T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, _ := o.key()
	delete(t.byID, id)
	t.freeNameLocked(o)
}

// freeName lets another object have o's name while o is still there: o's creation failed, and so did its undo.
func (t *table[K, T]) freeName(o T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.freeNameLocked(o)
}

func (t *table[K, T]) freeNameLocked(o T) {
	if _, name := o.key(); t.byName[name] == o {
		delete(t.byName, name)
	}
}

// list returns the objects that keep accepts, oldest first; nil accepts all.
func (t *table[K, T]) list(keep func(T) bool) []T {
	t.mu.Lock()
	objects := make([]T, 0, len(t.byID))
	for _, o := range t.byID {
		if keep == nil || keep(o) {
			objects = append(objects, o)
		}
	}
	t.mu.Unlock()
	slices.SortFunc(objects, func(a, b T) int {
		idA, _ := a.key()
		idB, _ := b.key()
		return cmp.Or(a.created().Compare(b.created()), cmp.Compare(idA, idB))
	})
	return objects
}

// find returns the object whose id is id or, if there is only one, starts with it.
func (t *table[K, T]) find(id string) (T, error) {
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
