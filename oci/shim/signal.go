package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/driver"
)

// Signal sends to the container's first process. A process that is gone, or was never created, is not an error.
//
// A shim that does not answer to SIGKILL is killed itself, with the container's processes that are known: its pod is
// lost, and only its pod.
func (r *Runtime) Signal(ctx context.Context, id string, sig syscall.Signal) error {
	rec, conn, err := r.reachContainer(ctx, id)
	switch {
	case errdefs.IsNotFound(err), errdefs.IsFailedPrecondition(err), errors.Is(err, errGone):
		return nil
	case err == nil && sig == 0:
		return nil
	}
	if b, errBundle := r.bundle(id); err == nil && errBundle == nil && rec.Init.Alive() {
		b.NoteSignal(r.oomKills(b, rec))
	}
	switch {
	case err == nil && sig == syscall.SIGKILL && !r.cfg.HostKernel:
		err = r.killInSandbox(ctx, conn, rec, id)
	case err == nil:
		err = conn.call(ctx, "Kill", killRequest(id, sig), empty())
		if err != nil && sig > driver.LastNamedSignal && !isProcessGone(err) && ctx.Err() == nil {
			err = conn.call(ctx, "Kill", killRequest(id, syscall.SIGTERM), empty())
		}
		if own := rec.ownInit(); err != nil && isProcessGone(err) && own.Alive() {
			err = own.Signal(sig) // runc takes one whose main thread has ended for a zombie
		}
	case errdefs.IsInvalidArgument(err):
		return err
	}
	if sig == syscall.SIGKILL && r.cfg.HostKernel { // cgroup v1 lets no frozen process die
		cgroups.DirsAt(rec.Cgroup).Thaw()
	}
	if err == nil || isProcessGone(err) || !rec.Shim.Alive() {
		return nil
	}
	if sig == syscall.SIGKILL && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		r.cfg.Log.WithField("container", id).Warn("shim does not answer to SIGKILL of a container, killing the shim")
		return errors.Join(rec.ownInit().Signal(sig), rec.Shim.Signal(sig))
	}
	return fmt.Errorf("container %s: %w", id, err)
}

func killRequest(id string, sig syscall.Signal) *task.KillRequest {
	return &task.KillRequest{ID: id, Signal: uint32(sig)}
}

// killInSandbox kills a container in a sandbox with its own kernel. gVisor's shim never reports the exit of one that
// was not started: it is recorded here.
func (r *Runtime) killInSandbox(ctx context.Context, conn *conn, rec record, id string) error {
	before, errQuery := r.queryStatus(ctx, rec, id)
	if errors.Is(errQuery, context.DeadlineExceeded) {
		return errQuery // the shim hangs: another call would time out too
	}
	err := conn.call(ctx, "Kill", killRequest(id, syscall.SIGKILL), empty())
	if err != nil || errQuery != nil || before != oci.Created {
		return err
	}
	grace, cancel := context.WithTimeout(ctx, createdGrace)
	defer cancel()
	if _, err := conn.waitExit(grace, id, ""); err == nil || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if after, err := r.queryStatus(ctx, rec, id); err == nil && after != oci.Created && after != oci.Stopped {
		return nil // another call has started it; the next SIGKILL reaches a process
	}
	b, err := r.bundle(id)
	if err != nil {
		return err
	}
	if err := os.WriteFile(b.unstarted(), nil, 0o600); err != nil {
		return fmt.Errorf("record the exit of a container that was not started: %w", err)
	}
	exit := killedUnstarted()
	if err := b.saveExit(exit); err != nil {
		return err
	}
	r.waiters.Deliver(id, exit)
	return nil
}

// killedUnstarted is the exit of a container that was killed before it was started.
func killedUnstarted() oci.Exit {
	return oci.Exit{Code: driver.KilledCode, At: time.Now(), Known: true}
}

// isProcessGone reports whether a shim's error means that the process has exited.
func isProcessGone(err error) bool {
	text := strings.ToLower(err.Error())
	return errdefs.IsNotFound(err) || strings.Contains(text, "process already finished") ||
		strings.Contains(text, "process not running") || strings.Contains(text, "no such process") ||
		strings.Contains(text, "container not running")
}
