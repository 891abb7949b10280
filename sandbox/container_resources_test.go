package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/sandbox/record"
)

// sleeper is a real process whose oom_score_adj may be changed.
func sleeper(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	must(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd.Process.Pid
}

func TestUpdateIsToldAsTheKernelHasIt(t *testing.T) {
	e, f := measuring(t)
	e.deps.Facts.HugepageSizes, e.deps.Facts.Hugetlb = []string{"2MB"}, true
	id, g := running(t, e, f, mustRunPod(t, e, "web"), "main")
	g.procs = []int{sleeper(t), sleeper(t)}
	g.limits = cgroups.Limits{
		CPUShares: 511, CPUWeight: 59, CPUQuota: 20000, CPUPeriod: 100000, CPUs: "0-1",
		Memory: 99 << 20, MemorySwap: 99 << 20, Hugepages: map[string]uint64{"2MB": 2 << 20},
	}
	must(t, e.UpdateContainer(t.Context(), id, &cri.LinuxContainerResources{
		CpuShares: 512, MemoryLimitInBytes: 99<<20 + 5, OomScoreAdj: 321,
		HugepageLimits: []*cri.HugepageLimit{{PageSize: "2MB", Limit: 2<<20 + 1}},
	}))
	got := container(t, e, id).Resources
	want := &cri.LinuxContainerResources{
		CpuShares: 512, CpuQuota: 20000, CpuPeriod: 100000, CpusetCpus: "0-1",
		MemoryLimitInBytes: 99 << 20, MemorySwapLimitInBytes: 99 << 20,
		HugepageLimits: []*cri.HugepageLimit{{PageSize: "2MB", Limit: 2 << 20}}, OomScoreAdj: got.GetOomScoreAdj(),
	}
	if !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	for _, pid := range g.procs {
		if adj, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid)); err != nil || string(adj) != "321\n" {
			t.Errorf("oom_score_adj of a process = %q, %v, want 321", adj, err)
		}
	}
	if len(g.updates) != 1 || len(g.updates[0].HugepageLimits) != 1 || g.updates[0].CPU != nil {
		t.Errorf("the group was told %+v: what the OCI runtime writes is its business", g.updates)
	}
	if n := f.openGroups(); n != 0 {
		t.Errorf("%d groups are open", n)
	}
}

func TestUnifiedIsToldAsTheKernelHasIt(t *testing.T) {
	f := newFakeCgroups()
	f.add("/a").unified = map[string]string{"memory.high": "4096", "io.max": "8:0 rbps=1\n8:16 rbps=2"}
	g, err := f.At("/a")
	must(t, err)
	asked := map[string]string{"memory.high": "5000", "io.max": "8:0 rbps=1", "gone.max": "7"}
	got, err := actualResources(g, &cri.LinuxContainerResources{Unified: asked}, sleeper(t))
	must(t, err)
	want := map[string]string{"memory.high": "4096", "io.max": "8:0 rbps=1", "gone.max": "7"}
	if !maps.Equal(got.GetUnified(), want) || asked["memory.high"] != "5000" {
		t.Errorf("got %v, want %v", got.GetUnified(), want)
	}
}

func TestUpdateOfAContainerThatEnds(t *testing.T) {
	e, f := measuring(t)
	id, g := running(t, e, f, mustRunPod(t, e, "web"), "main")
	g.gone = true
	must(t, e.UpdateContainer(t.Context(), id, &cri.LinuxContainerResources{CpuShares: 512, OomScoreAdj: 5}))
	if got := container(t, e, id).Resources.GetCpuShares(); got != 512 {
		t.Errorf("CpuShares = %d, want 512", got)
	}
	g.gone, g.err = false, errInjected
	if err := e.UpdateContainer(t.Context(), id, &cri.LinuxContainerResources{CpuShares: 256}); err == nil {
		t.Error("an update that failed was told to have worked")
	}
	outOfRange := &cri.LinuxContainerResources{OomScoreAdj: 1001}
	if err := e.UpdateContainer(t.Context(), id, outOfRange); !errdefs.IsInvalidArgument(err) {
		t.Errorf("oom_score_adj out of range: %v", err)
	}
}

// TestUpdateWithoutEffect: the status shows what was requested, which the scheduler counts.
func TestUpdateWithoutEffect(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	id := mustCreate(t, e, mustRunPod(t, e, "web"), "main")
	mustStart(t, e, id)
	h.on("update", func(context.Context, string) error { return fmt.Errorf("container: %w", oci.ErrNoEffect) })
	must(t, e.UpdateContainer(t.Context(), id, &cri.LinuxContainerResources{CpuShares: 512}))
	if got := container(t, e, id).Resources.GetCpuShares(); got != 512 {
		t.Errorf("shares in the status = %d, want the requested 512", got)
	}
}

// TestFailedUpdateIsTakenBack: a part of an update that failed may be in force.
func TestFailedUpdateIsTakenBack(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	id := mustCreate(t, e, mustRunPod(t, e, "web"), "main")
	mustStart(t, e, id)
	must(t, e.UpdateContainer(t.Context(), id, &cri.LinuxContainerResources{CpuShares: 512}))
	failed, calls := h.count("update"), 0
	h.on("update", func(context.Context, string) error {
		if calls++; calls == 1 {
			return errInjected
		}
		return nil
	})
	err := e.UpdateContainer(t.Context(), id, &cri.LinuxContainerResources{CpuShares: 1024})
	if !errors.Is(err, errInjected) || h.count("update") != failed+2 {
		t.Errorf("update = %v with %d calls, want %v, with one that takes it back", err, h.count("update")-failed,
			errInjected)
	}
	_, set, _ := m.runtimes["runc"].Request(id)
	if got := container(t, e, id).Resources.GetCpuShares(); got != 512 || set == nil || *set.CPU.Shares != 512 {
		t.Errorf("shares in the status = %d, set %+v, want 512 as before", got, set)
	}
}

func TestUpdatePod(t *testing.T) {
	type resources = cri.LinuxContainerResources
	for name, tt := range map[string]struct {
		overhead, resources *resources
		want                specs.LinuxResources
	}{
		"limits": {nil, &resources{CpuShares: 512, CpuQuota: 20000, CpuPeriod: 100000, MemoryLimitInBytes: 1 << 20},
			specs.LinuxResources{
				CPU:    &specs.LinuxCPU{Quota: new(int64(20000)), Period: new(uint64(100000))},
				Memory: &specs.LinuxMemory{Limit: new(int64(1 << 20))}}},
		"overhead is added": {&resources{CpuShares: 100, CpuQuota: 5000, CpuPeriod: 50000, MemoryLimitInBytes: 4096},
			&resources{CpuShares: 512, CpuQuota: 20000, CpuPeriod: 100000, MemoryLimitInBytes: 8192}, specs.LinuxResources{
				CPU:    &specs.LinuxCPU{Quota: new(int64(30000)), Period: new(uint64(100000))},
				Memory: &specs.LinuxMemory{Limit: new(int64(12288))}}},
		"no limit stays none": {&resources{CpuQuota: 5000, CpuPeriod: 50000, MemoryLimitInBytes: 4096},
			&resources{CpuQuota: -1, MemoryLimitInBytes: -1}, specs.LinuxResources{
				CPU: &specs.LinuxCPU{Quota: new(int64(-1))}, Memory: &specs.LinuxMemory{Limit: new(int64(-1))}}},
		"overhead alone": {&resources{CpuShares: 100, MemoryLimitInBytes: 4096}, nil, specs.LinuxResources{}},
		"swap when it is named": {nil, &resources{MemoryLimitInBytes: 4096, MemorySwapLimitInBytes: 8192},
			specs.LinuxResources{
				Memory:  &specs.LinuxMemory{Limit: new(int64(4096)), Swap: new(int64(8192))},
				Unified: map[string]string{"memory.swap.max": "4096"}}},
		"swap when its file is named": {nil,
			&resources{MemoryLimitInBytes: 4096, Unified: map[string]string{"memory.swap.max": "5"}}, specs.LinuxResources{
				Memory: &specs.LinuxMemory{Limit: new(int64(4096))}, Unified: map[string]string{"memory.swap.max": "5"}}},
	} {
		t.Run(name, func(t *testing.T) {
			e, f := measuring(t)
			e.deps.Facts.Swap, e.deps.Facts.CgroupV2 = true, true
			pod := runPodIn(t, e, "web", "/mine", "uid")
			g := f.add("/mine")
			must(t, e.UpdatePod(t.Context(), pod, tt.overhead, tt.resources))
			if len(g.updates) != 1 || !same(g.updates[0], &tt.want) {
				t.Errorf("the group got %+v, want %+v", g.updates, tt.want)
			}
			if n := f.openGroups(); n != 0 {
				t.Errorf("%d groups are open", n)
			}
		})
	}
}

// TestUpdateOfPodIsKept: plugins and status have the limits of the last updates, also when the record is read again.
func TestUpdateOfPodIsKept(t *testing.T) {
	e, f := measuring(t)
	pod := runPodIn(t, e, "web", "/mine", "uid")
	f.add("/mine")
	must(t, e.UpdatePod(t.Context(), pod, &cri.LinuxContainerResources{CpuShares: 20},
		&cri.LinuxContainerResources{CpuShares: 512, MemoryLimitInBytes: 1 << 20}))
	must(t, e.UpdatePod(t.Context(), pod, nil, &cri.LinuxContainerResources{MemoryLimitInBytes: 2 << 20}))
	p, err := e.Pod(pod)
	must(t, err)
	data, err := json.Marshal(p.Status())
	must(t, err)
	var read record.PodStatus
	must(t, json.Unmarshal(data, &read))
	want := &cri.LinuxPodSandboxConfig{CgroupParent: "/mine", Overhead: &cri.LinuxContainerResources{CpuShares: 20},
		Resources: &cri.LinuxContainerResources{CpuShares: 512, MemoryLimitInBytes: 2 << 20}}
	for name, status := range map[string]record.PodStatus{"now": p.Status(), "read": read} {
		got := record.PodView{Pod: &p.Pod, Status: status}.Linux()
		got.SecurityContext = nil
		if !proto.Equal(got, want) {
			t.Errorf("%s: the pod's part for Linux = %v, want %v", name, got, want)
		}
	}
}

func same(a, b *specs.LinuxResources) bool { return asJSON(a) == asJSON(b) }

func TestUpdatePodRefuses(t *testing.T) {
	e, f := measuring(t)
	limits := &cri.LinuxContainerResources{MemoryLimitInBytes: 1 << 20}
	shared := f.add("/all")
	shared.children = []string{"somebody"}
	for name, pod := range map[string]string{
		"no cgroup_parent": mustRunPod(t, e, "a"), "a shared one": runPodIn(t, e, "b", "/all", "uid"),
		"one that is not there": runPodIn(t, e, "c", "/gone", "uid"),
	} {
		if err := e.UpdatePod(t.Context(), pod, nil, limits); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%s: UpdatePod = %v, want a failed precondition", name, err)
		}
	}
	stopped := runPodIn(t, e, "d", "/mine", "uid")
	f.add("/mine")
	must(t, e.StopPod(t.Context(), stopped))
	err := e.UpdatePod(t.Context(), stopped, nil, limits)
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "notready") {
		t.Errorf("UpdatePod of a stopped pod = %v, want a failed precondition", err)
	}
	if err := e.UpdatePod(t.Context(), "absent", nil, limits); !errdefs.IsNotFound(err) {
		t.Errorf("UpdatePod of no pod = %v, want not found", err)
	}
	ready := runPodIn(t, e, "e", "/mine", "uid")
	for _, bad := range []*cri.LinuxContainerResources{{CpuShares: -1}, {MemoryLimitInBytes: -2}} {
		if err := e.UpdatePod(t.Context(), ready, nil, bad); !errdefs.IsInvalidArgument(err) {
			t.Errorf("UpdatePod(%v) = %v, want an invalid argument", bad, err)
		}
		if err := e.UpdatePod(t.Context(), ready, bad, limits); !errdefs.IsInvalidArgument(err) {
			t.Errorf("UpdatePod with the overhead %v = %v, want an invalid argument", bad, err)
		}
	}
	if n := f.openGroups(); n != 0 {
		t.Errorf("%d groups are open", n)
	}
	written := func(g *fakeGroup) bool { return len(g.updates) > 0 }
	if slices.ContainsFunc([]*fakeGroup{shared, f.groups["/mine"]}, written) {
		t.Error("something was written")
	}
}
