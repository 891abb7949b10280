package integration

import (
	"fmt"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestVMSize: the limits of a pod are the size of its machine. User-Mode Linux has one processor.
func TestVMSize(t *testing.T) {
	t.Parallel()
	k := start(t)
	want := map[string]string{"vm": "1\n", "vm-qemu": "2\n"}[vmHandler()]
	cfg := k.podConfig(func(c *cri.PodSandboxConfig) {
		c.Linux.Resources = &cri.LinuxContainerResources{
			CpuQuota: 150000, CpuPeriod: 100000, MemoryLimitInBytes: 96 << 20,
		}
	})
	pod := k.runPod(cfg, vmHandler())
	ctr, _ := k.runIn(pod, cfg, []string{"sleep", "10000"})
	if got := k.exec(ctr, "nproc"); got != want {
		t.Errorf("processors for a limit of 1.5 = %q, want %q", got, want)
	}
	// 96 MiB and the 160 MiB that the machine has for itself, without what its kernel reserves.
	var total int
	_, err := fmt.Sscanf(k.exec(ctr, "grep MemTotal /proc/meminfo"), "MemTotal: %d kB", &total)
	k.ok("read the size of the memory", err)
	if total >>= 10; total < 150 || total > 96+160 {
		t.Errorf("memory of the machine for a limit of 96 MiB = %d MiB, want 150 to %d", total, 96+160)
	}
}
