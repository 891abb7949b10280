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
		if got := processors(spec, c.driver, 8); got != c.want {
			t.Errorf("processors of %s for %s in %s = %d, want %d", c.driver, c.quota, c.period, got, c.want)
		}
	}
}

// TestSandboxMemory: anything but a number above 0 is no limit.
func TestSandboxMemory(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "1048576": 1 << 20, "-1": 0, "1Gi": 0} {
		spec := &specs.Spec{Annotations: map[string]string{annotationMemory: text}}
		if got := sandboxMemory(spec); got != want {
			t.Errorf("memory of %q = %d, want %d", text, got, want)
		}
	}
}
