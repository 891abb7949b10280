package sandbox

import (
	"context"
	"fmt"
	"sync/atomic"
)

// creation is the making of a pod or container as its callers see it. It runs detached from them: a kubelet that
// gave up and asks again with the same name joins it and gets the same id. What no live caller has heard of is
// unclaimed: it is not listed, and is discarded after a while.
type creation struct {
	done    chan struct{} // closed when it has ended, err set before
	err     error
	stage   atomic.Pointer[string]
	claimed atomic.Bool
}

func newCreation() creation { return creation{done: make(chan struct{})} }

// enter names the step that the creation is in, for the error of a caller who cannot wait longer.
func (c *creation) enter(stage string) { c.stage.Store(&stage) }

func (c *creation) finish(err error) {
	c.err = err
	close(c.done)
}

// await waits for the creation to end and claims it.
func (c *creation) await(ctx context.Context, what string) error {
	select {
	case <-c.done:
	case <-ctx.Done():
		return fmt.Errorf("%s is still being created (stage: %s); ask again with the same name to join: %w", what, c.where(), context.Cause(ctx))
	}
	if c.err == nil {
		c.claimed.Store(true)
	}
	return c.err
}

func (c *creation) where() string {
	if s := c.stage.Load(); s != nil {
		return *s
	}
	return "start"
}

// adopt makes the creation a thing of the past, for what was loaded from disk.
func (c *creation) adopt() {
	c.claimed.Store(true)
	c.finish(nil)
}
