package driver

import (
	"sync"

	"github.com/podd-project/podd/oci"
)

// Waiters are the calls of Wait under way, by container. Delete removes the files with the exit status, so
// it delivers the status to them first. The zero value is ready for use, by several goroutines at a time.
type Waiters struct {
	mu   sync.Mutex
	byID map[string]*Waiter
}

// Waiter is shared by the calls of Wait for one container.
type Waiter struct {
	calls     int
	delivered chan struct{}
	exit      oci.Exit
}

// Join registers a call of Wait, which must call Leave.
func (w *Waiters) Join(id string) *Waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byID == nil {
		w.byID = map[string]*Waiter{}
	}
	one := w.byID[id]
	if one == nil {
		one = &Waiter{delivered: make(chan struct{})}
		w.byID[id] = one
	}
	one.calls++
	return one
}

// Leave ends a call of Wait.
func (w *Waiters) Leave(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.byID[id]
	if one.calls--; one.calls == 0 {
		delete(w.byID, id)
	}
}

// Deliver passes the exit status to the container's waiters. Only the first one counts.
func (w *Waiters) Deliver(id string, e oci.Exit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.byID[id]
	if one == nil {
		return
	}
	if _, delivered := one.Exit(); !delivered {
		one.exit = e
		close(one.delivered)
	}
}

// Delivered is closed when an exit status was delivered.
func (w *Waiter) Delivered() <-chan struct{} { return w.delivered }

// Exit returns the exit status that was delivered, if any.
func (w *Waiter) Exit() (oci.Exit, bool) {
	select {
	case <-w.delivered:
		return w.exit, true
	default:
		return oci.Exit{}, false
	}
}
