package sandbox

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/convert"
	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
)

// killInterval is how often SIGKILL is repeated: a process that was forking may have escaped the first one.
const killInterval = time.Second

// StopContainer sends the stop signal, and SIGKILL once grace has passed. Several calls share one stop, and the
// shortest grace wins. It does not acquire the slot because it must overtake a stuck start. It is idempotent.
func (e *Engine) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	c, err := e.Container(id)
	if err != nil {
		return err
	}
	return e.stopContainer(ctx, c, grace)
}

// stopContainer returns once the exit of c is recorded. It cancels a creation in progress, which undoes itself.
func (e *Engine) stopContainer(ctx context.Context, c *Container, grace time.Duration) error {
	c.life.End(fmt.Errorf("container %s is being stopped", c.ID))
	select {
	case <-c.creation.Done():
	case <-ctx.Done():
		return fmt.Errorf("wait for the creation to be undone: %w", context.Cause(ctx))
	}
	end := e.killByDeadline
	switch c.Status().State {
	case record.ContainerExited:
		return nil
	case record.ContainerCreating:
		if _, err := e.Container(c.ID); err != nil {
			return nil // its creation was undone
		}
		end = func(ctx context.Context, c *Container, _ *lifecycle.Stop) error { // the undo failed
			return undo(ctx, e, func(ctx context.Context) error { return e.deleteProcess(ctx, c.pod, c.ID, oci.Process{}) })
		}
	case record.ContainerCreated:
		if c.startFails() {
			return e.publishExit(c, oci.Exit{At: time.Now()})
		}
		if c.awaitsRestore() {
			return stopUnrestored(ctx, e, c)
		}
		grace = 0 // its process is the runtime's own, waiting to be started
	}
	attempt, first := c.kill.Request(time.Now().Add(grace))
	if first && !e.work.Go(func() {
		c.kill.Finish(attempt, e.onContainer(ctx, operation.StopContainer, c, grace, func(ctx context.Context) error {
			return end(ctx, c, attempt)
		}))
	}) {
		c.kill.Finish(attempt, errClosing)
	}
	select {
	case <-c.exited:
		return nil
	case <-attempt.Done:
		return attempt.Err
	case <-ctx.Done():
		return fmt.Errorf("container %s has not stopped yet: %w", c.ID, context.Cause(ctx))
	}
}

// killByDeadline sends the stop signal, waits for the deadline, and then sends SIGKILL until the container has exited
// or KillTimeout has passed. It continues if the caller, whose context belongs to the operation, gives up.
func (e *Engine) killByDeadline(caller context.Context, c *Container, s *lifecycle.Stop) error {
	if deadline, _ := c.kill.At(s); time.Until(deadline) > 0 {
		operation.SetStage(caller, "signal")
		e.signal(c, convert.SignalNumber(c.StopSignal))
		operation.SetStage(caller, "grace period")
	}
	if !c.waitForDeadline(e.life.Context(), s) {
		return context.Cause(e.life.Context())
	}
	giveUp := time.After(e.cfg.Load().KillTimeout)
	again := time.NewTicker(killInterval)
	defer again.Stop()
	operation.SetStage(caller, "kill")
	for {
		e.signal(c, syscall.SIGKILL)
		select {
		case <-c.exited:
			return nil
		case <-again.C:
		case <-giveUp:
			operation.SetStage(caller, "delete by the runtime")
			if err := e.endByRuntime(c); err != nil {
				return fmt.Errorf("%w: container %s outlived SIGKILL by %v: %s: %w",
					context.DeadlineExceeded, c.ID, e.cfg.Load().KillTimeout, c.Status().Process.DescribeStuck(), err)
			}
			return nil
		case <-e.life.Context().Done():
			return context.Cause(e.life.Context())
		}
	}
}

// endByRuntime deletes a container that signals do not end: a paused one, or one whose monitor hangs and never reports
// the exit. It is the last resort because an exit that is not recorded yet is lost if podd dies.
func (e *Engine) endByRuntime(c *Container) error {
	return undo(e.life.Context(), e, func(ctx context.Context) error {
		if err := e.deleteProcess(ctx, c.pod, c.ID, c.Status().Process); err != nil {
			return err
		}
		select {
		case <-c.exited:
			return nil
		case <-e.life.Context().Done():
			return context.Cause(e.life.Context())
		case <-ctx.Done():
			return fmt.Errorf("wait for its exit to be recorded: %w", context.Cause(ctx))
		}
	})
}

// waitForDeadline returns true at the deadline of s or when the container has exited, false when ctx ended.
func (c *Container) waitForDeadline(ctx context.Context, s *lifecycle.Stop) bool {
	for {
		deadline, sooner := c.kill.At(s)
		timer := time.NewTimer(time.Until(deadline))
		select {
		case <-c.exited:
			timer.Stop()
			return true
		case <-timer.C:
			return true
		case <-sooner:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// signal logs errors and never fails the stop: the next signal or the exit follows.
func (e *Engine) signal(c *Container, sig syscall.Signal) {
	select {
	case <-c.exited:
		return
	default:
	}
	rt, err := c.pod.handler.Runtime()
	if err == nil {
		ctx, cancel := context.WithTimeout(e.life.Context(), e.cfg.Load().KillTimeout)
		defer cancel()
		err = rt.Signal(ctx, c.ID, sig)
	}
	if err != nil {
		c.log().WithError(err).WithField("signal", sig).Warn("failed to signal container")
	}
}

// stopContainers stops all containers of p in parallel.
func (e *Engine) stopContainers(ctx context.Context, p *Pod) error {
	containers := e.store.containersOf(p)
	errs := make(chan error, len(containers))
	for _, c := range containers {
		if !e.work.Go(func() { errs <- e.stopContainer(ctx, c, 0) }) {
			errs <- errClosing
		}
	}
	var all []error
	for range containers {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}
