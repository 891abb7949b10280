package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
	"github.com/podd-project/podd/test/sample"
)

// TestStats checks the reported usage of real containers and pods.
func TestStats(t *testing.T) {
	t.Parallel()
	for _, handler := range sample.Some(t, "runc", "crun") {
		t.Run(handler, func(t *testing.T) {
			k := startWith(t, daemon.Options{Handler: handler, Set: []string{`runtime.stats_interval="1s"`}})
			for _, c := range []struct {
				name string
				test func(*kubelet)
			}{
				{"container", containerStats},
				{"pod", podStats},
				{"metrics", podMetrics},
				{"top", topOfPods},
				{"update", updateIsReported},
				{"update of a pod", updatePod},
				{"lower limits of a pod after a stop", lowerPodAfterStop},
				{"nothing stays open", statsLeaveNothing},
			} {
				t.Run(c.name, func(t *testing.T) { c.test(k.sub(t)) })
			}
		})
	}
}

// worker is a script that uses a CPU, memory, its root filesystem and the network.
const worker = `dd if=/dev/zero of=/written bs=1M count=3 2>/dev/null
head -c 8000000 /dev/zero | tr '\0' x >/dev/shm/memory
ping -c 2 "$(ip route | sed -n 's/^default via \([^ ]*\).*/\1/p')" >/dev/null; while :; do :; done`

func limited(c *cri.ContainerConfig) {
	c.Linux.Resources = &cri.LinuxContainerResources{
		CpuPeriod: 100000, CpuQuota: 50000, CpuShares: 512, MemoryLimitInBytes: 128 << 20, MemorySwapLimitInBytes: 160 << 20,
	}
}

func (k *kubelet) stats(id string) *cri.ContainerStats {
	k.Helper()
	r, err := k.Runtime.ContainerStats(k.ctx(), &cri.ContainerStatsRequest{ContainerId: id})
	k.ok("ContainerStats", err)
	return r.Stats
}

// cgroupFile reads the first of the files that exists in the container's cgroup, or, without a container, in the pods'
// parent. The names of v1 start with the controller, "memory/memory.limit_in_bytes", those of v2 do not.
func (k *kubelet) cgroupFile(container string, names ...string) string {
	k.Helper()
	group := k.CgroupParent
	if container != "" {
		group = filepath.Join(group, "crio-"+container)
	}
	for _, name := range names {
		controller, file := filepath.Split(name)
		for _, suffix := range []string{"", ".scope"} {
			if text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", controller, group+suffix, file)); err == nil {
				return strings.TrimSpace(string(text))
			}
		}
	}
	k.Fatalf("cgroup %s has none of %v, want one", group, names)
	return ""
}

func containerStats(k *kubelet) {
	pod, cfg := k.pod()
	id, ctrCfg := k.runIn(pod, cfg, []string{"sh", "-c", worker}, limited)
	first := k.stats(id)
	if first.GetCpu().GetTimestamp() == 0 || first.GetMemory().GetTimestamp() == 0 ||
		first.GetWritableLayer().GetTimestamp() == 0 {
		k.Errorf("stats right after the start = %v, want timestamps for cpu, memory and writable layer", first)
	}
	var s *cri.ContainerStats
	k.eventually("the container has used CPU and memory", func() bool {
		s = k.stats(id)
		return s.GetCpu().GetUsageCoreNanoSeconds().GetValue() > 2e8 && s.GetCpu().GetUsageNanoCores().GetValue() > 1e7 &&
			s.GetMemory().GetUsageBytes().GetValue() > 7_000_000
	})
	if a := s.GetAttributes(); a.GetId() != id || a.GetMetadata().GetName() != ctrCfg.GetMetadata().GetName() {
		k.Errorf("attributes = %v, want id %s, name %s", a, id, ctrCfg.GetMetadata().GetName())
	}
	if rate := s.GetCpu().GetUsageNanoCores().GetValue(); rate > 8e8 {
		k.Errorf("usage with a quota of half a core = %d nanocores, want at most 800000000", rate)
	}
	m := s.GetMemory()
	if ws := m.GetWorkingSetBytes().GetValue(); ws == 0 || ws > m.GetUsageBytes().GetValue() ||
		m.GetAvailableBytes().GetValue() != 128<<20-ws {
		k.Errorf("memory = %v, want 0 < working set <= usage, and %d available", m, 128<<20-ws)
	}
	if m.GetPageFaults().GetValue() == 0 || m.GetRssBytes().GetValue() == 0 || m.GetMajorPageFaults() == nil {
		k.Errorf("memory = %v, want page faults and rss above 0, and major page faults", m)
	}
	if sw := s.GetSwap(); sw != nil && sw.GetSwapAvailableBytes().GetValue() > 32<<20 {
		k.Errorf("swap = %v, want at most %d available", sw, 32<<20)
	}
	if _, err := os.Stat("/proc/pressure/io"); err == nil &&
		(s.GetIo().GetPsi() == nil || s.GetCpu().GetPsi().GetSome().GetTotal() == 0 || m.GetPsi() == nil) {
		k.Errorf("stats of a throttled container = %v, want pressure of io, cpu (above 0) and memory", s)
	}
	k.eventually("the writable layer was measured", func() bool {
		w := k.stats(id).GetWritableLayer()
		return w.GetUsedBytes().GetValue() >= 3<<20 && w.GetUsedBytes().GetValue() < 4<<20 &&
			w.GetInodesUsed().GetValue() >= 2 &&
			strings.HasPrefix(w.GetFsId().GetMountpoint(), k.Dir)
	})
	k.stopContainer(id, 0)
	gone := k.stats(id)
	if gone.GetCpu() != nil || gone.GetWritableLayer().GetUsedBytes().GetValue() < 3<<20 {
		k.Errorf("stats after the exit = %v, want no cpu, and a writable layer of 3 MiB or more", gone)
	}
	list, err := k.Runtime.ListContainerStats(k.ctx(),
		&cri.ListContainerStatsRequest{Filter: &cri.ContainerStatsFilter{Id: id}})
	if k.ok("ListContainerStats", err); len(list.GetStats()) != 0 {
		k.Errorf("ListContainerStats of an exited container = %v, want none", list)
	}
	k.removeContainer(id)
	_, err = k.Runtime.ContainerStats(k.ctx(), &cri.ContainerStatsRequest{ContainerId: id})
	k.refused("stats of a removed container", err, "", codes.NotFound)
}

func podStats(k *kubelet) {
	pod, cfg := k.pod()
	id, _ := k.runIn(pod, cfg, []string{"sh", "-c", worker}, limited)
	get := func() *cri.LinuxPodSandboxStats {
		r, err := k.Runtime.PodSandboxStats(k.ctx(), &cri.PodSandboxStatsRequest{PodSandboxId: pod})
		k.ok("PodSandboxStats", err)
		return r.GetStats().GetLinux()
	}
	var s *cri.LinuxPodSandboxStats
	k.eventually("the pod has used CPU and network and has processes", func() bool {
		s = get()
		return s.GetNetwork().GetDefaultInterface().GetTxBytes().GetValue() > 100 &&
			s.GetCpu().GetUsageNanoCores().GetValue() > 1e7 &&
			s.GetProcess().GetProcessCount().GetValue() > 0 // the sample may be older than the container
	})
	if i := s.GetNetwork().GetDefaultInterface(); i.GetName() != "eth0" || i.GetRxBytes().GetValue() == 0 ||
		i.GetTxErrors() == nil {
		k.Errorf("network = %v, want eth0 with bytes received and errors", s.GetNetwork())
	}
	if len(s.GetNetwork().GetInterfaces()) != 0 {
		k.Errorf("interfaces other than eth0 = %v, want none", s.GetNetwork().GetInterfaces())
	}
	if s.GetProcess().GetProcessCount().GetValue() == 0 || s.GetMemory().GetUsageBytes().GetValue() == 0 ||
		s.GetCpu().GetUsageCoreNanoSeconds().GetValue() == 0 {
		k.Errorf("pod stats = %v, want processes, memory and cpu above 0", s)
	}
	if len(s.GetContainers()) != 1 || s.GetContainers()[0].GetAttributes().GetId() != id {
		k.Errorf("containers = %v, want only %s", s.GetContainers(), id)
	}
	if own, of := s.GetCpu().GetUsageCoreNanoSeconds().GetValue(),
		s.GetContainers()[0].GetCpu().GetUsageCoreNanoSeconds().GetValue(); own < of/2 {
		k.Errorf("CPU usage of the pod = %d, of its container = %d, want the pod's at least half of that", own, of)
	}
	host, _ := k.pod(func(c *cri.PodSandboxConfig) {
		c.Linux.SecurityContext.NamespaceOptions.Network = cri.NamespaceMode_NODE
	})
	list, err := k.Runtime.ListPodSandboxStats(k.ctx(),
		&cri.ListPodSandboxStatsRequest{Filter: &cri.PodSandboxStatsFilter{Id: host}})
	if k.ok("ListPodSandboxStats", err); len(list.GetStats()) != 1 || list.GetStats()[0].GetLinux().GetNetwork() != nil {
		k.Errorf("stats of a pod on the node's network = %v, want one without network", list)
	}
	k.stopPod(pod)
	list, err = k.Runtime.ListPodSandboxStats(k.ctx(), &cri.ListPodSandboxStatsRequest{})
	if k.ok("ListPodSandboxStats", err); slices.ContainsFunc(list.GetStats(),
		func(s *cri.PodSandboxStats) bool { return s.GetAttributes().GetId() == pod }) {
		k.Errorf("ListPodSandboxStats = %v, want it without the stopped pod %s", list, pod)
	}
}

// topOfPods: podd top sorts pods by what they use, and a name that would turn the line of a terminal does not.
func topOfPods(k *kubelet) {
	pod, cfg := k.pod()
	k.runIn(pod, cfg, []string{"sleep", "1000"}, func(c *cri.ContainerConfig) { c.Metadata.Name = "idle\u202e" })
	busyPod, busyCfg := k.pod()
	busy, _ := k.runIn(busyPod, busyCfg, []string{"sh", "-c", worker}, limited)
	type rates struct {
		ID, Name string
		CPU      uint64 `json:"cpu_nanocores"`
		Memory   uint64 `json:"memory_bytes"`
	}
	var pods []struct {
		rates
		Containers []rates
	}
	k.eventually("the busy pod is the first", func() bool {
		k.poddJSON(&pods, 0, "top", "--interval", "1s")
		return len(pods) == 2 && pods[0].ID == busyPod && pods[0].CPU > 1e8
	})
	if c := pods[0].Containers; len(c) != 1 || c[0].ID != busy || c[0].CPU < 1e8 || c[0].Memory < 7_000_000 {
		k.Errorf("containers of the busy pod = %+v, want %s with CPU and memory", c, busy)
	}
	text, _, _ := k.podd("top", "--interval", "1s", "--sort", "name", "--containers")
	if !strings.Contains(text, "  idle?\n") {
		k.Errorf("podd top printed\n%q\nwant a line for idle?", text)
	}
}

// podMetrics reads the metrics right after the start, as critest does: every described metric has a value, with as many
// labels as its description.
func podMetrics(k *kubelet) {
	pod, cfg := k.pod()
	id, ctrCfg := k.runIn(pod, cfg, []string{"sleep", "1000"}, limited)
	k.exec(id, "mkdir -p /var/lib/test && for i in 1 2 3; do echo hi >/var/lib/test/$i; done")
	descriptors, err := k.Runtime.ListMetricDescriptors(k.ctx(), &cri.ListMetricDescriptorsRequest{})
	k.ok("ListMetricDescriptors", err)
	list, err := k.Runtime.ListPodSandboxMetrics(k.ctx(), &cri.ListPodSandboxMetricsRequest{})
	k.ok("ListPodSandboxMetrics", err)
	if len(list.GetPodMetrics()) != 1 || list.GetPodMetrics()[0].GetPodSandboxId() != pod ||
		len(list.GetPodMetrics()[0].GetContainerMetrics()) != 1 {
		k.Fatalf("pod metrics = %v, want those of pod %s with one container", list.GetPodMetrics(), pod)
	}
	of := list.GetPodMetrics()[0]
	byName := map[string][]*cri.Metric{}
	for _, m := range slices.Concat(of.GetContainerMetrics()[0].GetMetrics(), of.GetMetrics()) {
		byName[m.GetName()] = append(byName[m.GetName()], m)
	}
	for _, d := range descriptors.GetDescriptors() {
		ms := byName[d.GetName()]
		if len(ms) == 0 {
			if _, err := os.Stat("/proc/pressure"); err != nil && strings.Contains(d.GetName(), "pressure") {
				continue
			}
			k.Errorf("%s has no value, want one", d.GetName())
		}
		for _, m := range ms {
			if len(m.GetLabelValues()) != len(d.GetLabelKeys()) {
				k.Errorf("%s: label values = %q, want one for each of %q", d.GetName(), m.GetLabelValues(), d.GetLabelKeys())
			}
		}
	}
	name := ctrCfg.GetMetadata().GetName()
	for metric, want := range map[string]uint64{
		"container_spec_cpu_quota": 50000, "container_spec_cpu_period": 100000,
		"container_spec_memory_limit_bytes": 128 << 20,
		"container_processes":               1, "container_threads": 1, "container_oom_events_total": 0,
	} {
		if len(byName[metric]) == 0 {
			continue // reported above
		}
		m := byName[metric][0]
		if labels := []string{cfg.GetMetadata().GetName(), "test", name, id, busybox,
			id}; !slices.Equal(m.GetLabelValues()[:6], labels) {
			k.Errorf("%s: labels = %q, want %q first", metric, m.GetLabelValues(), labels)
		}
		if m.GetValue().GetValue() != want {
			k.Errorf("%s = %d, want %d", metric, m.GetValue().GetValue(), want)
		}
	}
}

func updateIsReported(k *kubelet) {
	pod, cfg := k.pod()
	id, _ := k.runIn(pod, cfg, []string{"sh", "-c", "sleep 1000 & sleep 1000"}, limited)
	_, err := k.Runtime.UpdateContainerResources(k.ctx(), &cri.UpdateContainerResourcesRequest{ContainerId: id,
		Linux: &cri.LinuxContainerResources{
			CpuShares: 1024, CpuQuota: 30000, CpuPeriod: 100000, MemoryLimitInBytes: 64<<20 + 5,
			MemorySwapLimitInBytes: 64<<20 + 5, OomScoreAdj: 345, CpusetCpus: "0",
		}})
	k.ok("UpdateContainerResources", err)
	r := k.container(id).GetResources().GetLinux()
	if r.GetCpuShares() != 1024 || r.GetCpuQuota() != 30000 || r.GetCpuPeriod() != 100000 || r.GetCpusetCpus() != "0" ||
		r.GetOomScoreAdj() != 345 {
		k.Errorf("reported = %v, want shares 1024, quota 30000, period 100000, cpuset 0, oom_score_adj 345", r)
	}
	if r.GetMemoryLimitInBytes() != 64<<20 { // the kernel rounds to pages
		k.Errorf("reported memory limit = %d, want %d", r.GetMemoryLimitInBytes(), 64<<20)
	}
	if got := k.cgroupFile(id, "memory/memory.limit_in_bytes", "memory.max"); got != strconv.Itoa(64<<20) {
		k.Errorf("memory limit of the cgroup = %s, want %d", got, 64<<20)
	}
	for pid := range strings.FieldsSeq(k.cgroupFile(id, "memory/cgroup.procs", "cgroup.procs")) {
		if adj, err := os.ReadFile("/proc/" + pid + "/oom_score_adj"); err != nil || strings.TrimSpace(string(adj)) != "345" {
			k.Errorf("oom_score_adj of process %s = %q, %v, want 345", pid, adj, err)
		}
	}
	if got := k.exec(id, "cat /proc/1/oom_score_adj"); strings.TrimSpace(got) != "345" {
		k.Errorf("oom_score_adj read in the container = %s, want 345", got)
	}
}

func updatePod(k *kubelet) {
	pod, cfg := k.pod()
	k.runIn(pod, cfg, []string{"sleep", "1000"})
	update := func(id string, overhead, resources *cri.LinuxContainerResources) error {
		_, err := k.Runtime.UpdatePodSandboxResources(k.ctx(), &cri.UpdatePodSandboxResourcesRequest{PodSandboxId: id,
			Overhead: overhead, Resources: resources})
		return err
	}
	k.ok("UpdatePodSandboxResources", update(pod, &cri.LinuxContainerResources{MemoryLimitInBytes: 1 << 20},
		&cri.LinuxContainerResources{CpuQuota: 70000, CpuPeriod: 100000, MemoryLimitInBytes: 200 << 20}))
	if got := k.cgroupFile("", "memory/memory.limit_in_bytes", "memory.max"); got != strconv.Itoa(201<<20) {
		k.Errorf("memory limit of the pod's cgroup = %s, want %d", got, 201<<20)
	}
	if got := k.cgroupFile("", "cpu/cpu.cfs_quota_us", "cpu.max"); strings.Fields(got)[0] != "70000" {
		k.Errorf("CPU quota of the pod's cgroup = %s, want 70000", got)
	}
	other, otherCfg := k.pod()
	k.runIn(other, otherCfg, []string{"sleep", "1000"})
	k.refused("update of a pod that shares its cgroup_parent",
		update(pod, nil, &cri.LinuxContainerResources{CpuShares: 100}), "holds more", codes.FailedPrecondition)
	bare, _ := k.pod(func(c *cri.PodSandboxConfig) { c.Linux.CgroupParent = "" })
	k.refused("update of a pod without a cgroup_parent", update(bare, nil, &cri.LinuxContainerResources{CpuShares: 100}),
		"cgroup_parent", codes.FailedPrecondition)
	k.refused("update of a pod that does not exist", update("ffff", nil, &cri.LinuxContainerResources{CpuShares: 100}),
		"", codes.NotFound)
}

// lowerPodAfterStop does what a kubelet does when a CPU limit is lowered whose resize policy is RestartContainer. Of
// cgroup v1 the kernel refuses a quota that is lower than that of a cgroup below.
func lowerPodAfterStop(k *kubelet) {
	pod, cfg := k.pod()
	quota := func(quota int64) {
		k.Helper()
		_, err := k.Runtime.UpdatePodSandboxResources(k.ctx(), &cri.UpdatePodSandboxResourcesRequest{PodSandboxId: pod,
			Resources: &cri.LinuxContainerResources{CpuQuota: quota, CpuPeriod: 100000}})
		k.ok("UpdatePodSandboxResources", err)
	}
	for want := int64(60000); want > 20000; want -= 10000 {
		id, _ := k.runIn(pod, cfg, []string{"sleep", "1000"}, func(c *cri.ContainerConfig) {
			c.Metadata.Attempt = uint32(want) // as in a restart
			c.Linux.Resources = &cri.LinuxContainerResources{CpuQuota: want + 10000, CpuPeriod: 100000}
		})
		quota(want + 10000) // the pod's cgroup exists now
		k.stopContainer(id, 0)
		quota(want)
	}
}

// statsLeaveNothing: after the removal of pods whose usage was measured, podd has no more open files than before. The
// durations of the calls are only logged, because this podd is built with the race detector.
func statsLeaveNothing(k *kubelet) {
	files := func() int {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", k.Pid()))
		k.ok("list podd's files", err)
		return len(entries)
	}
	const containers, pods, metrics = "ListContainerStats", "ListPodSandboxStats", "ListPodSandboxMetrics"
	took := map[string][]time.Duration{}
	measure := func(name string, call func() (int, error)) {
		start := time.Now()
		n, err := call()
		took[name] = append(took[name], time.Since(start))
		if k.ok(name, err); n != 20 {
			k.Errorf("%s: %d items, want 20", name, n)
		}
	}
	before := files()
	for range 20 {
		k.sleeper()
	}
	for range 5 {
		time.Sleep(1100 * time.Millisecond) // until the samples are old
		measure(containers, func() (int, error) {
			r, err := k.Runtime.ListContainerStats(k.ctx(), &cri.ListContainerStatsRequest{})
			return len(r.GetStats()), err
		})
		measure(pods, func() (int, error) {
			r, err := k.Runtime.ListPodSandboxStats(k.ctx(), &cri.ListPodSandboxStatsRequest{})
			return len(r.GetStats()), err
		})
		measure(metrics, func() (int, error) {
			r, err := k.Runtime.ListPodSandboxMetrics(k.ctx(), &cri.ListPodSandboxMetricsRequest{})
			return len(r.GetPodMetrics()), err
		})
	}
	for name, times := range took {
		slices.Sort(times)
		k.Logf("%s of 20 pods takes %v (median)", name, times[2])
	}
	k.Logf("%d files are open, %d without pods", files(), before)
	k.ok("remove the pods", k.RemovePods(k.ctx()))
	// 5 more for connections
	k.eventually("podd has closed the files of the pods", func() bool { return files() <= before+5 })
}
