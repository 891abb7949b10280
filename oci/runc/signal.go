package runc

import (
	"context"
	"fmt"
	"strconv"
	"syscall"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
)

// Signal sends to the container's first process. A process that is gone, or was never created, is not an error. The
// process is identified by pid and start time and reached by pidfd, so no other process is hit.
func (r *Runtime) Signal(ctx context.Context, id string, sig syscall.Signal) error {
	b, rec, err := r.open(id)
	if errdefs.IsNotFound(err) {
		return r.signalByRuntime(ctx, id, sig)
	}
	if err != nil {
		return err
	}
	send := func() error { return rec.Init.Signal(sig) }
	if rec.isSubcontainer(id) {
		send = func() error { return r.signalSubcontainer(ctx, b, rec, sig) }
	}
	if kills, _ := rec.Cgroups.OOMKills(); sig != 0 && rec.Init.Alive() {
		b.NoteSignal(kills)
	}
	if err := send(); err != nil {
		return fmt.Errorf("container %s: %w", id, err)
	}
	if sig == syscall.SIGKILL { // cgroup v1 lets no frozen process die
		rec.Cgroups.Thaw()
	}
	return nil
}

// signalByRuntime reaches a container whose bundle is gone, by the runtime's state.
func (r *Runtime) signalByRuntime(ctx context.Context, id string, sig syscall.Signal) error {
	if !r.runtimeKnows(id) {
		return nil
	}
	state, err := r.queryState(ctx, id)
	if err != nil || state.Status == oci.Absent || state.Status == oci.Stopped {
		return err
	}
	if _, err := r.runRuntime(ctx, nil, "kill", id, strconv.Itoa(int(sig))); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("container %s: %w", id, err)
	}
	return nil
}
