package sandbox

import (
	"sync"
	"time"
)

// killer is the one stop of a container that all its StopContainer calls share. A later call can bring the
// deadline forward, never put it off.
type killer struct {
	mu       sync.Mutex
	running  bool
	deadline time.Time
	sooner   chan struct{} // closed and replaced when the deadline moves
}

// request asks for SIGKILL at deadline at the latest and reports whether the caller is the one to do the stop.
func (k *killer) request(deadline time.Time) (first bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.running {
		k.running, k.deadline, k.sooner = true, deadline, make(chan struct{})
		return true
	}
	if deadline.Before(k.deadline) {
		k.deadline = deadline
		close(k.sooner)
		k.sooner = make(chan struct{})
	}
	return false
}

// at returns the deadline and what is closed when it moves.
func (k *killer) at() (time.Time, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.deadline, k.sooner
}

// reset lets the next request begin a new stop: the last one has given up.
func (k *killer) reset() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running = false
}
