package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/operation"
)

// RemovePod stops the pod if necessary, and removes its containers and then its record. If it fails the pod still
// exists and can be removed again.
func (e *Engine) RemovePod(ctx context.Context, id string) error {
	return e.onStopOf(ctx, id, operation.RemovePod, func(ctx context.Context, p *Pod) error {
		if err := e.stopPod(ctx, p); err != nil {
			return fmt.Errorf("stop pod sandbox: %w", err)
		}
		if _, err := e.Pod(p.ID); err != nil {
			return nil // its creation was undone, or another call removed it
		}
		return undo(ctx, e, func(ctx context.Context) error { return e.deletePod(ctx, p) })
	})
}

// deletePod tears p down and removes its record. It needs p.slot, or a p that is not listed.
func (e *Engine) deletePod(ctx context.Context, p *Pod) error {
	if err := e.teardownPod(ctx, p); err != nil {
		return err
	}
	var errs []error
	for _, c := range e.store.containersOf(p) {
		errs = append(errs, e.removeContainer(ctx, c))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	operation.SetStage(ctx, "remove record")
	if err := e.deps.Records.Remove(e.paths.Pods(), p.ID); err != nil {
		return err
	}
	e.recovery.unread.RemovePod(p.ID)
	e.forgetPod(p)
	p.post(lifecycle.Deleted)
	return nil
}
