// Package probe keeps what a handler's programs have said of themselves. It decides when they are asked again and how
// long somebody waits for the answer; what is asked is the business of the handlers, packages oci and oci/shim, which
// are its only callers.
package driver

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
)

const (
	// Timeout bounds one question that nobody else bounds.
	ProbeTimeout = 10 * time.Second
	// grace is how long a question may outlive its context: a killed program takes its time.
	probeGrace = 3 * time.Second
	// again is how long a bad answer is believed.
	probeRetry = 5 * time.Second
	// patience is how long the successor of a bad answer, which takes milliseconds, is waited for.
	probePatience = 500 * time.Millisecond
)

// Cache is the last answer to a question, of type T, and the error that came with it. Safe for concurrent use.
type ProbeCache[T any] struct {
	name    string
	certain T
	ask     func(context.Context) (T, error)

	mu   sync.Mutex
	last probeResult[T]
	// asking is closed when the question under way has been answered; nil when there is none.
	asking chan struct{}
}

// answer is what was said, and when; at is zero when nothing was.
type probeResult[T any] struct {
	said T
	err  error
	at   time.Time
}

// New returns the cache for the handler of that name. It asks nothing yet. Certain is what is known of a handler that has
// not answered. What ask returns with an error is kept, too.
func NewProbeCache[T any](name string, certain T, ask func(context.Context) (T, error)) *ProbeCache[T] {
	return &ProbeCache[T]{name: name, certain: certain, ask: ask}
}

// Ask asks, and keeps the answer for Get.
func (c *ProbeCache[T]) Ask(ctx context.Context) error {
	a := c.answer(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = a
	return a.err
}

// Get is the last answer, or a new one when there is none or it was bad, some seconds ago: installing what is missing is
// enough. Of a bad one, the new answer is waited for a moment only: a program that hangs must not hold up whoever asks
// how the node is. The error is errdefs.ErrUnavailable while there is no answer.
func (c *ProbeCache[T]) Get() (T, error) {
	c.mu.Lock()
	last, asking := c.last, c.asking
	if asking == nil && (last.at.IsZero() || last.err != nil && time.Since(last.at) > probeRetry) {
		asking = make(chan struct{})
		c.asking = asking
		go c.anew(asking)
	}
	c.mu.Unlock()
	known := !last.at.IsZero()
	if asking == nil || known && last.err == nil {
		return last.said, last.err
	}
	limit := ProbeTimeout + probeGrace
	if known {
		limit = probePatience
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-asking:
	case <-timer.C:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.at.IsZero() {
		return c.certain, fmt.Errorf("handler %s has not answered yet: %w", c.name, errdefs.ErrUnavailable)
	}
	return c.last.said, c.last.err
}

// anew asks and closes done.
func (c *ProbeCache[T]) anew(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), ProbeTimeout)
	defer cancel()
	a := c.answer(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.asking = a, nil
	close(done)
}

func (c *ProbeCache[T]) answer(ctx context.Context) probeResult[T] {
	said, err := c.ask(ctx)
	return probeResult[T]{said, err, time.Now()}
}
