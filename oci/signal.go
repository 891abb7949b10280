package oci

import (
	"context"
	"fmt"
	"syscall"

	"github.com/containerd/errdefs"
)

// Signal sends to the container's first process. One that is gone, or was never created, is no error. The
// process is identified by pid and start time and reached by pidfd, so no stranger is ever hit.
func (r *Runtime) Signal(_ context.Context, id string, sig syscall.Signal) error {
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
	if err := rec.Init.signal(sig); err != nil {
		return fmt.Errorf("container %s: %w", id, err)
	}
	return nil
}
