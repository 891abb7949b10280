package runc

import (
	"context"
	"fmt"
	"time"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/runc/conmon"
)

// Wait returns when the container has exited and its output is written, also for a container that an earlier daemon
// started. It needs no thread: the goroutine is parked until the monitor exits. If the monitor was killed, it returns
// oci.ErrNoMonitor once, and the next call returns when the container's first process exits. The exit status is then
// unknown.
//
// Processes that the container leaves behind in a shared PID namespace are killed: they belong to it.
// errdefs.ErrNotFound for a container that was never created completely.
func (r *Runtime) Wait(ctx context.Context, id string) (oci.Exit, error) {
	b, err := r.bundle(id)
	if err != nil {
		return oci.Exit{}, err
	}
	w := r.waiters.Join(id)
	defer r.waiters.Leave(id)
	rec, err := b.load()
	if err != nil {
		return oci.Exit{}, err
	}
	if err := r.waitProcesses(ctx, id, rec); err != nil {
		return oci.Exit{}, fmt.Errorf("wait for container %s: %w", id, err)
	}
	exit := r.readExit(b, rec)
	if delivered, ok := w.Exit(); ok && !exit.Known {
		exit = delivered
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), driver.ReapTimeout)
	defer cancel()
	// Delete kills the rest, and returns the error.
	_ = rec.Cgroups.Kill(ctx)
	rec.Cgroups.DropQuota()
	return exit, nil
}

// settleTime is how long the container's first process may be seen after its monitor has exited.
const settleTime = time.Second

// waitProcesses waits until the monitor and the container's first process have exited. oci.ErrNoMonitor, once, if the
// monitor exits first.
func (r *Runtime) waitProcesses(ctx context.Context, id string, rec record) error {
	if err := rec.Monitor.Wait(ctx); err != nil {
		return err
	}
	settled, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	if rec.Init.Wait(settled) != nil && ctx.Err() == nil {
		if _, returned := r.unmonitored.LoadOrStore(id, true); !returned {
			return oci.ErrNoMonitor
		}
	}
	err := rec.Init.Wait(ctx)
	if err == nil {
		r.unmonitored.Delete(id)
	}
	return err
}

// readExitFile reads the monitor's exit file. Without one the status is unknown and the time is now.
func readExitFile(b bundle) oci.Exit {
	code, at, err := conmon.ReadExit(b.Dir())
	switch {
	case err != nil:
		return oci.Exit{Code: driver.UnknownCode, At: time.Now()}
	case code < 0:
		return oci.Exit{Code: driver.UnknownCode, At: at}
	}
	return oci.Exit{Code: code, At: at, Known: true}
}
