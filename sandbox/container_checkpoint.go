package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/sandbox/archive"
	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/snapshot"
)

// CheckpointContainer saves a running container in a new file at location, see package archive. It runs again
// afterwards. Starts, updates and the removal of the container wait; a stop ends the checkpoint. A timeout of 0 is that
// of the configuration.
func (e *Engine) CheckpointContainer(ctx context.Context, id, location string, timeout time.Duration) error {
	c, rt, err := e.running(id)
	if err != nil {
		return err
	}
	dumper, ok := rt.(oci.Dumper)
	if !ok {
		return fmt.Errorf("%w: runtime handler %q cannot checkpoint containers: that needs a handler of type oci with runc",
			errdefs.ErrNotImplemented, c.pod.Handler)
	}
	if err := e.resolver.Answers(ctx, filepath.Dir(location)); err != nil { // see CheckpointPod
		return fmt.Errorf("location: %w", err)
	}
	if err := c.slot.Acquire(ctx); err != nil {
		return fmt.Errorf("wait for another operation on the container: %w", err)
	}
	release := sync.OnceFunc(c.slot.Release)
	defer release()
	turn, err := e.deps.Budgets.Checkpoints.Wait(ctx, c.pod.ID, 1)
	if err != nil {
		return err
	}
	defer turn.Release()
	return e.onContainer(ctx, operation.CheckpointContainer, c, 0, func(ctx context.Context) error {
		limit := cmp.Or(timeout, e.cfg.Load().CheckpointTimeout)
		ctx, cancel := lifecycle.WithTimeout(ctx, limit, "the checkpoint took longer than %v")
		defer cancel()
		defer context.AfterFunc(c.life.Context(), cancel)()
		operation.SetStage(ctx, "save")
		return lifecycle.WithCause(c.life.Context(), archive.Save(ctx, archive.Request{
			Location: location, Staging: snapshot.Staging(e.paths.Pods()),
			Spec: filepath.Join(e.paths.Bundle(c.ID), "config.json"),
			Config: archive.Config{
				ID: c.ID, Name: c.Config.GetMetadata().GetName(), Image: spec.ImageName(c.Config.GetImage()), ImageRef: c.ImageID,
				ImageName: spec.ImageName(c.Config.GetImage()), Runtime: c.pod.Handler, CreatedAt: c.CreatedAt,
			},
			Dump: func(ctx context.Context, d oci.Dumped, frozen func(context.Context) error) error {
				defer release() // the container runs again: it does not wait for the volume of the archive
				unmark, err := c.mark().Set()
				if err != nil {
					return err
				}
				defer unmark()
				return dumper.Dump(ctx, []oci.Dumped{d}, frozen)
			},
			Diff: func(ctx context.Context, w io.Writer) error { return e.deps.Images.Diff(ctx, c.ID, w) },
			Shm:  c.pod.shm(e.files),
			Omit: func(err error) { c.log().WithError(err).Warn("the archive of a container is without /dev/shm") },
		}))
	})
}

func (c *Container) mark() snapshot.Mark { return snapshot.MarkOf(c.dir) }

// endCheckpoint undoes a checkpoint of c during which podd was killed.
func endCheckpoint(ctx context.Context, c *Container) {
	err := c.mark().Clear(func() error {
		rt, err := c.pod.handler.Runtime()
		if dumper, ok := rt.(oci.Dumper); err == nil && ok {
			err = dumper.Thaw(ctx, c.ID)
		}
		return err
	})
	if err != nil {
		c.log().WithError(err).Error("failed to undo the checkpoint of a container that a podd was killed in")
	}
}
