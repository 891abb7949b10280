package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Lifetime bounds the time in which something may be built. It ends with its parent's or by End, with a cause.
type Lifetime struct {
	ctx context.Context
	end context.CancelCauseFunc
}

// NewLifetime returns a lifetime within that of parent.
func NewLifetime(parent context.Context) Lifetime {
	ctx, end := context.WithCancelCause(parent)
	return Lifetime{ctx: ctx, end: end}
}

// Context ends with the lifetime.
func (l Lifetime) Context() context.Context { return l.ctx }

// End ends the lifetime. The first cause counts.
func (l Lifetime) End(cause error) { l.end(cause) }

// Within returns a context with parent's values that ends when l does, and not when parent does: the work continues
// after its caller has given up, because the caller will ask again.
func (l Lifetime) Within(parent context.Context) (context.Context, context.CancelCauseFunc) {
	return l.WithinExcept(parent, nil)
}

// WithinExcept is Within for work that is finished even when the life ends with the cause except.
func (l Lifetime) WithinExcept(parent context.Context, except error) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	stop := context.AfterFunc(l.ctx, func() {
		if cause := context.Cause(l.ctx); except == nil || !errors.Is(cause, except) {
			cancel(cause)
		}
	})
	return ctx, func(cause error) {
		stop()
		cancel(cause)
	}
}

// Undo calls f with a context that ends after timeout, and not when ctx does.
func Undo(ctx context.Context, timeout time.Duration, f func(context.Context) error) error {
	ctx, cancel := WithTimeout(context.WithoutCancel(ctx), timeout, "teardown took longer than %v")
	defer cancel()
	return f(ctx)
}

// WithTimeout is context.WithTimeout with a cause that names what timed out, as format does with timeout.
func WithTimeout(ctx context.Context, timeout time.Duration, format string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, timeout,
		fmt.Errorf("%s: %w", fmt.Sprintf(format, timeout), context.DeadlineExceeded))
}

// WithCause adds the cause of the end of ctx to err, if ctx has ended.
func WithCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// Sleep waits for d, and returns false if ctx ended before.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
