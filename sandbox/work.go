package sandbox

import "sync"

// work tracks the engine's goroutines. Unlike a WaitGroup's, its Wait may be called concurrently with Go, which then
// fails.
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

// Wait makes Go fail from now on and waits for the goroutines that run.
func (w *work) Wait() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.group.Wait()
}
