package sandbox

import (
	"fmt"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/sandbox/usage"
)

// UpdatePod changes the limits of the pod's control group to the sum of what its containers may use (resources) and
// what running them takes (overhead); either may be nil, and a limit that is 0 in resources stays as it is.
//
// Errors: errdefs.ErrFailedPrecondition when the pod is not ready, or has no control group of its own.
func (e *Engine) UpdatePod(id string, overhead, resources *cri.LinuxContainerResources) error {
	p, err := e.Pod(id)
	if err != nil {
		return err
	}
	if state := p.Status().State; state != record.PodReady {
		return fmt.Errorf("%w: pod sandbox %s is %s, its resources cannot be updated", errdefs.ErrFailedPrecondition, p.ID, state)
	}
	limits, warnings, err := e.podLimits(overhead, resources)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		e.podLog(p).WithField("warning", w).Warn("pod sandbox differs from its request")
	}
	group, err := e.openPodCgroup(p)
	if err != nil {
		return err
	}
	defer group.Close()
	if err := group.Update(limits); err != nil {
		return fmt.Errorf("update pod sandbox: %w", err)
	}
	return nil
}

// podLimits leaves swap alone unless it is named: nobody limits it for a whole pod.
func (e *Engine) podLimits(overhead, resources *cri.LinuxContainerResources) (*specs.LinuxResources, []string, error) {
	if _, _, err := spec.Resources(overhead, e.Facts); err != nil {
		return nil, nil, fmt.Errorf("overhead: %w", err)
	}
	total := addOverhead(resources, overhead)
	limits, warnings, err := spec.Resources(total, e.Facts)
	if err == nil && total.GetMemorySwapLimitInBytes() == 0 {
		spec.WithoutSwap(limits, total)
	}
	return limits, warnings, err
}

// addOverhead adds to what is limited; what is not limited stays so. Shares are a wish and always add up.
func addOverhead(resources, overhead *cri.LinuxContainerResources) *cri.LinuxContainerResources {
	total := proto.CloneOf(resources)
	if total == nil {
		total = &cri.LinuxContainerResources{}
	}
	if total.CpuShares > 0 {
		total.CpuShares = min(total.CpuShares+max(0, overhead.GetCpuShares()), maxShares)
	}
	if total.CpuQuota > 0 && total.CpuPeriod > 0 && overhead.GetCpuQuota() > 0 && overhead.GetCpuPeriod() > 0 {
		total.CpuQuota += overhead.GetCpuQuota() * total.CpuPeriod / overhead.GetCpuPeriod()
	}
	if total.MemoryLimitInBytes > 0 {
		total.MemoryLimitInBytes += max(0, overhead.GetMemoryLimitInBytes())
	}
	return total
}

// maxShares is the kernel's highest weight.
const maxShares = 262144

// openPodCgroup finds the group that the kubelet made for the pod. Close it.
func (e *Engine) openPodCgroup(p *Pod) (usage.Cgroup, error) {
	path := e.podCgroupPath(p)
	if path == "" || e.Cgroups == nil {
		return nil, fmt.Errorf("%w: pod sandbox %s has no cgroup_parent, there is nothing to limit", errdefs.ErrFailedPrecondition, p.ID)
	}
	group, err := e.Cgroups.At(path)
	if errdefs.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %s, the cgroup_parent of pod sandbox %s, is not there", errdefs.ErrFailedPrecondition, path, p.ID)
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
