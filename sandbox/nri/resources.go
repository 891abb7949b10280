package nri

import (
	"cmp"
	"fmt"
	"maps"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/record"
)

// resourcesMessage converts limits of the CRI, in which 0 means none. It returns nil for nil.
func resourcesMessage(r *cri.LinuxContainerResources) *api.LinuxResources {
	if r == nil {
		return nil
	}
	msg := &api.LinuxResources{
		Cpu: &api.LinuxCPU{Cpus: r.GetCpusetCpus(), Mems: r.GetCpusetMems()}, Memory: &api.LinuxMemory{},
		Unified: maps.Clone(r.GetUnified()),
	}
	if v := r.GetCpuPeriod(); v != 0 {
		msg.Cpu.Period = api.UInt64(uint64(v))
	}
	if v := r.GetCpuQuota(); v != 0 {
		msg.Cpu.Quota = api.Int64(v)
	}
	if v := r.GetCpuShares(); v != 0 {
		msg.Cpu.Shares = api.UInt64(uint64(v))
	}
	if v := r.GetMemoryLimitInBytes(); v != 0 {
		msg.Memory.Limit = api.Int64(v)
	}
	if v := r.GetMemorySwapLimitInBytes(); v != 0 {
		msg.Memory.Swap = api.Int64(v)
	}
	for _, h := range r.GetHugepageLimits() {
		msg.HugepageLimits = append(msg.HugepageLimits, &api.HugepageLimit{PageSize: h.GetPageSize(), Limit: h.GetLimit()})
	}
	return msg
}

// splitUpdate is splitResources for an existing container. Runtimes cannot update limits of block devices.
func splitUpdate(u *api.ContainerUpdate) (Resources, error) {
	msg := u.GetLinux().GetResources()
	if msg.GetBlockioClass() != nil {
		return Resources{}, fmt.Errorf("%w: linux.resources.blockio_class can be set only when a container is created",
			errdefs.ErrInvalidArgument)
	}
	return splitResources(msg)
}

// splitResources converts limits that plugins ask for. Those that podd cannot set are errdefs.ErrInvalidArgument.
func splitResources(msg *api.LinuxResources) (Resources, error) {
	if err := checkResources(msg); err != nil {
		return Resources{}, err
	}
	cpu, memory := msg.GetCpu(), msg.GetMemory()
	r := Resources{CRI: &cri.LinuxContainerResources{
		CpuPeriod: int64(cpu.GetPeriod().GetValue()), CpuQuota: cpu.GetQuota().GetValue(),
		CpuShares: int64(cpu.GetShares().GetValue()), CpusetCpus: cpu.GetCpus(), CpusetMems: cpu.GetMems(),
		MemoryLimitInBytes: memory.GetLimit().GetValue(), MemorySwapLimitInBytes: memory.GetSwap().GetValue(),
	}}
	if len(msg.GetUnified()) > 0 {
		r.CRI.Unified = maps.Clone(msg.GetUnified())
	}
	for _, h := range msg.GetHugepageLimits() {
		limit := &cri.HugepageLimit{PageSize: h.GetPageSize(), Limit: h.GetLimit()}
		r.CRI.HugepageLimits = append(r.CRI.HugepageLimits, limit)
	}
	r.Rest = msg
	return r, nil
}

// checkResources refuses limits that would be lost: podd has no such classes, and the kernel has removed the others.
func checkResources(msg *api.LinuxResources) error {
	for field, set := range map[string]bool{
		"rdt_class":            msg.GetRdtClass() != nil,
		"memory.kernel":        msg.GetMemory().GetKernel() != nil,
		"memory.use_hierarchy": msg.GetMemory().GetUseHierarchy() != nil,
	} {
		if set {
			return fmt.Errorf("%w: podd cannot set linux.resources.%s", errdefs.ErrInvalidArgument, field)
		}
	}
	return nil
}

// mergeRest adds the limits in rest that the CRI has no field for to r.
func mergeRest(r *specs.LinuxResources, rest *api.LinuxResources) {
	if c := rest.GetCpu(); c != nil {
		r.CPU = cmp.Or(r.CPU, &specs.LinuxCPU{})
		replace(&r.CPU.RealtimeRuntime, c.GetRealtimeRuntime().Get())
		replace(&r.CPU.RealtimePeriod, c.GetRealtimePeriod().Get())
	}
	if m := rest.GetMemory(); m != nil {
		r.Memory = cmp.Or(r.Memory, &specs.LinuxMemory{})
		replace(&r.Memory.Reservation, m.GetReservation().Get())
		replace(&r.Memory.Swappiness, m.GetSwappiness().Get())
		replace(&r.Memory.DisableOOMKiller, m.GetDisableOomKiller().Get())
		replace(&r.Memory.KernelTCP, m.GetKernelTcp().Get())
	}
	if pids := rest.GetPids(); pids != nil {
		r.Pids = &specs.LinuxPids{Limit: new(pids.GetLimit())}
	}
}

// replace sets to if v is set.
func replace[T any](to **T, v *T) {
	if v != nil {
		*to = v
	}
}

// MergeInto adds to limits, which were made of r.CRI, those that the CRI has no field for.
func (r Resources) MergeInto(limits *specs.LinuxResources) { mergeRest(limits, r.Rest) }

// withResources returns a copy of msg with other limits.
func withResources(msg *api.Container, r *api.LinuxResources) *api.Container {
	out := withStatus(msg, record.ContainerStatus{})
	old := msg.GetLinux().GetResources()
	r.Devices, r.Pids = old.GetDevices(), old.GetPids()
	out.Linux = shallowCopy(msg.GetLinux())
	out.Linux.Resources = r
	return out
}
