package sandbox

import "sync"

// work is the engine's goroutines. Unlike a WaitGroup's, its Wait may be called while others still come: they are
// turned away.
type work struct {
	mu     sync.Mutex // orders Go and Wait
	closed bool
	group  sync.WaitGroup
}

// Go runs f, unless Wait has been called: then it returns false and f is not run.
func (w *work) Go(f func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.group.Go(f)
	}
	return !w.closed
}

// Wait turns newcomers away and waits for those who are there.
func (w *work) Wait() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.group.Wait()
}
