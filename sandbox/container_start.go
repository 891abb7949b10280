package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
)

// startErrorCode is the exit code of a container that could not be started, as in Docker.
const startErrorCode = 128

// StartContainer starts a created container. The start continues if its caller gives up. A container that cannot be
// started is exited afterwards, with reason StartError.
func (e *Engine) StartContainer(ctx context.Context, id string) error {
	c, err := e.Container(id)
	if err != nil {
		return err
	}
	if err := c.slot.Acquire(ctx); err != nil {
		return fmt.Errorf("wait for another operation on the container: %w", err)
	}
	done := make(chan error, 1)
	if !e.work.Go(func() {
		defer c.slot.Release()
		done <- e.onContainer(ctx, operation.StartContainer, c, 0, func(ctx context.Context) error {
			return e.startContainer(ctx, c)
		})
	}) {
		c.slot.Release()
		return errClosing
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("container is still being started: %w", context.Cause(ctx))
	}
}

// startContainer needs c.slot.
func (e *Engine) startContainer(caller context.Context, c *Container) error {
	if s := c.Status(); s.State != record.ContainerCreated {
		return fmt.Errorf("%w: container %s is %s, only a created one can be started",
			errdefs.ErrFailedPrecondition, c.ID, s.State)
	}
	if c.startFails() {
		return errors.Join(fmt.Errorf("start container: %w: %s", oci.ErrCommand, c.Status().Message),
			e.publishExit(c, oci.Exit{At: time.Now()}))
	}
	rt, err := c.pod.handler.Runtime()
	if err != nil {
		return err
	}
	// A daemon that stops does not cancel a start: the container would have to be killed.
	ctx, cancel := c.life.WithinExcept(caller, errClosing)
	defer cancel(nil)
	limit := e.cfg.Load().startTimeout() + c.restoreTime(e.paths)
	ctx, stop := lifecycle.WithTimeout(ctx, limit, "start took longer than %v")
	defer stop()

	at := time.Now()
	c.beginStart(at)
	operation.SetStage(ctx, "plugins")
	err = e.deps.Plugins.Start(ctx, c.View())
	process, restored := c.Status().Process, c.awaitsRestore()
	if err == nil {
		operation.SetStage(ctx, "start")
		err = rt.Start(ctx, c.ID)
	}
	if err == nil && restored {
		process, err = restoredProcess(ctx, rt, c.ID)
	}
	if err := lifecycle.WithCause(ctx, err); err != nil {
		return e.abandonStart(caller, c, err)
	}
	operation.SetStage(ctx, "record")
	err = c.advance(record.ContainerRunning, func(s *record.ContainerStatus) { s.StartedAt, s.Process = at, process })
	releaseImages(e, c)
	if err == nil && restored {
		e.watch(c)
	}
	if c.Status().State == record.ContainerExited {
		return nil // it ran, and its exit was recorded before this line
	}
	if err != nil {
		return e.abandonStart(caller, c, err)
	}
	return nil
}

// abandonStart stops a container that could not be started, so that it is exited.
func (e *Engine) abandonStart(ctx context.Context, c *Container, cause error) error {
	c.failStart(cause)
	operation.SetStage(ctx, "stop")
	err := undo(ctx, e, func(ctx context.Context) error {
		if !c.awaitsRestore() {
			return e.stopContainer(ctx, c, 0)
		}
		err := e.deleteProcess(ctx, c.pod, c.ID, oci.Process{}) // nothing watches it yet
		return errors.Join(err, e.publishExit(c, oci.Exit{At: time.Now()}))
	})
	return errors.Join(fmt.Errorf("start container: %w", cause), err)
}
