package driver

import (
	"context"
	"errors"
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

// ErrIncomplete is the error of a probe that had no time to ask for everything. Its value is used, and the probe is
// repeated later: a feature that a busy machine did not report while it booted must not be missing until podd restarts.
var ErrIncomplete = errors.New("the probe took too long")

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

// probeResult is the result of a probe; at is zero if there was none. If again is true, the probe was incomplete.
type probeResult[T any] struct {
	value T
	err   error
	at    time.Time
	again bool
}

// NewProbeCache returns the cache of the handler of that name. It starts no probe. defaults is returned before the
// first probe. Features that probe returns with an error are cached, too.
func NewProbeCache[T any](name string, defaults T, probe func(context.Context) (T, error)) *ProbeCache[T] {
	return &ProbeCache[T]{name: name, defaults: defaults, probe: probe}
}

// Probe probes, and caches the result for Get.
func (c *ProbeCache[T]) Probe(ctx context.Context) error {
	result := c.runProbe(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = result
	return result.err
}

// Get returns the last result. It probes first if there is none, or if the last one failed some time ago, so that
// installing a missing program is enough. It waits for the latter for probePatience only: a program that hangs must not
// delay reports of the node's status. An incomplete probe is repeated without waiting for it. The error is
// errdefs.ErrUnavailable before the first result.
func (c *ProbeCache[T]) Get() (T, error) {
	c.mu.Lock()
	last, running := c.last, c.running
	if running == nil && (last.at.IsZero() || (last.err != nil || last.again) && time.Since(last.at) > probeRetry) {
		running = make(chan struct{})
		c.running = running
		go c.probeAgain(running)
	}
	c.mu.Unlock()
	known := !last.at.IsZero()
	if running == nil || known && last.err == nil {
		return last.value, last.err
	}
	limit := ProbeTimeout + probeGrace
	if known {
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
	result := c.runProbe(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.running = result, nil
	close(done)
}

func (c *ProbeCache[T]) runProbe(ctx context.Context) probeResult[T] {
	value, err := c.probe(ctx)
	if errors.Is(err, ErrIncomplete) {
		return probeResult[T]{value: value, at: time.Now(), again: true}
	}
	return probeResult[T]{value: value, err: err, at: time.Now()}
}
