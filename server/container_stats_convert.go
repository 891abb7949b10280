package server

import (
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/sandbox/usage"
)

func containerStats(r *record.Container, u usage.Container) *cri.ContainerStats {
	stats := &cri.ContainerStats{
		Attributes: &cri.ContainerAttributes{
			Id: r.ID, Metadata: r.Config.GetMetadata(), Labels: r.Config.GetLabels(), Annotations: r.Config.GetAnnotations(),
		},
		WritableLayer: writableLayer(u.Writable),
	}
	if u.Usage != nil {
		stats.Cpu, stats.Memory = cpuUsage(u.Sample), memoryUsage(u.Usage)
		stats.Swap, stats.Io = swapUsage(u.Usage), ioUsage(u.Usage)
	}
	return stats
}

func writableLayer(u *image.FsUsage) *cri.FilesystemUsage {
	if u == nil {
		return nil
	}
	return filesystems([]image.FsUsage{*u})[0]
}

func cpuUsage(u usage.Sample) *cri.CpuUsage {
	if u.Usage == nil || u.Usage.CPU == nil {
		return nil
	}
	out := &cri.CpuUsage{
		Timestamp:            u.Usage.At.UnixNano(),
		UsageCoreNanoSeconds: value(uint64(u.Usage.CPU.Total)),
		Psi:                  psi(u.Usage.CPUPressure),
	}
	if u.NanoCores != nil {
		out.UsageNanoCores = value(*u.NanoCores)
	}
	return out
}

// memoryUsage: the kernel counts major faults among all page faults, CRI counts them apart. AvailableBytes is unset
// without a limit.
func memoryUsage(u *cgroups.Usage) *cri.MemoryUsage {
	if u == nil || u.Memory == nil {
		return nil
	}
	m := u.Memory
	return &cri.MemoryUsage{
		Timestamp:       u.At.UnixNano(),
		WorkingSetBytes: value(m.WorkingSet),
		AvailableBytes:  left(m.Limit, m.WorkingSet),
		UsageBytes:      value(m.Usage),
		RssBytes:        value(m.RSS),
		PageFaults:      value(m.PageFaults - min(m.MajorFaults, m.PageFaults)),
		MajorPageFaults: value(m.MajorFaults),
		Psi:             psi(u.MemoryPressure),
	}
}

func swapUsage(u *cgroups.Usage) *cri.SwapUsage {
	if u == nil || u.Swap == nil {
		return nil
	}
	return &cri.SwapUsage{
		Timestamp:          u.At.UnixNano(),
		SwapAvailableBytes: left(u.Swap.Limit, u.Swap.Usage),
		SwapUsageBytes:     value(u.Swap.Usage),
	}
}

// ioUsage has only the pressure, the one field that CRI defines.
func ioUsage(u *cgroups.Usage) *cri.IoUsage {
	if u == nil || u.IOPressure == nil {
		return nil
	}
	return &cri.IoUsage{Timestamp: u.At.UnixNano(), Psi: psi(u.IOPressure)}
}

func psi(p *cgroups.Pressure) *cri.PsiStats {
	if p == nil {
		return nil
	}
	return &cri.PsiStats{Full: stall(p.Full), Some: stall(p.Some)}
}

func stall(s cgroups.Stall) *cri.PsiData {
	return &cri.PsiData{Total: uint64(s.Total), Avg10: s.Avg10, Avg60: s.Avg60, Avg300: s.Avg300}
}

// left returns how much of the limit is unused, nil without a limit.
func left(limit, used uint64) *cri.UInt64Value {
	if limit == cgroups.Unlimited {
		return nil
	}
	return value(limit - min(limit, used))
}

func value(n uint64) *cri.UInt64Value { return &cri.UInt64Value{Value: n} }
