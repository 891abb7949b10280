package sandbox

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/convert"
	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/sandbox/usage"
)

// UpdatePod sets the limits of the pod's cgroup to the sum of its containers' limits (resources) and the cost of
// running them (overhead); either may be nil, and a limit that is 0 in resources stays unchanged. A pod in a virtual
// machine gets the memory and processors that these limits need; it keeps them when the limits shrink.
//
// Errors: errdefs.ErrFailedPrecondition when the pod is not ready, has no separate cgroup or too small a machine.
func (e *Engine) UpdatePod(ctx context.Context, id string, overhead, resources *cri.LinuxContainerResources) error {
	p, err := e.Pod(id)
	if err != nil {
		return err
	}
	if state := p.Status().State; state != record.PodReady {
		return fmt.Errorf("%w: pod sandbox %s is %s, its resources cannot be updated",
			errdefs.ErrFailedPrecondition, p.ID, state)
	}
	if overhead == nil {
		overhead = p.View().Linux().GetOverhead()
	}
	limits, warnings, err := convert.PodLimits(overhead, resources, e.deps.Facts)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		p.log().WithField("warning", w).Warn("pod sandbox differs from its request")
	}
	group, err := e.openPodCgroup(p)
	if err != nil {
		return err
	}
	defer group.Close()
	if err := e.deps.Plugins.UpdatePod(ctx, p.View(), overhead, resources); err != nil {
		return err
	}
	if err := p.handler.Resize(ctx, resources, e.deps.Facts); err != nil {
		return err
	}
	if err := group.Update(limits); err != nil {
		return fmt.Errorf("update pod sandbox: %w", err)
	}
	err = p.observe(record.PodReady, func(s *record.PodStatus) {
		before := record.PodView{Pod: &p.Pod, Status: *s}.Linux()
		s.Limits = &cri.LinuxPodSandboxConfig{
			Overhead: overhead, Resources: convert.MergeResources(before.GetResources(), resources)}
	})
	e.deps.Plugins.PostPodUpdate(p.View())
	return err
}

// openPodCgroup opens the cgroup that the kubelet created for the pod. The caller closes it.
func (e *Engine) openPodCgroup(p *Pod) (usage.Cgroup, error) {
	path := e.podCgroup(p)
	if path == "" || e.deps.Cgroups == nil {
		return nil, fmt.Errorf("%w: pod sandbox %s has no cgroup_parent, there is nothing to limit",
			errdefs.ErrFailedPrecondition, p.ID)
	}
	group, err := e.deps.Cgroups.At(path)
	if errdefs.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %s, the cgroup_parent of pod sandbox %s, does not exist",
			errdefs.ErrFailedPrecondition, path, p.ID)
	}
	if err != nil {
		return nil, err
	}
	if err := e.checkOwnCgroup(p, group); err != nil {
		group.Close()
		return nil, err
	}
	return group, nil
}
