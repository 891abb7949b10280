package shim

import (
	"context"
	"fmt"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
)

// Update changes the container's resource limits. Limits absent in res stay as they are. A VM gets CPUs and memory
// plugged in. For a container in the sandbox of gVisor's shim it returns oci.ErrNoEffect: runsc writes down its limits,
// and applies only those of the sandbox.
func (r *Runtime) Update(ctx context.Context, id string, res *specs.LinuxResources) error {
	rec, conn, err := r.reachContainer(ctx, id)
	if err != nil {
		return err
	}
	if err := conn.update(ctx, id, res); err != nil {
		return fmt.Errorf("update container: %w", driver.UpdateFailure(err))
	}
	if name, _ := shimName(r.cfg.Path); name == "runsc" && rec.Owner != id {
		return fmt.Errorf("container %s: %w", id, oci.ErrNoEffect)
	}
	return nil
}

var _ oci.Resizer = (*Runtime)(nil)

// Resize implements oci.Resizer, with podd's shim of virtual machines. The machines of other shims have the limits of
// the pod's cgroup (gVisor), or grow with the limits of each container (Kata).
func (r *Runtime) Resize(ctx context.Context, id string, limits *specs.LinuxResources) error {
	if name, _ := shimName(r.cfg.Path); name != "podvm" {
		return nil
	}
	_, conn, err := r.reachContainer(ctx, id)
	if err != nil {
		return err
	}
	return conn.update(ctx, id, limits)
}

// Pause freezes all processes of the container. Pausing a paused container is not an error.
func (r *Runtime) Pause(ctx context.Context, id string) error {
	return r.setPaused(ctx, id, "Pause", &task.PauseRequest{ID: id}, oci.Paused)
}

// Resume thaws a paused container. Resuming a running container is not an error.
func (r *Runtime) Resume(ctx context.Context, id string) error {
	return r.setPaused(ctx, id, "Resume", &task.ResumeRequest{ID: id}, oci.Running)
}

func (r *Runtime) setPaused(ctx context.Context, id, method string, request proto.Message, want oci.Status) error {
	rec, conn, err := r.reachContainer(ctx, id)
	if err != nil {
		return err
	}
	if have, err := r.queryStatus(ctx, rec, id); err != nil || have == want {
		return err
	}
	if err := conn.call(ctx, method, request, empty()); err != nil {
		return fmt.Errorf("%s container: %w", method, err)
	}
	return nil
}

// update sets limits of a container.
func (c *conn) update(ctx context.Context, id string, limits *specs.LinuxResources) error {
	resources, err := anyResources(limits)
	if err != nil {
		return err
	}
	return c.call(ctx, "Update", &task.UpdateTaskRequest{ID: id, Resources: resources}, empty())
}
