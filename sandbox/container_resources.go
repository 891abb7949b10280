package sandbox

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/sandbox/record"
)

// limitContainer does the part of an update that OCI runtimes do not: huge pages, which runc takes for a new container
// only and sets back with each update, and oom_score_adj, which belongs to processes. It returns asked as the kernel
// has it now.
func (e *Engine) limitContainer(c *Container, asked *cri.LinuxContainerResources, oom bool) (*cri.LinuxContainerResources, error) {
	if e.Cgroups == nil || c.pod.OwnKernel {
		return asked, nil
	}
	group, err := e.Cgroups.Of(c.Status().Process.Pid, c.ID)
	if err != nil {
		return asked, err
	}
	defer group.Close()
	limits, _, err := spec.Resources(&cri.LinuxContainerResources{HugepageLimits: asked.GetHugepageLimits()}, e.Facts)
	if err == nil {
		err = group.Update(&specs.LinuxResources{HugepageLimits: limits.HugepageLimits})
	}
	if oom {
		err = errors.Join(err, e.adjustOOM(c, group, asked))
	}
	actual, rerr := actualResources(group, asked, c.Status().Process.Pid)
	return actual, errors.Join(err, rerr)
}

// adjustOOM gives every process of the container the new oom_score_adj. One that is made meanwhile by a process that
// has the old one is found by looking again.
func (e *Engine) adjustOOM(c *Container, group Cgroup, r *cri.LinuxContainerResources) error {
	value, warnings, err := spec.OOMScoreAdj(r, e.Facts)
	if err != nil {
		return err
	}
	e.logWarnings(c, warnings)
	done := map[int]bool{}
	for before := -1; len(done) > before; {
		before = len(done)
		pids, err := group.Processes()
		if err != nil {
			return err
		}
		for _, pid := range pids {
			if done[pid] {
				continue
			}
			if err := setOOMScoreAdj(pid, value); err != nil {
				return fmt.Errorf("set oom_score_adj of process %d to %d: %w", pid, value, err)
			}
			done[pid] = true
		}
	}
	return nil
}

// actualResources returns asked with what the kernel has in its place. What the kernel cannot tell stays as asked.
func actualResources(group Cgroup, asked *cri.LinuxContainerResources, pid int) (*cri.LinuxContainerResources, error) {
	limits, err := group.Limits()
	if err != nil {
		return asked, err
	}
	actual := fromKernel(asked, limits)
	for key := range actual.GetUnified() {
		if text, err := group.Unified(key); err == nil && text != "" && !strings.Contains(text, "\n") {
			actual.Unified[key] = text // a table (io.max) is told as it was asked for
		}
	}
	if adj, err := oomScoreAdj(pid); err == nil {
		actual.OomScoreAdj = adj
	}
	return actual, nil
}

// fromKernel is asked, corrected by the limits. "No limit" is told as the request told it, 0 or -1.
func fromKernel(asked *cri.LinuxContainerResources, l cgroups.Limits) *cri.LinuxContainerResources {
	r := proto.CloneOf(asked)
	if r == nil {
		r = &cri.LinuxContainerResources{}
	}
	r.CpuShares = kernelShares(r.CpuShares, l)
	if l.CPUPeriod != 0 {
		r.CpuPeriod = int64(l.CPUPeriod)
		r.CpuQuota = orUnlimited(r.CpuQuota, uint64(max(l.CPUQuota, -1)))
	}
	r.MemoryLimitInBytes = orUnlimited(r.MemoryLimitInBytes, l.Memory)
	if l.MemorySwap != 0 {
		r.MemorySwapLimitInBytes = orUnlimited(r.MemorySwapLimitInBytes, l.MemorySwap)
	}
	if l.CPUs != "" {
		r.CpusetCpus = l.CPUs
	}
	if l.Mems != "" {
		r.CpusetMems = l.Mems
	}
	for _, h := range r.GetHugepageLimits() {
		if n, ok := l.Hugepages[h.GetPageSize()]; ok {
			h.Limit = n
		}
	}
	return r
}

// orUnlimited turns a limit of the kernel into one of CRI.
func orUnlimited(asked int64, limit uint64) int64 {
	switch {
	case limit <= math.MaxInt64:
		return int64(limit)
	case asked <= 0:
		return asked
	}
	return -1
}

// kernelShares is the weight. On v2 many shares are one weight, and runtimes have converted them in two ways: the
// shares asked for are told as long as the kernel's weight is theirs.
func kernelShares(asked int64, l cgroups.Limits) int64 {
	weights := []uint64{cgroups.WeightOf(uint64(asked)), cgroups.OldWeightOf(uint64(asked))}
	switch {
	case l.CPUShares == 0, l.CPUWeight != 0 && asked != 0 && slices.Contains(weights, l.CPUWeight):
		return asked
	}
	return int64(l.CPUShares)
}

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
func (e *Engine) openPodCgroup(p *Pod) (Cgroup, error) {
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
	if err := e.checkOwn(p, group); err != nil {
		group.Close()
		return nil, err
	}
	return group, nil
}
