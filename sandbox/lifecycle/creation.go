package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/sandbox/operation"
)

// Creation is the creation of a pod or container as its callers see it. It runs detached from them: a kubelet that gave
// up and asks again with the same name joins it and gets the same id. An object whose id no caller has received is
// unclaimed: it is not listed, and is discarded after a while.
type Creation struct {
	done    chan struct{} // closed at the end, err set before
	err     error
	active  atomic.Pointer[operation.Active]
	claimed atomic.Bool

	mu      sync.Mutex // orders the end, claims, and callers that give up
	waiting int        // callers in Await
}

// NewCreation returns a creation that has not begun.
func NewCreation() *Creation { return &Creation{done: make(chan struct{})} }

// Plan is how an object is made.
type Plan struct {
	// What names the kind of object in messages.
	What string
	Log  logrus.FieldLogger
	// Life is the object's; the creation ends with it.
	Life Lifetime
	// Timeout bounds the creation.
	Timeout time.Duration
	// Unclaimed is how long the object waits for a caller.
	Unclaimed time.Duration
	// Work runs the wait, which ends with Daemon.
	Work   *Work
	Daemon context.Context
	// Operation runs do as the operation of the creation.
	Operation func(ctx context.Context, do func(context.Context) error) error
	Build     func(context.Context) error
	// Discard undoes Build after a failure and returns cause.
	Discard func(ctx context.Context, cause error) error
	// Created is called when Build has succeeded, before any caller receives the id.
	Created func()
	Remove  func(context.Context) error
}

// Object is a pod or container.
type Object interface {
	comparable
	Creation() *Creation
}

// Register adds o to t and returns true, or returns the object that has its name, with the error of same. If that
// object differs and is unclaimed, because the kubelet changed the config before the answer, no caller can remove it:
// Register does, and adds o.
func Register[K comparable, T Object](
	t *Table[K, T], o T, same, remove func(other T) error,
) (T, bool, error) {
	for {
		other, added := t.Add(o)
		if added {
			return o, true, nil
		}
		err := same(other)
		if err != nil && other.Creation().Abandoned() {
			if err = remove(other); err == nil || errdefs.IsNotFound(err) {
				continue
			}
		}
		return other, false, err
	}
}

// Run builds the object or leaves nothing of it. Values of caller are passed on, its end is not.
func (c *Creation) Run(caller context.Context, plan Plan) {
	err := plan.Operation(caller, func(ctx context.Context) error {
		c.active.Store(operation.FromContext(ctx))
		return c.try(ctx, plan)
	})
	c.Finish(err)
	if err == nil {
		c.discardUnclaimed(plan)
	}
}

func (c *Creation) try(caller context.Context, plan Plan) error {
	ctx, cancel := plan.Life.Within(caller)
	defer cancel(nil)
	ctx, stop := WithTimeout(ctx, plan.Timeout, "creation took longer than %v")
	defer stop()
	if err := WithCause(ctx, plan.Build(ctx)); err != nil {
		return plan.Discard(caller, err)
	}
	c.announce()
	plan.Created()
	return nil
}

// discardUnclaimed removes the object later if no caller has received its id by then.
func (c *Creation) discardUnclaimed(plan Plan) {
	if c.Claimed() {
		return
	}
	plan.Work.Go(func() {
		if !Sleep(plan.Daemon, plan.Unclaimed) || !c.Abandoned() {
			return
		}
		plan.Log.Warnf("no caller asked for the %s again, removing it", plan.What)
		if err := plan.Remove(plan.Daemon); err != nil && !errdefs.IsNotFound(err) {
			plan.Log.WithError(err).Errorf("failed to remove unclaimed %s", plan.What)
		}
	})
}

// announce claims the object for the callers that wait for it, so that it is listed when its events are sent.
func (c *Creation) announce() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting > 0 {
		c.Claim()
	}
}

// Finish ends the creation, with the error that it failed with.
func (c *Creation) Finish(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	c.active.Store(nil) // it holds the context of the call, and so all that gRPC keeps for one
	close(c.done)
}

// Done is closed at the end of the creation.
func (c *Creation) Done() <-chan struct{} { return c.done }

// Claim notes that a caller has received the id.
func (c *Creation) Claim() { c.claimed.Store(true) }

// Claimed reports whether a caller has received the id.
func (c *Creation) Claimed() bool { return c.claimed.Load() }

// Await waits for the end of the creation and claims its result. what names the object in its error.
func (c *Creation) Await(ctx context.Context, what string) error {
	c.wait(+1)
	defer c.wait(-1)
	select {
	case <-c.done:
	case <-ctx.Done():
	}
	return c.result(ctx, what)
}

// Settled waits for the end of the creation without claiming its result.
func (c *Creation) Settled(ctx context.Context) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Creation) wait(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting += n
}

// result is the answer for a caller that stopped waiting.
func (c *Creation) result(ctx context.Context, what string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.done:
	default:
		return fmt.Errorf("%s is still being created (stage: %s); ask again with the same name to join: %w",
			what, c.stage(), context.Cause(ctx))
	}
	if c.err == nil {
		c.Claim()
	}
	return c.err
}

// Abandoned reports whether no caller has received the id or waits for it. The caller must then remove the object: it
// is claimed now, so that later callers see an object that is being removed.
func (c *Creation) Abandoned() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting == 0 && c.claimed.CompareAndSwap(false, true)
}

func (c *Creation) stage() string {
	if active := c.active.Load(); active != nil {
		return cmp.Or(active.Snapshot().Stage(), "start")
	}
	return "start"
}

// Adopt marks the creation of an object that was loaded from disk as finished and claimed.
func (c *Creation) Adopt() {
	c.Claim()
	c.Finish(nil)
}
