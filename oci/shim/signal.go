package shim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
)

// Signal sends to the container's first process. One that is gone, or was never created, is no error.
//
// A shim that does not answer to SIGKILL is killed itself, with what is known of the container: its pod is lost then,
// and only its pod.
func (r *Runtime) Signal(ctx context.Context, id string, sig syscall.Signal) error {
	rec, conn, err := r.reach(ctx, id)
	switch {
	case errdefs.IsNotFound(err), errdefs.IsFailedPrecondition(err), errors.Is(err, errGone):
		return nil
	case err == nil && sig == 0:
		return nil
	case err == nil:
		err = conn.call(ctx, "Kill", &task.KillRequest{ID: id, Signal: uint32(sig)}, empty())
	case errdefs.IsInvalidArgument(err):
		return err
	}
	if err == nil || over(err) || !rec.Shim.Alive() {
		return nil
	}
	if sig == syscall.SIGKILL && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		r.cfg.Log.WithField("container", id).Warn("shim does not answer, killing it")
		return errors.Join(rec.own().Signal(sig), rec.Shim.Signal(sig))
	}
	return fmt.Errorf("container %s: %w", id, err)
}

// over tells whether a shim says that the process has ended.
func over(err error) bool {
	text := strings.ToLower(err.Error())
	return errdefs.IsNotFound(err) || strings.Contains(text, "process already finished") || strings.Contains(text, "process not running") ||
		strings.Contains(text, "no such process") || strings.Contains(text, "container not running")
}
