package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/oci/spec/host"
	"github.com/podd-project/podd/sandbox/operation"
)

// RemovePod stops the pod if need be, removes its containers and then its record. When it fails the pod is still
// there and can be removed again.
func (e *Engine) RemovePod(ctx context.Context, id string) error {
	p, err := e.Pod(id)
	if err != nil {
		return err
	}
	if err := p.op.take(ctx); err != nil {
		return fmt.Errorf("wait for another stop of the pod sandbox: %w", err)
	}
	defer p.op.release()
	return e.onPod(ctx, operation.RemovePod, p, func(ctx context.Context) error {
		if err := e.stopPod(ctx, p); err != nil {
			return fmt.Errorf("stop pod sandbox: %w", err)
		}
		if _, err := e.Pod(p.ID); err != nil {
			return nil // its creation was undone, or somebody else has removed it
		}
		return e.undo(ctx, func(ctx context.Context) error { return e.deletePod(ctx, p) })
	})
}

// deletePod tears p down and forgets it. It needs p.op, or that nobody else knows p.
func (e *Engine) deletePod(ctx context.Context, p *Pod) error {
	if err := e.teardownPod(ctx, p); err != nil {
		return err
	}
	var errs []error
	for _, c := range e.store.containerList(p) {
		errs = append(errs, e.removeContainer(ctx, c))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	operation.SetStage(ctx, "remove record")
	if err := checkpoint.Remove(e.podsDir(), p.ID); err != nil {
		return err
	}
	e.unread.forget(p)
	host.ReleaseLabels(p.Labels)
	e.store.removePod(p)
	e.postPod(p, EventDeleted)
	return nil
}

// removePodRunDir removes <run>/pods/<pod>, which holds plain files only once everything in it is unmounted.
func (e *Engine) removePodRunDir(id string) error {
	if err := os.RemoveAll(e.podRunDir(id)); err != nil {
		return fmt.Errorf("remove pod files: %w", err)
	}
	return nil
}
