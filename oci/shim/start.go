package shim

import (
	"context"
	"fmt"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
)

// Start lets the created container run its command. A command that cannot be run is an oci.ErrCommand, from runtimes
// that check it only now.
func (r *Runtime) Start(ctx context.Context, id string) error {
	_, conn, err := r.reachContainer(ctx, id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CreateTimeout)
	defer cancel()
	if err := conn.callUntil(ctx, "Start", &task.StartRequest{ID: id}, &task.StartResponse{}); err != nil {
		return fmt.Errorf("start container: %w", runtimeError(ctx, err))
	}
	return nil
}

// reachContainer returns the record of a running container, and a connection to its shim. Queries of the usage come
// here regularly, so it trims the shim's log, too.
func (r *Runtime) reachContainer(ctx context.Context, id string) (record, *conn, error) {
	b, rec, err := r.open(id)
	if err != nil {
		return record{}, nil, err
	}
	if owner, err := r.bundle(rec.Owner); err == nil {
		trimLog(owner)
	}
	if _, ended := b.loadExit(); ended {
		return rec, nil, fmt.Errorf("container %s is not running: %w", id, errdefs.ErrFailedPrecondition)
	}
	conn, err := r.connectShim(ctx, rec)
	if err != nil {
		return rec, nil, fmt.Errorf("container %s: %w", id, err)
	}
	return rec, conn, nil
}
