package shim

import (
	"context"
	"errors"
	"fmt"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/process"
)

// Wait returns when the container has exited and its output is written, also for a container that an earlier daemon
// started. If the shim exits first, the rest of the container is killed, and the exit status is unknown.
// errdefs.ErrNotFound for a container that was never created completely.
func (r *Runtime) Wait(ctx context.Context, id string) (oci.Exit, error) {
	b, err := r.bundle(id)
	if err != nil {
		return oci.Exit{}, err
	}
	w := r.waiters.Join(id)
	defer r.waiters.Leave(id)
	rec, err := b.created()
	if err != nil {
		return oci.Exit{}, err
	}
	if exit, ended := b.loadExit(); ended {
		return exit, nil
	}
	exit, err := r.waitTask(ctx, b, rec, w.Delivered())
	if errors.Is(err, errGone) {
		if exit, ended := b.loadExit(); ended { // it was killed before it was started: nothing comes through its pipes
			return exit, nil
		}
		exit, err = r.onShimExit(ctx, b, rec), nil
	}
	if err != nil {
		return oci.Exit{}, fmt.Errorf("wait for container %s: %w", id, err)
	}
	r.killLeftovers(rec)
	// A process that holds the output open has had its time. Its later output is kept, but not waited for.
	waitStdio(ctx, b, rec)
	if delivered, ok := w.Exit(); ok {
		exit = delivered
	}
	if !exit.OOM {
		r.describeLimits(b, rec, &exit)
	}
	_ = b.saveExit(exit) // the bundle may be on its way out; the caller keeps it, too
	return exit, nil
}

// retryPause is the delay before the next call to a shim that is alive but has closed the connection.
const retryPause = 100 * time.Millisecond

// waitTask waits with the task API's Wait until the container has exited. The error is errGone if the shim exits or
// the container is deleted first. (Some shims never report the exit of a container that was not started.)
func (r *Runtime) waitTask(ctx context.Context, b bundle, rec record, deleted <-chan struct{}) (oci.Exit, error) {
	minding, stop := context.WithCancel(ctx)
	defer stop()
	go r.superviseStdio(minding, b)
	shimEnd, forget := context.WithCancelCause(ctx)
	defer forget(nil)
	go func() {
		if rec.Shim.Wait(shimEnd) == nil {
			forget(errGone)
		}
	}()
	go func() {
		select {
		case <-deleted:
			forget(errGone)
		case <-shimEnd.Done():
		}
	}()
	for first := true; ; first = false {
		var response *task.WaitResponse
		conn, err := r.connectShim(shimEnd, rec)
		if err == nil {
			if first {
				r.runBackground(func() { r.sweepCommands(minding, b, conn) })
			}
			response, err = conn.waitExit(shimEnd, b.ID(), "")
		}
		switch {
		case err == nil:
			return parseExit(response.GetExitStatus(), response.GetExitedAt()), nil
		case errdefs.IsNotFound(err), errors.Is(err, errGone):
			return oci.Exit{}, errGone
		case ctx.Err() != nil:
			return oci.Exit{}, context.Cause(ctx)
		}
		timer := time.NewTimer(retryPause)
		select {
		case <-timer.C:
		case <-shimEnd.Done():
			timer.Stop()
			return oci.Exit{}, context.Cause(shimEnd)
		}
	}
}

// parseExit checks an exit that a shim reports: an impossible status is unknown, and an impossible time is now.
func parseExit(code uint32, at *timestamppb.Timestamp) oci.Exit {
	e := oci.Exit{Code: driver.UnknownCode, At: time.Now()}
	if code <= driver.UnknownCode {
		e.Code, e.Known = int32(code), true
	}
	if at.IsValid() && at.AsTime().Unix() > 0 && at.AsTime().Before(e.At) {
		e.At = at.AsTime()
	}
	return e
}

// onShimExit kills and removes a container whose shim has exited.
func (r *Runtime) onShimExit(ctx context.Context, b bundle, rec record) oci.Exit {
	exit := oci.Exit{Code: driver.UnknownCode, At: time.Now()}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), driver.ReapTimeout)
	defer cancel()
	// Delete kills the rest, and returns the error.
	_ = killContainer(ctx, rec)
	if b.Exists() {
		_ = r.shimDelete(ctx, b)
	}
	return exit
}

// killLeftovers kills the processes that outlive the container's first one, in a PID namespace that it shares. runc
// does not find those whose main thread has ended. Delete returns the error.
func (r *Runtime) killLeftovers(rec record) {
	if !r.cfg.HostKernel || rec.Cgroup == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), driver.ReapTimeout)
	defer cancel()
	_ = cgroups.DirsAt(rec.Cgroup).Kill(ctx)
}

// killContainer kills the known processes of a container: its first process and its cgroups.
func killContainer(ctx context.Context, rec record) error {
	var errs []error
	if own := rec.ownInit(); own != (process.Process{}) {
		errs = append(errs, own.Kill(ctx))
	}
	if rec.Cgroup != "" {
		errs = append(errs, cgroups.DirsAt(rec.Cgroup).Destroy(ctx))
	}
	return errors.Join(errs...)
}

// oomKills returns how many processes of the container the kernel has killed for lack of memory: by the counter of the
// cgroup, or by the shim's event, which comes once.
func (r *Runtime) oomKills(b bundle, rec record) uint64 {
	kills, ok := cgroups.DirsAt(rec.Cgroup).OOMKills()
	if !(ok && r.cfg.HostKernel) && driver.FileExists(b.oom()) {
		return max(kills, 1)
	}
	return kills
}

// killedBySandbox is the code that gVisor's shim reports for a container whose sandbox was killed.
const killedBySandbox = 128

// describeLimits fills in the container's out-of-memory kills and refused forks, and the code of SIGKILL if it died
// with its sandbox.
func (r *Runtime) describeLimits(b bundle, rec record, e *oci.Exit) {
	e.OOMKills = r.oomKills(b, rec)
	e.OOM = e.OOMKills > b.ExcusedOOMs()
	if r.cfg.HostKernel {
		e.ForksRefused = max(e.ForksRefused, cgroups.DirsAt(rec.Cgroup).ForksRefused())
	}
	if !r.cfg.HostKernel && e.Code == killedBySandbox && (e.OOM || !rec.Init.Alive()) {
		e.Code = driver.KilledCode
	}
}
