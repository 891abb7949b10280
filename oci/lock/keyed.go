// Package lock has a lock that may be held during I/O: waiting for it ends with the waiter's context. It knows
// neither containers nor pods. Every package may call it.
package lock

import (
	"context"
	"sync"
)

// Keyed is a set of locks, one per key. Callers get a lock in the order in which they asked for it. The zero value is
// ready for use.
type Keyed struct {
	mu    sync.Mutex
	locks map[string]*keyLock
}

// keyLock is one lock: a channel that has room for its holder, and whose senders wait in order.
type keyLock struct {
	holder chan struct{}
	users  int // that hold it or wait
}

// Lock takes the lock of the key, or returns ctx's cause. The caller must call unlock.
func (l *Keyed) Lock(ctx context.Context, key string) (unlock func(), err error) {
	k := l.use(key)
	select {
	case k.holder <- struct{}{}: // a free lock is taken even after the end of ctx
	default:
		select {
		case k.holder <- struct{}{}:
		case <-ctx.Done():
			l.leave(key, k)
			return nil, context.Cause(ctx)
		}
	}
	return func() {
		<-k.holder
		l.leave(key, k)
	}, nil
}

func (l *Keyed) use(key string) *keyLock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.locks == nil {
		l.locks = map[string]*keyLock{}
	}
	k := l.locks[key]
	if k == nil {
		k = &keyLock{holder: make(chan struct{}, 1)}
		l.locks[key] = k
	}
	k.users++
	return k
}

func (l *Keyed) leave(key string, k *keyLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(l.locks, key)
	}
}
