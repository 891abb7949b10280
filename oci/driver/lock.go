package driver

import (
	"context"
	"sync"
)

// KeyedLock is a lock per key. The zero value is ready for use.
type KeyedLock struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

// Lock takes the lock of the key, or returns ctx's cause. The caller must call unlock.
func (l *KeyedLock) Lock(ctx context.Context, key string) (unlock func(), err error) {
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

func (l *KeyedLock) unlock(key string, released chan struct{}) {
	l.mu.Lock()
	delete(l.held, key)
	l.mu.Unlock()
	close(released)
}
