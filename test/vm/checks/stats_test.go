package checks

import (
	"os"
	"slices"
	"strconv"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// worker uses a CPU, memory and the root filesystem.
const worker = `dd if=/dev/zero of=/written bs=1M count=2 2>/dev/null; sync
head -c 4000000 /dev/zero | tr '\0' x >/dev/shm/memory; while :; do :; done`

func podStats(k *kubelet) *cri.LinuxPodSandboxStats {
	k.Helper()
	r, err := k.runtime.PodSandboxStats(k.Context(), &cri.PodSandboxStatsRequest{PodSandboxId: k.podID})
	k.ok("PodSandboxStats", err)
	return r.GetStats().GetLinux()
}

// TestStatsAreComplete: cgroup v2 has a value for every field of CRI's statistics, and podd reports it.
func TestStatsAreComplete(t *testing.T) {
	k := newKubelet(t)
	k.runPod()
	id := k.start(worker, resources(&cri.LinuxContainerResources{
		CpuPeriod: 100_000, CpuQuota: 50_000, MemoryLimitInBytes: 64 << 20, MemorySwapLimitInBytes: 80 << 20,
	}))
	var c *cri.ContainerStats
	k.eventually("the statistics show CPU, memory, disk and pressure", func() bool {
		r, err := k.runtime.ContainerStats(t.Context(), &cri.ContainerStatsRequest{ContainerId: id})
		k.ok("ContainerStats", err)
		c = r.GetStats()
		return c.GetCpu().GetUsageNanoCores().GetValue() > 1e7 && c.GetMemory().GetUsageBytes().GetValue() > 4_000_000 &&
			c.GetWritableLayer().GetUsedBytes().GetValue() >= 2<<20 && c.GetCpu().GetPsi().GetSome().GetTotal() > 0
	})
	m := c.GetMemory()
	if m.GetAvailableBytes().GetValue() != 64<<20-m.GetWorkingSetBytes().GetValue() || m.GetRssBytes().GetValue() == 0 ||
		m.GetPageFaults().GetValue() == 0 {
		t.Errorf("memory = %v, want available = limit - working set, and RSS and page faults", m)
	}
	if m.GetPsi().GetFull() == nil || c.GetIo().GetPsi().GetSome() == nil || c.GetIo().GetTimestamp() == 0 {
		t.Errorf("pressure of memory = %v, of I/O = %v, want both", m.GetPsi(), c.GetIo())
	}
	if _, err := os.Stat(k.cgroup(id) + "/memory.swap.max"); err == nil &&
		c.GetSwap().GetSwapAvailableBytes().GetValue() > 16<<20 {
		t.Errorf("swap = %v, want at most 16 MiB available", c.GetSwap())
	}
	// The pod's values come from its slice. A sum of its containers' would have no pressure.
	p := podStats(k)
	if p.GetCpu().GetPsi() == nil || p.GetMemory().GetPsi() == nil || p.GetIo().GetPsi() == nil ||
		p.GetProcess().GetProcessCount().GetValue() == 0 {
		t.Errorf("pod statistics = %v, want pressure of CPU, memory and I/O, and a process count", p)
	}
	if p.GetCpu().GetUsageCoreNanoSeconds().GetValue() < c.GetCpu().GetUsageCoreNanoSeconds().GetValue() {
		t.Errorf("CPU of the pod = %v, want at least the container's, %v", p.GetCpu(), c.GetCpu())
	}
	if p.GetNetwork().GetDefaultInterface().GetName() != "eth0" || len(p.GetNetwork().GetInterfaces()) != 0 ||
		len(p.GetContainers()) != 1 {
		t.Errorf("network = %v, containers = %v, want eth0 alone and one container", p.GetNetwork(), p.GetContainers())
	}
}

// TestMetricsAreComplete checks what critest checks after v1.36: each metric described has a value, with as many labels
// as described.
func TestMetricsAreComplete(t *testing.T) {
	k := newKubelet(t)
	k.runPod()
	k.start("sleep 10000", resources(&cri.LinuxContainerResources{CpuPeriod: 100_000, CpuQuota: 20_000,
		MemoryLimitInBytes: 64 << 20}))
	list, err := k.runtime.ListPodSandboxMetrics(t.Context(), &cri.ListPodSandboxMetricsRequest{})
	k.ok("ListPodSandboxMetrics", err)
	of := list.GetPodMetrics()[0]
	labels := map[string]int{}
	for _, m := range slices.Concat(of.GetMetrics(), of.GetContainerMetrics()[0].GetMetrics()) {
		labels[m.GetName()] = len(m.GetLabelValues())
	}
	descriptors, err := k.runtime.ListMetricDescriptors(t.Context(), &cri.ListMetricDescriptorsRequest{})
	k.ok("ListMetricDescriptors", err)
	for _, d := range descriptors.GetDescriptors() {
		if labels[d.GetName()] != len(d.GetLabelKeys()) {
			t.Errorf("%s has %d labels, want %d: %q", d.GetName(), labels[d.GetName()], len(d.GetLabelKeys()),
				d.GetLabelKeys())
		}
	}
}

// TestPodIsResized: the pod's slice has the new limits, the overhead added, and the weight that the kubelet gave it.
func TestPodIsResized(t *testing.T) {
	k := newKubelet(t)
	k.runPod()
	k.start("sleep 10000")
	weight := read(t, "/sys/fs/cgroup"+podPath+"/cpu.weight")
	_, err := k.runtime.UpdatePodSandboxResources(t.Context(), &cri.UpdatePodSandboxResourcesRequest{PodSandboxId: k.podID,
		Overhead: &cri.LinuxContainerResources{MemoryLimitInBytes: 1 << 20},
		Resources: &cri.LinuxContainerResources{CpuShares: 1000, CpuQuota: 60_000, CpuPeriod: 100_000,
			MemoryLimitInBytes: 100 << 20}})
	k.ok("UpdatePodSandboxResources", err)
	for file, want := range map[string]string{"memory.max": strconv.Itoa(101 << 20), "cpu.max": "60000 100000",
		"cpu.weight": weight} {
		if got := read(t, "/sys/fs/cgroup"+podPath+"/"+file); got != want {
			t.Errorf("%s = %q, want %q", file, got, want)
		}
	}
}

// TestUpdateIsReported: the status has the kernel's values, in CRI's units.
func TestUpdateIsReported(t *testing.T) {
	k := newKubelet(t)
	k.runPod()
	id := k.start("sleep 10000")
	_, err := k.runtime.UpdateContainerResources(t.Context(), &cri.UpdateContainerResourcesRequest{ContainerId: id,
		Linux: &cri.LinuxContainerResources{CpuShares: 512, CpuQuota: 40_000, CpuPeriod: 100_000,
			MemoryLimitInBytes: 96<<20 + 1, OomScoreAdj: -321}})
	k.ok("UpdateContainerResources", err)
	r := k.status(id).GetResources().GetLinux()
	if r.GetCpuShares() != 512 || r.GetCpuQuota() != 40_000 || r.GetMemoryLimitInBytes() != 96<<20 ||
		r.GetOomScoreAdj() != -321 {
		t.Errorf("status = %v, want the values of the update, memory in whole pages; cpu.weight = %s", r,
			k.limit(id, "cpu.weight"))
	}
	if got := read(t, "/proc/"+k.pid(id)+"/oom_score_adj"); got != "-321" {
		t.Errorf("oom_score_adj = %s, want -321", got)
	}
}
