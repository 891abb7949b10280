package lifecycle

import "sync"

// Work tracks goroutines. Unlike a WaitGroup's, its Wait may be called concurrently with Go, which then
// fails.
type Work struct {
	mu     sync.Mutex // orders Go and Wait
	closed bool
	group  sync.WaitGroup
}

// Go runs f, unless Wait has been called: then it returns false and f is not run.
func (w *Work) Go(f func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.group.Go(f)
	}
	return !w.closed
}

// Wait makes Go fail from now on and waits for the goroutines that run.
func (w *Work) Wait() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.group.Wait()
}
