package shim

import (
	"context"
	"errors"
	"fmt"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	status "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
)

// State returns the container's status, by calling the shim. An unknown container is Absent, one whose shim has exited
// is Stopped; neither is an error.
func (r *Runtime) State(ctx context.Context, id string) (oci.State, error) {
	b, rec, err := r.open(id)
	if errdefs.IsNotFound(err) {
		return oci.State{Status: oci.Absent}, nil
	}
	if err != nil {
		return oci.State{}, err
	}
	s := oci.State{Process: rec.Init, Status: oci.Stopped}
	if _, ended := b.loadExit(); ended {
		return s, nil
	}
	s.Status, err = r.queryStatus(ctx, rec, id)
	switch {
	case errors.Is(err, errGone), errdefs.IsNotFound(err):
		s.Status = oci.Stopped
	case err != nil:
		if !rec.Shim.Alive() { // it exited during the call
			return oci.State{Process: rec.Init, Status: oci.Stopped}, nil
		}
		return oci.State{}, fmt.Errorf("query container state: %w", err)
	}
	return s, nil
}

// queryStatus calls the shim for the container's status.
func (r *Runtime) queryStatus(ctx context.Context, rec record, id string) (oci.Status, error) {
	conn, err := r.connectShim(ctx, rec)
	if err != nil {
		return "", err
	}
	response := &task.StateResponse{}
	if err := conn.call(ctx, "State", &task.StateRequest{ID: id}, response); err != nil {
		return "", err
	}
	switch response.GetStatus() {
	case status.Status_CREATED:
		return oci.Created, nil
	case status.Status_RUNNING:
		return oci.Running, nil
	case status.Status_PAUSED, status.Status_PAUSING:
		return oci.Paused, nil
	case status.Status_STOPPED:
		return oci.Stopped, nil
	}
	return "", fmt.Errorf("the shim reports status %d: %w", response.GetStatus(), errdefs.ErrUnknown)
}
