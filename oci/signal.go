package oci

import (
	"context"
	"fmt"
	"syscall"

	"github.com/containerd/errdefs"
)

// Signal sends to the container's first process. One that is gone, or was never created, is no error. The
// process is identified by pid and start time and reached by pidfd, so no stranger is ever hit.
func (r *Runtime) Signal(ctx context.Context, id string, sig syscall.Signal) error {
	b, err := r.bundle(id)
	if err != nil {
		return err
	}
	rec, err := b.load()
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	send := func() error { return rec.Init.signal(sig) }
	if rec.guest(id) {
		send = func() error { return r.signalGuest(ctx, b, rec, sig) }
	}
	if err := send(); err != nil {
		return fmt.Errorf("container %s: %w", id, err)
	}
	return nil
}
