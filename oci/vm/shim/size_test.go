package shim

import (
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci/vm/vmm"
)

// TestProcessors: the machine has as many processors as the pod's limit needs, and no more than the host.
func TestProcessors(t *testing.T) {
	for _, c := range []struct {
		quota, period, driver string
		want                  int
	}{
		{"", "", vmm.QEMU, 1},
		{"100000", "100000", vmm.QEMU, 1},
		{"100001", "100000", vmm.QEMU, 2},
		{"350000", "100000", vmm.QEMU, 4},
		{"350000", "100000", vmm.UML, 1},
		{"50000", "100000", vmm.QEMU, 1},
		{"9223372036854775807", "1", vmm.QEMU, 8},
		{"-1", "100000", vmm.QEMU, 1},
		{"100000", "0", vmm.QEMU, 1},
		{"much", "100000", vmm.QEMU, 1},
	} {
		spec := &specs.Spec{Annotations: map[string]string{annotationQuota: c.quota, annotationPeriod: c.period}}
		if got := annotatedSize(spec).processors(c.driver, 8); got != c.want {
			t.Errorf("processors of %s for %s in %s = %d, want %d", c.driver, c.quota, c.period, got, c.want)
		}
	}
}

// TestMemory: anything but a number above 0 is no limit.
func TestMemory(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "1048576": 1 << 20, "-1": 0, "1Gi": 0} {
		spec := &specs.Spec{Annotations: map[string]string{annotationMemory: text}}
		if got := annotatedSize(spec).memory; got != want {
			t.Errorf("memory of %q = %d, want %d", text, got, want)
		}
	}
}

// TestSizeOfLimits: limits that change say only what they name, and no limit is none.
func TestSizeOfLimits(t *testing.T) {
	for _, c := range []struct {
		limits specs.LinuxResources
		want   size
	}{
		{specs.LinuxResources{}, size{}},
		{specs.LinuxResources{Memory: &specs.LinuxMemory{}, CPU: &specs.LinuxCPU{Shares: new(uint64(7))}}, size{}},
		{specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: new(int64(-1))}}, size{}},
		{specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: new(int64(9))}}, size{memory: 9}},
		{specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: new(int64(-1)), Period: new(uint64(5))}}, size{period: 5}},
		{specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: new(int64(8)), Period: new(uint64(5))}}, size{quota: 8, period: 5}},
	} {
		if got := sizeOf(&c.limits); got != c.want {
			t.Errorf("size of %+v = %+v, want %+v", c.limits, got, c.want)
		}
	}
}
