package lifecycle

import (
	"sync"
	"time"
)

// Stops holds the one stop of a container that all its StopContainer calls share. A later call can bring the deadline
// forward, never postpone it.
type Stops struct {
	mu   sync.Mutex
	stop *Stop // nil while none is in progress
}

// Stop is one attempt to stop a container.
type Stop struct {
	deadline time.Time
	sooner   chan struct{} // closed and replaced when the deadline moves
	// Done is closed at the end of the attempt, after Err was set.
	Done chan struct{}
	Err  error
}

// Request requests SIGKILL at deadline at the latest. It returns the stop in progress, and whether that is a new one,
// which the caller must do and finish.
func (k *Stops) Request(deadline time.Time) (s *Stop, first bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stop == nil {
		k.stop = &Stop{deadline: deadline, sooner: make(chan struct{}), Done: make(chan struct{})}
		return k.stop, true
	}
	if deadline.Before(k.stop.deadline) {
		k.stop.deadline = deadline
		close(k.stop.sooner)
		k.stop.sooner = make(chan struct{})
	}
	return k.stop, false
}

// At returns the deadline of s and a channel that is closed when it moves.
func (k *Stops) At(s *Stop) (time.Time, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return s.deadline, s.sooner
}

// Finish publishes the result of s to its waiters. The next request starts a new stop.
func (k *Stops) Finish(s *Stop, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s.Err, k.stop = err, nil
	close(s.Done)
}
