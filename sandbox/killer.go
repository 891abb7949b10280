package sandbox

import (
	"sync"
	"time"
)

// killer holds the one stop of a container that all its StopContainer calls share. A later call can bring the
// deadline forward, never put it off.
type killer struct {
	mu   sync.Mutex
	stop *stop // nil while none is under way
}

// stop is one attempt to end a container.
type stop struct {
	deadline time.Time
	sooner   chan struct{} // closed and replaced when the deadline moves
	done     chan struct{} // closed when the attempt is over, err set before
	err      error
}

// request asks for SIGKILL at deadline at the latest. It returns the stop under way, and whether that is a new one,
// which the caller has to do and to finish.
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

// at returns the deadline of s and what is closed when it moves.
func (k *killer) at(s *stop) (time.Time, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return s.deadline, s.sooner
}

// finish tells everybody who waits for s how it went. The next request begins a new stop.
func (k *killer) finish(s *stop, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s.err, k.stop = err, nil
	close(s.done)
}
