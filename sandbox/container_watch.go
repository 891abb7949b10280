package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/record"
)

// The reasons of an exited container that the kubelet knows.
const (
	reasonCompleted  = "Completed"
	reasonError      = "Error"
	reasonOOMKilled  = "OOMKilled"
	reasonStartError = "StartError"
	reasonUnknown    = "Unknown"
)

// watch waits in the background for the exit of c, and is the only writer of it.
func (e *Engine) watch(c *Container) {
	e.work.Go(func() {
		rt, err := c.pod.handler.Runtime()
		if err != nil {
			c.log().WithError(err).Error("failed to watch container")
			return
		}
		if exit, exited := waitExit(e.life.Context(), rt, c.ID, c.log(), &c.unmonitored); exited {
			e.exit(c, exit)
		}
	})
}

// waitRetry is the delay after a wait that failed; it doubles up to waitMaxRetry.
const (
	waitRetry    = 5 * time.Second
	waitMaxRetry = time.Minute
)

// waitExit returns the exit of a container, or false if ctx ended first. A wait that fails, for example for lack of
// file descriptors, is repeated: the container may still run. unmonitored is set while it runs without its monitor.
func waitExit(ctx context.Context, rt Runtime, id string, log logrus.FieldLogger, unmonitored *atomic.Bool) (
	exit oci.Exit, exited bool) {
	defer unmonitored.Store(false)
	for delay := waitRetry; ; delay = min(2*delay, waitMaxRetry) {
		exit, err := rt.Wait(ctx, id)
		switch {
		case ctx.Err() != nil:
			return oci.Exit{}, false
		case err == nil:
			return exit, true
		case errdefs.IsNotFound(err):
			return oci.Exit{Code: 255, At: time.Now()}, true
		case errors.Is(err, oci.ErrNoMonitor):
			unmonitored.Store(true)
			log.WithError(err).Warn("container is not monitored, create it again")
			continue
		}
		log.WithError(err).Error("failed to wait for container, trying again")
		lifecycle.Sleep(ctx, delay)
	}
}

// exit publishes the exit of c, and then deletes its runtime state. That has the exit file, so it is deleted only once
// the exit is in the record.
func (e *Engine) exit(c *Container, x oci.Exit) {
	if err := e.publishExit(c, x); err != nil {
		c.log().WithError(err).Error("failed to write the exit of the container, keeping its runtime state")
		return
	}
	e.releaseExited(e.life.Context(), c)
}

// releaseExited deletes the runtime state of an exited container.
func (e *Engine) releaseExited(ctx context.Context, c *Container) {
	err := undo(ctx, e, func(ctx context.Context) error {
		if err := c.slot.Acquire(ctx); err != nil {
			return fmt.Errorf("wait for another operation on the container: %w", err)
		}
		defer c.slot.Release()
		return e.deleteProcess(ctx, c.pod, c.ID, c.Status().Process)
	})
	if err != nil {
		c.log().WithError(err).Warn("failed to delete runtime state of exited container, removal will try again")
	}
}

func (e *Engine) publishExit(c *Container, x oci.Exit) error {
	start := c.startAttempt()
	var oomCause string
	if x.OOM && x.Code != 0 && start.err == nil && e.deps.OOMCause != nil {
		oomCause = e.deps.OOMCause(c.ID, c.pod.ID)
	}
	err := c.observe(record.ContainerExited, func(s *record.ContainerStatus) { describeExit(s, x, start, oomCause) })
	e.usage.DropContainer(c.ID)
	releaseImages(e, c)
	s := c.Status()
	c.log().WithField("code", s.ExitCode).WithField("reason", s.Reason).Info("container exited")
	if e.deps.Exited != nil {
		e.deps.Exited(s.Reason)
	}
	return err
}

// describeExit fills in the exited status.
func describeExit(s *record.ContainerStatus, x oci.Exit, start startAttempt, oomCause string) {
	if s.StartedAt.IsZero() {
		s.StartedAt = start.at
	}
	s.FinishedAt, s.ExitCode = x.At, x.Code
	if s.FinishedAt.Before(s.StartedAt) { // by the clock of a virtual machine's guest, which may say anything
		s.FinishedAt = s.StartedAt
	}
	switch {
	case start.err != nil:
		s.ExitCode, s.Reason, s.Message = startErrorCode, reasonStartError, start.err.Error()
	case s.Reason == reasonStartError: // see startFails
		s.ExitCode = startErrorCode
	case x.OOM && x.Code != 0:
		s.Reason, s.Message = reasonOOMKilled, oomCause
	case !x.Known:
		s.Reason, s.Message = reasonUnknown, "neither the monitor nor the kernel left an exit status"
	case x.Code == 0:
		s.Reason = reasonCompleted
	case x.Code == 128+int32(syscall.SIGSYS):
		s.Reason, s.Message = reasonError, "SIGSYS ended it or its child, the signal for system calls that seccomp forbids"
	default:
		s.Reason = reasonError
	}
	if s.Message == "" && s.Reason != reasonOOMKilled {
		s.Message = x.ReachedBefore()
	}
}
