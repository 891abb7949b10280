package driver

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
)

const (
	// ProbeTimeout bounds a probe that ProbeCache.Get starts.
	ProbeTimeout = 10 * time.Second
	// probeGrace is how long a probe may outlive its context: killing a program takes time.
	probeGrace = 3 * time.Second
	// probeRetry is how long a failed probe is cached.
	probeRetry = 5 * time.Second
	// probePatience is how long Get waits for the probe that follows a failed one, which normally takes milliseconds.
	probePatience = 500 * time.Millisecond
)

// ProbeCache caches the features of a handler, of type T, and the error of the probe. It is safe for concurrent use.
type ProbeCache[T any] struct {
	name     string
	defaults T
	probe    func(context.Context) (T, error)

	mu   sync.Mutex
	last probeResult[T]
	// running is closed when the probe under way is done; nil if there is none.
	running chan struct{}
}

// probeResult is the result of a probe that began and ended at these times; at is zero if there was none.
//
// hurried counts the last probes in a row that ran out of time, without asking for everything: a feature that a busy
// machine did not report while it booted must not be missing until podd restarts.
type probeResult[T any] struct {
	value     T
	err       error
	began, at time.Time
	hurried   int
}

// due reports whether to probe: the first hurried probe is repeated at once, a failed one and others some time later.
func (r probeResult[T]) due() bool {
	return r.at.IsZero() || r.hurried == 1 || (r.err != nil || r.hurried > 0) && time.Since(r.at) > probeRetry
}

// NewProbeCache returns the cache of the handler of that name. It starts no probe. defaults is returned before the
// first probe. Features that probe returns with an error are cached, too.
func NewProbeCache[T any](name string, defaults T, probe func(context.Context) (T, error)) *ProbeCache[T] {
	return &ProbeCache[T]{name: name, defaults: defaults, probe: probe}
}

// Probe probes, and caches the result for Get.
func (c *ProbeCache[T]) Probe(ctx context.Context) error {
	return c.runProbe(ctx)
}

// Get returns the last result. It probes first if there is none, or if the last one failed some time ago, so that
// installing a missing program is enough. It waits for the latter for probePatience only: a program that hangs must not
// delay reports of the node's status. It also waits for the first repetition of a hurried probe, not for later ones.
// The error is errdefs.ErrUnavailable before the first result.
func (c *ProbeCache[T]) Get() (T, error) {
	c.mu.Lock()
	last, running := c.last, c.running
	if running == nil && last.due() {
		running = make(chan struct{})
		c.running = running
		go c.probeAgain(running)
	}
	c.mu.Unlock()
	known := !last.at.IsZero()
	if running == nil || known && last.err == nil && last.hurried != 1 {
		return last.value, last.err
	}
	limit := ProbeTimeout + probeGrace
	if last.err != nil {
		limit = probePatience
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-running:
	case <-timer.C:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.at.IsZero() {
		return c.defaults, fmt.Errorf("handler %s was not probed yet: %w", c.name, errdefs.ErrUnavailable)
	}
	return c.last.value, c.last.err
}

// probeAgain probes and closes done.
func (c *ProbeCache[T]) probeAgain(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), ProbeTimeout)
	defer cancel()
	_ = c.runProbe(ctx) // it is kept
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = nil
	close(done)
}

// runProbe probes and keeps the result, unless it says less than the last one or began before that one.
func (c *ProbeCache[T]) runProbe(ctx context.Context) error {
	r := probeResult[T]{began: time.Now()}
	value, err := c.probe(ctx)
	r.value, r.err, r.at = value, err, time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil {
		r.hurried = c.last.hurried + 1
	}
	complete := !c.last.at.IsZero() && c.last.hurried == 0
	if complete && (r.hurried > 0 && c.last.err == nil || r.began.Before(c.last.began)) {
		return err
	}
	if r.hurried > 1 && err != nil && c.last.err == nil {
		r.value, r.err = c.last.value, nil // a busy machine, not a missing program
	}
	c.last = r
	return err
}
