package shim

import (
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

// sandboxMemory is the memory limit of the pod in bytes, 0 if it has none.
func sandboxMemory(spec *specs.Spec) int64 { return annotatedNumber(spec, annotationMemory) }

// processors is the number of processors of the machine: as many as the pod's CPU limit needs, at most those of the
// host, and one without a limit. User-Mode Linux has one.
func processors(spec *specs.Spec, driver string, host int) int {
	quota, period := annotatedNumber(spec, annotationQuota), annotatedNumber(spec, annotationPeriod)
	if driver == vmm.UML || quota == 0 || period == 0 {
		return 1
	}
	whole := quota / period
	if quota%period > 0 {
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
