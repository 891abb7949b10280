package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
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

// watch waits for c to end and is the only writer of its exit.
func (e *Engine) watch(c *Container) {
	e.work.Go(func() {
		rt, err := e.runtimeOf(c.pod)
		if err != nil {
			e.containerLog(c).WithError(err).Error("container cannot be watched")
			return
		}
		if exit, ended := e.waitForEnd(e.life.ctx, rt, c.ID); ended {
			e.exit(c, exit)
		}
	})
}

// waitRetry is how long a wait that failed is let be, twice as long each time, up to waitRest.
const (
	waitRetry = 5 * time.Second
	waitRest  = time.Minute
)

// waitForEnd returns how a container ended, or false when ctx ended first. A wait that fails, for lack of file
// descriptors say, tells nothing of the container: it may well run, so it is waited for again and not taken for dead.
func (e *Engine) waitForEnd(ctx context.Context, rt Runtime, id string) (exit oci.Exit, ended bool) {
	for rest := waitRetry; ; rest = min(2*rest, waitRest) {
		exit, err := rt.Wait(ctx, id)
		switch {
		case ctx.Err() != nil:
			return oci.Exit{}, false
		case err == nil:
			return exit, true
		case errdefs.IsNotFound(err):
			return oci.Exit{Code: 255, At: time.Now()}, true
		}
		e.Log.WithError(err).WithField("container", id).Error("wait for container, trying again")
		sleep(ctx, rest)
	}
}

// exit publishes how c ended, and then frees what the runtime still holds of it. The runtime's directory has the
// exit file, so it goes only once the exit is in the record.
func (e *Engine) exit(c *Container, x oci.Exit) {
	if err := e.publishExit(c, x); err != nil {
		e.containerLog(c).WithError(err).Error("write exit of container, its runtime state is kept")
		return
	}
	if err := e.undo(e.life.ctx, func(ctx context.Context) error { return e.deleteRuntimeState(ctx, c) }); err != nil {
		e.containerLog(c).WithError(err).Warn("delete runtime state of exited container, removal will try again")
	}
}

func (e *Engine) publishExit(c *Container, x oci.Exit) error {
	start := c.startAttempt()
	err := c.observe(record.ContainerExited, func(s *record.ContainerStatus) { describeExit(s, x, start) })
	e.usage.DropContainer(c.ID)
	s := c.Status()
	e.containerLog(c).WithField("code", s.ExitCode).WithField("reason", s.Reason).Info("container exited")
	return err
}

func (e *Engine) deleteRuntimeState(ctx context.Context, c *Container) error {
	if err := c.op.take(ctx); err != nil {
		return fmt.Errorf("wait for another operation on the container: %w", err)
	}
	defer c.op.release()
	return e.deleteProcess(ctx, c.pod, c.ID)
}

// describeExit fills in the exited status.
func describeExit(s *record.ContainerStatus, x oci.Exit, start startAttempt) {
	if s.StartedAt.IsZero() {
		s.StartedAt = start.at
	}
	s.FinishedAt, s.ExitCode = x.At, x.Code
	switch {
	case start.err != nil:
		s.ExitCode, s.Reason, s.Message = startErrorCode, reasonStartError, start.err.Error()
	case s.Reason == reasonStartError: // doomed
		s.ExitCode = startErrorCode
	case x.OOM:
		s.Reason = reasonOOMKilled
	case !x.Known:
		s.Reason, s.Message = reasonUnknown, "neither the monitor nor the kernel left an exit status"
	case x.Code == 0:
		s.Reason = reasonCompleted
	default:
		s.Reason = reasonError
	}
}
