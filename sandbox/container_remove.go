package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/operation"
)

// RemoveContainer kills the container if necessary and removes it. If it fails the container still exists and can be
// removed again. The log of a container that was started stays: it belongs to the kubelet.
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

// removeContainer deletes c, which no longer runs, unless another call has done it.
func (e *Engine) removeContainer(ctx context.Context, c *Container) error {
	if err := c.slot.Acquire(ctx); err != nil {
		return fmt.Errorf("wait for another operation on the container: %w", err)
	}
	defer c.slot.Release()
	if _, err := e.Container(c.ID); err != nil {
		return nil // another container may have its labels by now
	}
	return undo(ctx, e, func(ctx context.Context) error { return e.deleteContainer(ctx, c) })
}

// deleteContainer tears c down and removes its record. It needs c.slot, or a c that is not listed.
func (e *Engine) deleteContainer(ctx context.Context, c *Container) error {
	if err := e.teardownContainer(ctx, c); err != nil {
		return err
	}
	c.removeUnusedLog(e.store.containersOf(c.pod))
	operation.SetStage(ctx, "remove record")
	if err := e.deps.Records.Remove(filepath.Dir(c.dir), c.ID); err != nil {
		return err
	}
	e.forgetContainer(c)
	c.post(lifecycle.Deleted)
	return nil
}

// removeUnusedLog removes the empty log of a container that was never started: the kubelet counts logs as restarts. It
// leaves one that another container of the pod has, too: after a restart a creation may be repeated before its undo.
func (c *Container) removeUnusedLog(siblings []*Container) {
	path := c.View().LogPath()
	shared := func(o *Container) bool { return o != c && o.View().LogPath() == path }
	if !c.Status().StartedAt.IsZero() || path == "" || slices.ContainsFunc(siblings, shared) {
		return
	}
	if err := c.LogFile().RemoveEmpty(); err != nil {
		c.log().WithError(err).Warn("failed to remove the empty log of a container")
	}
}

// teardownContainer is the only undo of buildContainer. It needs only the record and may be repeated.
func (e *Engine) teardownContainer(ctx context.Context, c *Container) error {
	operation.SetStage(ctx, "delete container")
	if err := e.deleteProcess(ctx, c.pod, c.ID, c.Status().Process); err != nil {
		return fmt.Errorf("delete container: %w", err) // its root filesystem may still be in use
	}
	operation.SetStage(ctx, "release root filesystem")
	if err := e.deps.Images.Release(ctx, c.ID); err != nil {
		return fmt.Errorf("release root filesystem: %w", err)
	}
	return nil
}

// deleteProcess deletes the container of that id by the pod's handler, and kills its first process if that has lost it.
// A handler that is no longer configured does not keep a pod from being removed if no bundle is left.
func (e *Engine) deleteProcess(ctx context.Context, p *Pod, id string, first oci.Process) error {
	rt, err := p.handler.Runtime()
	if err == nil {
		err = rt.Delete(ctx, id)
	} else if _, lerr := os.Lstat(e.paths.Bundle(id)); errors.Is(lerr, fs.ErrNotExist) {
		err = nil
	}
	if err != nil || p.BootID != e.node.BootID || p.OwnKernel && id != p.ID { // which may share a process
		return err
	}
	return first.Kill(ctx)
}
