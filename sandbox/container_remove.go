package sandbox

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/sandbox/operation"
)

// RemoveContainer kills the container if need be and removes it. When it fails the container is still there and
// can be removed again. Its log file stays: it belongs to the kubelet.
func (e *Engine) RemoveContainer(ctx context.Context, id string) error {
	c, err := e.Container(id)
	if err != nil {
		return err
	}
	return e.onContainer(ctx, operation.RemoveContainer, c, 0, func(ctx context.Context) error {
		operation.SetStage(ctx, "stop")
		if err := e.stopContainer(ctx, c, 0); err != nil {
			return fmt.Errorf("stop container: %w", err)
		}
		operation.SetStage(ctx, "wait for another operation")
		return e.removeContainer(ctx, c)
	})
}

// removeContainer deletes c, which does not run any more, unless somebody else is faster.
func (e *Engine) removeContainer(ctx context.Context, c *Container) error {
	if err := c.op.take(ctx); err != nil {
		return fmt.Errorf("wait for another operation on the container: %w", err)
	}
	defer c.op.release()
	if _, err := e.Container(c.ID); err != nil {
		return nil // its labels, too, may be somebody else's by now
	}
	return e.undo(ctx, func(ctx context.Context) error { return e.deleteContainer(ctx, c) })
}

// deleteContainer tears c down and forgets it. It needs c.op, or that nobody else knows c.
func (e *Engine) deleteContainer(ctx context.Context, c *Container) error {
	if err := e.teardownContainer(ctx, c); err != nil {
		return err
	}
	operation.SetStage(ctx, "remove record")
	if err := checkpoint.Remove(filepath.Dir(c.dir), c.ID); err != nil {
		return err
	}
	c.releaseLabels()
	e.store.removeContainer(c)
	e.postContainer(c, EventDeleted)
	return nil
}

// teardownContainer is the only undo of buildContainer. It needs the record alone and may be repeated.
func (e *Engine) teardownContainer(ctx context.Context, c *Container) error {
	operation.SetStage(ctx, "delete container")
	if err := e.deleteProcess(ctx, c.pod, c.ID); err != nil {
		return fmt.Errorf("delete container: %w", err) // its root filesystem may be in use still
	}
	operation.SetStage(ctx, "release root filesystem")
	if err := e.Images.Release(ctx, c.ID); err != nil {
		return fmt.Errorf("release root filesystem: %w", err)
	}
	return nil
}
