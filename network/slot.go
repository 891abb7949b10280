package network

import (
	"context"
	"sync"
)

// slots admits one operation per pod at a time, as CNI requires for a container. Waiting ends with the waiter's
// context, so a slot may be held while a plugin runs.
type slots struct {
	mu   sync.Mutex // guards pods
	pods map[string]*slot
}

type slot struct {
	busy  chan struct{} // holds a value while the slot is in use
	users int           // holder and waiters; the last one removes the slot
}

// acquire waits for the pod's slot. The caller must call release.
func (s *slots) acquire(ctx context.Context, podID string) (release func(), err error) {
	one := s.join(podID)
	select {
	case one.busy <- struct{}{}:
		return func() {
			<-one.busy
			s.leave(podID, one)
		}, nil
	case <-ctx.Done():
		s.leave(podID, one)
		return nil, context.Cause(ctx)
	}
}

func (s *slots) join(podID string) *slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods == nil {
		s.pods = map[string]*slot{}
	}
	one := s.pods[podID]
	if one == nil {
		one = &slot{busy: make(chan struct{}, 1)}
		s.pods[podID] = one
	}
	one.users++
	return one
}

func (s *slots) leave(podID string, one *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(s.pods, podID)
	}
}
