package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// life bounds the time in which something may be built: it ends with its parent's or by end, with a cause.
type life struct {
	ctx context.Context
	end context.CancelCauseFunc
}

func newLife(parent life) life {
	ctx, end := context.WithCancelCause(parent.ctx)
	return life{ctx: ctx, end: end}
}

// within returns a context with parent's values that ends when l does, and not when parent does: the work continues
// after its caller has given up, because the caller will ask again.
func (l life) within(parent context.Context) (context.Context, context.CancelCauseFunc) {
	return l.withinExcept(parent, nil)
}

// withinExcept is within for work that is finished even when the life ends with the cause except.
func (l life) withinExcept(parent context.Context, except error) (context.Context, context.CancelCauseFunc) {
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

// undo calls f with a context that ends after timeout, and not when ctx does.
func undo(ctx context.Context, timeout time.Duration, f func(context.Context) error) error {
	ctx, cancel := withTimeout(context.WithoutCancel(ctx), timeout, "teardown took longer than %v")
	defer cancel()
	return f(ctx)
}

// withTimeout is context.WithTimeout with a cause that names what timed out, as format does with timeout.
func withTimeout(ctx context.Context, timeout time.Duration, format string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, timeout,
		fmt.Errorf("%s: %w", fmt.Sprintf(format, timeout), context.DeadlineExceeded))
}

// withCause adds the cause of the end of ctx to err, if ctx has ended.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// sleep waits for d, and returns false if ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
