package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/sandbox/convert"
	"github.com/podd-project/podd/sandbox/nri"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
)

// UpdateContainer changes the resources of a created or running container. Fields that are zero stay unchanged. The
// status has the kernel's values afterwards, also of an update that failed and was taken back. In gVisor, whose sandbox
// has only the limits of the pod, the status has the requested values, as after the creation: a resize of the pod has
// changed those that hold, and the scheduler counts the status.
func (e *Engine) UpdateContainer(ctx context.Context, id string, r *cri.LinuxContainerResources) error {
	c, err := e.Container(id)
	if err != nil {
		return err
	}
	// then does what plugins want to be set in other containers.
	then := func(_ context.Context, err error) error { return err }
	err = e.limitContainer(ctx, c, func(ctx context.Context) (limits nri.Resources, err error) {
		operation.SetStage(ctx, "plugins")
		limits, then, err = e.deps.Plugins.Update(ctx, c.View(), r)
		return limits, err
	})
	if err == nil {
		e.deps.Plugins.PostContainerUpdate(c.View())
	}
	return then(ctx, err)
}

// limitContainer sets the limits that decide returns, which is called when no other operation on c is in progress.
func (e *Engine) limitContainer(
	ctx context.Context, c *Container, decide func(context.Context) (nri.Resources, error),
) error {
	if err := c.slot.Acquire(ctx); err != nil {
		return fmt.Errorf("wait for another operation on the container: %w", err)
	}
	defer c.slot.Release()
	return e.onContainer(ctx, operation.UpdateContainer, c, 0, func(ctx context.Context) error {
		if state := c.Status().State; state != record.ContainerCreated && state != record.ContainerRunning {
			return fmt.Errorf("%w: container %s is %s, its resources cannot be updated",
				errdefs.ErrFailedPrecondition, c.ID, state)
		}
		limits, err := decide(ctx)
		if err != nil {
			return err
		}
		return updateContainer(ctx, e.deps, c, limits)
	})
}

// updateContainer needs c.slot.
func updateContainer(ctx context.Context, deps Deps, c *Container, limits nri.Resources) error {
	rt, err := c.pod.handler.Runtime()
	if err != nil {
		return err
	}
	r := limits.CRI
	resources, warnings, err := spec.Resources(r, deps.Facts)
	if err != nil {
		return err
	}
	limits.MergeInto(resources)
	c.logWarnings(warnings)
	operation.SetStage(ctx, "update")
	before := c.Status().Resources
	errUpdate := rt.Update(ctx, c.ID, resources)
	if errors.Is(errUpdate, oci.ErrNoEffect) {
		c.log().WithError(errUpdate).Debug("the pod's limits hold instead of the container's")
		errUpdate = nil // the kubelet has changed those of the pod
	}
	if errUpdate != nil {
		errUpdate = fmt.Errorf("update container: %w", errUpdate)
		takeBack(ctx, deps, c, rt, before)
		r = nil
	}
	operation.SetStage(ctx, "read back")
	actual, err := readBack(deps, c, convert.MergeResources(before, r), r.GetOomScoreAdj() != 0)
	if errdefs.IsNotFound(err) {
		err = nil // it has exited
	}
	return errors.Join(errUpdate, err,
		c.observe(c.Status().State, func(s *record.ContainerStatus) { s.Resources = actual }))
}

// takeBack sets the limits from before an update that failed: a part of it may be in force. What cannot be set again is
// read back.
func takeBack(ctx context.Context, deps Deps, c *Container, rt Runtime, before *cri.LinuxContainerResources) {
	operation.SetStage(ctx, "take back")
	resources, _, err := spec.Resources(before, deps.Facts)
	if err == nil {
		err = rt.Update(ctx, c.ID, resources)
	}
	if err != nil && !errdefs.IsNotFound(err) { // otherwise it has exited
		c.log().WithError(err).Warn("failed to set the container's limits from before a failed update")
	}
}

// readBack does the part of an update that OCI runtimes do not, and returns asked with the kernel's values.
func readBack(
	deps Deps, c *Container, asked *cri.LinuxContainerResources, oom bool,
) (*cri.LinuxContainerResources, error) {
	if deps.Cgroups == nil || c.pod.OwnKernel {
		return asked, nil
	}
	pid := c.Status().Process.Pid
	group, err := deps.Cgroups.Of(pid, c.ID)
	if err != nil {
		return asked, err
	}
	defer group.Close()
	warnings, err := limitGroup(group, asked, deps.Facts, oom)
	c.logWarnings(warnings)
	actual, rerr := actualResources(group, asked, pid)
	return actual, errors.Join(err, rerr)
}
