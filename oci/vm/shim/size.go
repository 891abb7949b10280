package shim

import (
	"math"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci/vm/vmm"
)

// Annotations of the infra container with the limits of the pod (containerd's): memory in bytes, the time that its
// processes may use in each period, both in microseconds.
const (
	annotationMemory = "io.kubernetes.cri.sandbox-memory"
	annotationQuota  = "io.kubernetes.cri.sandbox-cpu-quota"
	annotationPeriod = "io.kubernetes.cri.sandbox-cpu-period"
)

// size is the share of the machine that a pod needs: the limit of its memory in bytes, and of the time that its
// processes may use in each period, both in microseconds. 0 is no limit.
type size struct{ memory, quota, period int64 }

// annotatedSize is that of the pod when it is started.
func annotatedSize(spec *specs.Spec) size {
	return size{
		memory: annotatedNumber(spec, annotationMemory),
		quota:  annotatedNumber(spec, annotationQuota), period: annotatedNumber(spec, annotationPeriod),
	}
}

// sizeOf is that of limits that change: those that they do not name are 0.
func sizeOf(r *specs.LinuxResources) (s size) {
	if r.Memory != nil && r.Memory.Limit != nil {
		s.memory = max(*r.Memory.Limit, 0)
	}
	if r.CPU != nil && r.CPU.Quota != nil && r.CPU.Period != nil {
		s.quota, s.period = max(*r.CPU.Quota, 0), int64(min(*r.CPU.Period, math.MaxInt64))
	}
	return s
}

// processors is the number of processors of the machine: as many as the CPU limit needs, at most those of the host, and
// one without a limit. User-Mode Linux has one.
func (s size) processors(driver string, host int) int {
	if driver == vmm.UML || s.quota == 0 || s.period == 0 {
		return 1
	}
	whole := s.quota / s.period
	if s.quota%s.period > 0 {
		whole++
	}
	return int(min(whole, int64(host)))
}

// annotatedNumber is 0 for anything but a number above 0.
func annotatedNumber(spec *specs.Spec, name string) int64 {
	n, err := strconv.ParseInt(spec.Annotations[name], 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
