package integration

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
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
	if total := k.totalMemory(ctr); total < 150 || total > 96+160 {
		t.Errorf("memory of the machine for a limit of 96 MiB = %d MiB, want 150 to %d", total, 96+160)
	}
}

// totalMemory is the memory of the kernel that a container sees, in MiB.
func (k *kubelet) totalMemory(ctr string) (total int) {
	k.Helper()
	_, err := fmt.Sscanf(k.exec(ctr, "grep MemTotal /proc/meminfo"), "MemTotal: %d kB", &total)
	k.ok("read the size of the memory", err)
	return total >> 10
}

// TestVMResize: the limits of a container change in the guest. The machine grows with the limits of its pod, with QEMU;
// User-Mode Linux cannot grow, which is the error of a limit above the size that it has.
func TestVMResize(t *testing.T) {
	t.Parallel()
	k := start(t)
	r := &vmResize{kubelet: k}
	cfg := k.podConfig(func(c *cri.PodSandboxConfig) {
		c.Linux.Resources = &cri.LinuxContainerResources{
			CpuQuota: 100000, CpuPeriod: 100000, MemoryLimitInBytes: 96 << 20,
		}
	})
	r.pod = k.runPod(cfg, vmHandler())
	r.ctr, _ = k.runIn(r.pod, cfg, []string{"sleep", "10000"})
	k.ok("limits within the size", r.container(&cri.LinuxContainerResources{
		CpuQuota: 50000, CpuPeriod: 100000, MemoryLimitInBytes: 64 << 20,
	}))
	for file, want := range map[string]string{"memory.max": "67108864\n", "cpu.max": "50000 100000\n"} {
		if got := r.cgroup(file); got != want {
			t.Errorf("%s in the guest = %q, want %q", file, got, want)
		}
	}
	k.ok("a smaller pod", r.sandbox(&cri.LinuxContainerResources{MemoryLimitInBytes: 80 << 20}))
	if vmHandler() == "vm-qemu" {
		r.checkGrowth()
	} else {
		r.checkFixed()
	}
}

// vmResize is a pod that is resized.
type vmResize struct {
	*kubelet
	pod, ctr string
}

// cgroup returns a file of the container's cgroup in the guest.
func (r *vmResize) cgroup(file string) string {
	r.Helper()
	return r.exec(r.ctr, "cat /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/"+file)
}

func (r *vmResize) container(limits *cri.LinuxContainerResources) error {
	_, err := r.Runtime.UpdateContainerResources(r.ctx(),
		&cri.UpdateContainerResourcesRequest{ContainerId: r.ctr, Linux: limits})
	return err
}

// sandbox changes the limits of the pod. The overhead is enough for an emulated machine.
func (r *vmResize) sandbox(limits *cri.LinuxContainerResources) error {
	_, err := r.Runtime.UpdatePodSandboxResources(r.ctx(), &cri.UpdatePodSandboxResourcesRequest{
		PodSandboxId: r.pod, Resources: limits, Overhead: &cri.LinuxContainerResources{MemoryLimitInBytes: 640 << 20},
	})
	return err
}

// checkGrowth: the machine gets memory, in blocks of 128 MiB, and processors.
func (r *vmResize) checkGrowth() {
	r.Helper()
	before := r.totalMemory(r.ctr)
	r.ok("a larger pod", r.sandbox(&cri.LinuxContainerResources{
		CpuQuota: 200000, CpuPeriod: 100000, MemoryLimitInBytes: 352 << 20,
	}))
	if got := r.exec(r.ctr, "nproc"); got != "2\n" {
		r.Errorf("processors for a limit of 2 = %q, want 2", got)
	}
	if grown := r.totalMemory(r.ctr) - before; grown != 256 {
		r.Errorf("the machine has grown by %d MiB, want 256 for a limit that is 256 MiB larger", grown)
	}
	r.ok("a larger container", r.container(&cri.LinuxContainerResources{MemoryLimitInBytes: 480 << 20}))
	if grown := r.totalMemory(r.ctr) - before; grown != 384 {
		r.Errorf("the machine has grown by %d MiB, want 384 for a container that is 384 MiB larger", grown)
	}
	r.exec(r.ctr, "dd if=/dev/zero of=/dev/null bs=288M count=1") // into a buffer larger than the machine at its start
}

// checkFixed: more than the machine has is refused, and changes nothing.
func (r *vmResize) checkFixed() {
	r.Helper()
	large := &cri.LinuxContainerResources{MemoryLimitInBytes: 352 << 20}
	r.refused("a larger pod", r.sandbox(large), "cannot grow", codes.FailedPrecondition)
	r.refused("a larger container", r.container(large), "cannot grow", codes.FailedPrecondition)
	if got := r.cgroup("memory.max"); got != "67108864\n" {
		r.Errorf("memory.max after limits that were refused = %q, want that before", got)
	}
}
