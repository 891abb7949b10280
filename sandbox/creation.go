package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/sandbox/index"
	"github.com/podd-project/podd/sandbox/operation"
)

// creation is the creation of a pod or container as its callers see it. It runs detached from them: a kubelet that gave
// up and asks again with the same name joins it and gets the same id. An object whose id no caller has received is
// unclaimed: it is not listed, and is discarded after a while.
type creation struct {
	done    chan struct{} // closed at the end, err set before
	err     error
	active  atomic.Pointer[operation.Active]
	claimed atomic.Bool

	mu      sync.Mutex // orders the end, claims, and callers that give up
	waiting int        // callers in await
}

// construction are the parts of a creation that differ between pods and containers.
type construction struct {
	what string
	log  logrus.FieldLogger
	life life
	// operation runs do as the operation of the creation.
	operation func(ctx context.Context, do func(context.Context) error) error
	build     func(context.Context) error
	// discard undoes build after a failure and returns cause.
	discard func(ctx context.Context, cause error) error
	// created is called when build has succeeded, before any caller receives the id.
	created func()
	remove  func(context.Context) error
}

func newCreation() creation { return creation{done: make(chan struct{})} }

// createdObject is a pod or container.
type createdObject interface {
	comparable
	creating() *creation
	log() logrus.FieldLogger
}

// register adds o to t and returns true, or returns the object that has its name, with the error of same. If that
// object differs and is unclaimed, because the kubelet changed the config before the answer, no caller can remove it:
// register does, and adds o.
func register[K comparable, T createdObject](
	t *index.Table[K, T], o T, same, remove func(other T) error,
) (T, bool, error) {
	for {
		other, added := t.Add(o)
		if added {
			return o, true, nil
		}
		err := same(other)
		if err != nil && other.creating().abandoned() {
			other.log().Info("requested again with another configuration, removing the first")
			if err = remove(other); err == nil || errdefs.IsNotFound(err) {
				continue
			}
		}
		return other, false, err
	}
}

// run builds the object or leaves nothing of it.
func (c *creation) run(e *Engine, caller context.Context, with construction) {
	err := with.operation(caller, func(ctx context.Context) error {
		c.active.Store(operation.FromContext(ctx))
		return c.try(e, ctx, with)
	})
	c.finish(err)
	if err == nil {
		c.discardUnclaimed(e, with)
	}
}

func (c *creation) try(e *Engine, caller context.Context, with construction) error {
	ctx, cancel := with.life.within(caller)
	defer cancel(nil)
	ctx, stop := withTimeout(ctx, e.cfg.Load().CreateTimeout, "creation took longer than %v")
	defer stop()
	if err := withCause(ctx, with.build(ctx)); err != nil {
		return with.discard(caller, err)
	}
	c.announce()
	with.created()
	return nil
}

// discardUnclaimed removes the object after UnclaimedTimeout if no caller has received its id by then.
func (c *creation) discardUnclaimed(e *Engine, with construction) {
	if c.claimed.Load() {
		return
	}
	e.work.Go(func() {
		if !sleep(e.life.ctx, e.cfg.Load().UnclaimedTimeout) || !c.abandoned() {
			return
		}
		with.log.Warnf("no caller asked for the %s again, removing it", with.what)
		if err := with.remove(e.life.ctx); err != nil && !errdefs.IsNotFound(err) {
			with.log.WithError(err).Errorf("failed to remove unclaimed %s", with.what)
		}
	})
}

// announce claims the object for the callers that wait for it, so that it is listed when its events are sent.
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

// await waits for the end of the creation and claims its result.
func (c *creation) await(ctx context.Context, what string) error {
	c.wait(+1)
	defer c.wait(-1)
	select {
	case <-c.done:
	case <-ctx.Done():
	}
	return c.result(ctx, what)
}

// settled waits for the end of the creation without claiming its result.
func (c *creation) settled(ctx context.Context) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *creation) wait(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting += n
}

// result is the answer for a caller that stopped waiting.
func (c *creation) result(ctx context.Context, what string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.done:
	default:
		return fmt.Errorf("%s is still being created (stage: %s); ask again with the same name to join: %w",
			what, c.stage(), context.Cause(ctx))
	}
	if c.err == nil {
		c.claimed.Store(true)
	}
	return c.err
}

// abandoned reports whether no caller has received the id or waits for it. The caller must then remove the object: it
// is claimed now, so that later callers see an object that is being removed.
func (c *creation) abandoned() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting == 0 && c.claimed.CompareAndSwap(false, true)
}

func (c *creation) stage() string {
	if active := c.active.Load(); active != nil {
		return cmp.Or(active.Snapshot().Stage(), "start")
	}
	return "start"
}

// adopt marks the creation of an object that was loaded from disk as finished and claimed.
func (c *creation) adopt() {
	c.claimed.Store(true)
	c.finish(nil)
}

// step is one named part of a creation; do is nil if it is not needed.
type step struct {
	name string
	do   func() error
}

// runSteps does the steps in order, up to the first that fails or the end of ctx.
func runSteps(ctx context.Context, steps []step) error {
	for _, s := range steps {
		if s.do == nil {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("before %s: %w", s.name, err)
		}
		operation.SetStage(ctx, s.name)
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return context.Cause(ctx)
}
