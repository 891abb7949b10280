package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/process"
)

// Wait returns when the container has ended and its output is written, by whichever daemon it was started. When the
// shim ends first, what is left of the container is killed, and the exit status is unknown. errdefs.ErrNotFound for a
// container that was never created completely.
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
	// Whoever holds the output open has its time; what it writes later is kept, but not waited for.
	waitStdio(ctx, b, rec)
	if delivered, ok := w.Exit(); ok {
		exit = delivered
	}
	exit.OOM = exit.OOM || oomKilled(b, rec)
	_ = b.saveExit(exit) // the bundle may be on its way out; the caller keeps it, too
	return exit, nil
}

// retryPause is how long a shim is left alone that has broken the connection and lives.
const retryPause = 100 * time.Millisecond

// await asks the shim to tell when the container has ended, until it does or has ended itself, or
// the container was deleted: errGone. (There are shims that never tell the end of a container that was not started.)
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

// exitOf checks what a shim says of an end: a status that no process can have is unknown, and a time that cannot be is
// now.
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

// lost ends a container whose shim has ended.
func (r *Runtime) onShimExit(ctx context.Context, b bundle, rec record) oci.Exit {
	exit := oci.Exit{Code: driver.UnknownCode, At: time.Now()}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), driver.ReapTimeout)
	defer cancel()
	// What cannot be killed now is killed by Delete, which says so.
	_ = killContainer(ctx, rec)
	if b.Exists() {
		_ = r.shimDelete(ctx, b)
	}
	return exit
}

// killContainer kills what is known of a container: its first process and its control groups.
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

// oomKilled tells whether the kernel killed a process of the container for memory: by the shim's event, or the counter
// of the control group, if it has one.
func oomKilled(b bundle, rec record) bool {
	if _, err := os.Lstat(b.oom()); err == nil {
		return true
	}
	kills, _ := cgroups.DirsAt(rec.Cgroup).OOMKills()
	return kills > 0
}
