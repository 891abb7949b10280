package convert

import (
	"fmt"
	"math"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/spec"
)

// FromKernel returns asked with the values of l. An unlimited value is reported the way it was requested, 0 or -1.
func FromKernel(asked *cri.LinuxContainerResources, l cgroups.Limits) *cri.LinuxContainerResources {
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

// orUnlimited converts a limit of the kernel to one of CRI.
func orUnlimited(asked int64, limit uint64) int64 {
	switch {
	case limit <= math.MaxInt64:
		return int64(limit)
	case asked <= 0:
		return asked
	}
	return -1
}

// kernelShares returns the CPU shares. On cgroup v2 many shares map to one weight, and runtimes have converted them in
// two ways: the requested shares are returned as long as one of the two conversions gives the kernel's weight.
func kernelShares(asked int64, l cgroups.Limits) int64 {
	weights := []uint64{cgroups.WeightOf(uint64(asked)), cgroups.OldWeightOf(uint64(asked))}
	switch {
	case l.CPUShares == 0, l.CPUWeight != 0 && asked != 0 && slices.Contains(weights, l.CPUWeight):
		return asked
	}
	return int64(l.CPUShares)
}

// AddOverhead adds overhead to the limits; unlimited values stay so. Shares are a weight and always added.
func AddOverhead(resources, overhead *cri.LinuxContainerResources) *cri.LinuxContainerResources {
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

// PodLimits returns the limits of a pod's cgroup, with warnings about those that have no effect here. It leaves swap
// unchanged unless the request sets it: a pod's is not limited by default. On cgroup v2 it leaves the weight unchanged:
// the kubelet has set it, by a formula that differs from that of OCI runtimes, and reads it back
// (kubernetes/kubernetes#137628).
func PodLimits(
	overhead, resources *cri.LinuxContainerResources, facts spec.Facts,
) (*specs.LinuxResources, []string, error) {
	if _, _, err := spec.Resources(overhead, facts); err != nil {
		return nil, nil, fmt.Errorf("overhead: %w", err)
	}
	total := AddOverhead(resources, overhead)
	limits, warnings, err := spec.Resources(total, facts)
	if err == nil && total.GetMemorySwapLimitInBytes() == 0 {
		spec.WithoutSwap(limits, total)
	}
	if err == nil && facts.CgroupV2 && limits.CPU != nil {
		limits.CPU.Shares = nil
	}
	return limits, warnings, err
}

// maxShares is the kernel's highest weight.
const maxShares = 262144

// MergeResources returns old with the fields that r sets.
func MergeResources(old, r *cri.LinuxContainerResources) *cri.LinuxContainerResources {
	merged := &cri.LinuxContainerResources{}
	if old != nil {
		merged = proto.Clone(old).(*cri.LinuxContainerResources)
	}
	limits := r.GetHugepageLimits()
	if limits != nil {
		merged.HugepageLimits = nil // a list would be appended to, not replaced
	}
	proto.Merge(merged, r)
	return merged
}
