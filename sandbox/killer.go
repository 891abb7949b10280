package sandbox

import (
	"sync"
	"time"
)

// killer holds the one stop of a container that all its StopContainer calls share. A later call can bring the deadline
// forward, never postpone it.
type killer struct {
	mu   sync.Mutex
	stop *stop // nil while none is in progress
}

// stop is one attempt to stop a container.
type stop struct {
	deadline time.Time
	sooner   chan struct{} // closed and replaced when the deadline moves
	done     chan struct{} // closed at the end of the attempt, err set before
	err      error
}

// request requests SIGKILL at deadline at the latest. It returns the stop in progress, and whether that is a new one,
// which the caller must do and finish.
func (k *killer) request(deadline time.Time) (s *stop, first bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stop == nil {
		k.stop = &stop{deadline: deadline, sooner: make(chan struct{}), done: make(chan struct{})}
		return k.stop, true
	}
	if deadline.Before(k.stop.deadline) {
		k.stop.deadline = deadline
		close(k.stop.sooner)
		k.stop.sooner = make(chan struct{})
	}
	return k.stop, false
}

// at returns the deadline of s and a channel that is closed when it moves.
func (k *killer) at(s *stop) (time.Time, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return s.deadline, s.sooner
}

// finish publishes the result of s to its waiters. The next request starts a new stop.
func (k *killer) finish(s *stop, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s.err, k.stop = err, nil
	close(s.done)
}
