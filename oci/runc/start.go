package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
)

// stateTimeout bounds the question whether a container runs whose start has failed.
const stateTimeout = 5 * time.Second

// Start lets the created container run its command. A command that cannot be run is an oci.ErrCommand, from runtimes
// that check it only now.
func (r *Runtime) Start(ctx context.Context, id string) error {
	b, err := r.bundle(id)
	if err != nil {
		return err
	}
	if !b.Exists() {
		return fmt.Errorf("container %s: %w", id, errdefs.ErrNotFound)
	}
	rec, err := b.load()
	start := func(ctx context.Context, b bundle) error { return r.startContainer(ctx, b, rec) }
	if err == nil && rec.isSubcontainer(id) {
		start = r.startSubcontainer
	} else if err == nil && rec.Restore != nil {
		start = func(ctx context.Context, b bundle) error { return r.restoreContainer(ctx, b, rec) }
	} else if err == nil && rec.Image != "" {
		start = func(ctx context.Context, b bundle) error { return r.restoreSandbox(ctx, b, rec.Image) }
	}
	if err := start(ctx, b); err != nil {
		return fmt.Errorf("start container: %w", err)
	}
	// Without the mark, State queries the runtime. The container runs anyway.
	_ = os.WriteFile(b.started(), nil, 0o600)
	return nil
}

// startContainer starts the container by its FIFO or has the runtime start it. It may be running already: the program
// that a killed daemon called may have continued.
func (r *Runtime) startContainer(ctx context.Context, b bundle, rec record) error {
	err := r.runStart(ctx, b, rec)
	if err == nil || errors.Is(err, oci.ErrCommand) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stateTimeout) // it may have been the deadline
	defer cancel()
	if s, asked := r.State(ctx, b.ID()); asked == nil && s.Status == oci.Running {
		return nil
	}
	return err
}
