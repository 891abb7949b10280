package sandbox

import (
	"context"
	"sync"
)

// gate counts entrants and can be closed permanently: then enter fails, and close waits until all have left.
type gate struct {
	mu     sync.Mutex
	inside int
	closed bool
	empty  chan struct{} // closed when the gate is closed and inside is 0
}

// enter reports whether the gate was open; if so the caller must leave.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.closed && g.inside == 0 {
		close(g.empty)
	}
}

// close closes the gate and waits until all have left. It may be called more than once.
func (g *gate) close(ctx context.Context) error {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		g.empty = make(chan struct{})
		if g.inside == 0 {
			close(g.empty)
		}
	}
	empty := g.empty
	g.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
