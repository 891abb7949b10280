package runc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
)

// Update changes the container's resource limits. Limits absent in res stay as they are. For a subcontainer it returns
// oci.ErrNoEffect: nothing that could be limited is on the host.
func (r *Runtime) Update(ctx context.Context, id string, res *specs.LinuxResources) error {
	b, err := r.bundle(id)
	if err != nil {
		return err
	}
	if !b.Exists() {
		return fmt.Errorf("container %s: %w", id, errdefs.ErrNotFound)
	}
	if rec, err := b.load(); err == nil && rec.isSubcontainer(id) {
		return fmt.Errorf("container %s: %w", id, oci.ErrNoEffect)
	} else if err == nil && rec.pending() {
		return fmt.Errorf("%w: container %s has no process before its start restores one", errdefs.ErrFailedPrecondition, id)
	}
	data, err := json.Marshal(r.fixCrunSwap(res))
	if err != nil {
		return fmt.Errorf("encode resources: %w", err)
	}
	if _, err := r.runRuntime(ctx, bytes.NewReader(data), "update", "--resources", "-", id); err != nil {
		return fmt.Errorf("update container: %w", driver.UpdateFailure(err))
	}
	return nil
}

// Pause freezes all processes of the container. Pausing a paused container is not an error.
func (r *Runtime) Pause(ctx context.Context, id string) error {
	return r.setPaused(ctx, id, "pause", true)
}

// Resume thaws a paused container. Resuming a running container is not an error.
func (r *Runtime) Resume(ctx context.Context, id string) error {
	return r.setPaused(ctx, id, "resume", false)
}

func (r *Runtime) setPaused(ctx context.Context, id, verb string, want bool) error {
	b, rec, err := r.open(id)
	if err != nil {
		return err
	}
	if b.frozen(rec) == want {
		return nil
	}
	if _, err := r.runRuntime(ctx, nil, verb, id); err != nil {
		return fmt.Errorf("%s container: %w", verb, err)
	}
	return b.markFrozen(rec, want)
}
