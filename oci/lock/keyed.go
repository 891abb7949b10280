// Package lock has a lock that may be held during I/O: waiting for it ends with the waiter's context. It knows
// neither containers nor pods. Every package may call it.
package lock

import (
	"context"
	"sync"
)

// Keyed is a set of locks, one per key. The zero value is ready for use.
type Keyed struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

// Lock takes the lock of the key, or returns ctx's cause. The caller must call unlock.
func (l *Keyed) Lock(ctx context.Context, key string) (unlock func(), err error) {
	for {
		l.mu.Lock()
		if l.held == nil {
			l.held = map[string]chan struct{}{}
		}
		holder := l.held[key]
		if holder == nil {
			released := make(chan struct{})
			l.held[key] = released
			l.mu.Unlock()
			return func() { l.unlock(key, released) }, nil
		}
		l.mu.Unlock()
		select {
		case <-holder:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (l *Keyed) unlock(key string, released chan struct{}) {
	l.mu.Lock()
	delete(l.held, key)
	l.mu.Unlock()
	close(released)
}
