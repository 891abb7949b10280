package sandbox

import (
	"context"
	"errors"
)

// life is the time in which something may be built: it ends with its parent's or by end, with a cause.
type life struct {
	ctx context.Context
	end context.CancelCauseFunc
}

func newLife(parent life) life {
	ctx, end := context.WithCancelCause(parent.ctx)
	return life{ctx: ctx, end: end}
}

// within returns a context with parent's values that ends when l does, and not when parent does: the work outlives
// the caller who asked for it, because the caller will ask again.
func (l life) within(parent context.Context) (context.Context, context.CancelCauseFunc) {
	return l.withinBut(parent, nil)
}

// withinBut is within for work that is finished even when the life ends by except.
func (l life) withinBut(parent context.Context, except error) (context.Context, context.CancelCauseFunc) {
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
