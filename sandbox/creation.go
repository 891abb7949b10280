package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/podd-project/podd/sandbox/operation"
)

// creation is the making of a pod or container as its callers see it. It runs detached from them: a kubelet that
// gave up and asks again with the same name joins it and gets the same id. What no live caller has heard of is
// unclaimed: it is not listed, and is discarded after a while.
type creation struct {
	done    chan struct{} // closed when it has ended, err set before
	err     error
	active  atomic.Pointer[operation.Active]
	claimed atomic.Bool

	mu      sync.Mutex // puts the end, claims, and callers who give up in one order
	waiting int        // callers in await
}

func newCreation() creation { return creation{done: make(chan struct{})} }

// follow has the creation's stage told from the operation of ctx, to callers who cannot wait longer.
func (c *creation) follow(ctx context.Context) {
	if active := operation.FromContext(ctx); active != nil {
		c.active.Store(active)
	}
}

// announce claims what is about to be finished for those who wait for it: events that tell of it show it listed.
func (c *creation) announce() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting > 0 {
		c.claimed.Store(true)
	}
}

func (c *creation) finish(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	c.active.Store(nil) // it holds the context of the call, and so all that gRPC keeps for one
	close(c.done)
}

// await waits for the creation to end and claims it.
func (c *creation) await(ctx context.Context, what string) error {
	c.wait(+1)
	defer c.wait(-1)
	select {
	case <-c.done:
	case <-ctx.Done():
	}
	return c.result(ctx, what)
}

func (c *creation) wait(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting += n
}

// result is what a caller is told who waits no longer.
func (c *creation) result(ctx context.Context, what string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.done:
	default:
		return fmt.Errorf("%s is still being created (stage: %s); ask again with the same name to join: %w", what, c.where(), context.Cause(ctx))
	}
	if c.err == nil {
		c.claimed.Store(true)
	}
	return c.err
}

// abandoned is true when nobody has heard of the thing nor waits for it. The caller then has to remove it: to all
// others it is claimed, so that who comes now sees something that is being removed, not half of it.
func (c *creation) abandoned() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting == 0 && c.claimed.CompareAndSwap(false, true)
}

func (c *creation) where() string {
	if active := c.active.Load(); active != nil {
		return cmp.Or(active.Snapshot().Stage(), "start")
	}
	return "start"
}

// adopt makes the creation a thing of the past, for what was loaded from disk.
func (c *creation) adopt() {
	c.claimed.Store(true)
	c.finish(nil)
}
