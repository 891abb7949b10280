// Package probe keeps what a handler's programs have said of themselves. It decides when they are asked again and how
// long somebody waits for the answer; what is asked is the business of the handlers, packages oci and oci/shim, which
// are its only callers.
package probe

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
)

const (
	// Timeout bounds one question that nobody else bounds.
	Timeout = 10 * time.Second
	// grace is how long a question may outlive its context: a killed program takes its time.
	grace = 3 * time.Second
	// again is how long a bad answer is believed.
	again = 5 * time.Second
	// patience is how long the successor of a bad answer, which takes milliseconds, is waited for.
	patience = 500 * time.Millisecond
)

// Cache is the last answer to a question, of type T, and the error that came with it. Safe for concurrent use.
type Cache[T any] struct {
	name    string
	certain T
	ask     func(context.Context) (T, error)

	mu   sync.Mutex
	last answer[T]
	// asking is closed when the question under way has been answered; nil when there is none.
	asking chan struct{}
}

// answer is what was said, and when; at is zero when nothing was.
type answer[T any] struct {
	said T
	err  error
	at   time.Time
}

// New returns the cache for the handler of that name. It asks nothing yet. Certain is what is known of a handler that has
// not answered. What ask returns with an error is kept, too.
func New[T any](name string, certain T, ask func(context.Context) (T, error)) *Cache[T] {
	return &Cache[T]{name: name, certain: certain, ask: ask}
}

// Ask asks, and keeps the answer for Get.
func (c *Cache[T]) Ask(ctx context.Context) error {
	a := c.answer(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = a
	return a.err
}

// Get is the last answer, or a new one when there is none or it was bad, some seconds ago: installing what is missing is
// enough. Of a bad one, the new answer is waited for a moment only: a program that hangs must not hold up whoever asks
// how the node is. The error is errdefs.ErrUnavailable while there is no answer.
func (c *Cache[T]) Get() (T, error) {
	c.mu.Lock()
	last, asking := c.last, c.asking
	if asking == nil && (last.at.IsZero() || last.err != nil && time.Since(last.at) > again) {
		asking = make(chan struct{})
		c.asking = asking
		go c.anew(asking)
	}
	c.mu.Unlock()
	known := !last.at.IsZero()
	if asking == nil || known && last.err == nil {
		return last.said, last.err
	}
	limit := Timeout + grace
	if known {
		limit = patience
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
func (c *Cache[T]) anew(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	a := c.answer(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.asking = a, nil
	close(done)
}

func (c *Cache[T]) answer(ctx context.Context) answer[T] {
	said, err := c.ask(ctx)
	return answer[T]{said, err, time.Now()}
}
