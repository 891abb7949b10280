package sandbox

import (
	"errors"
	"slices"
	"testing"

	"github.com/containerd/nri/pkg/api"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/nri"
	"github.com/podd-project/podd/sandbox/record"
)

// TestAdjustmentIsRecorded: the status has what plugins changed, also after a restart.
func TestAdjustmentIsRecorded(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	e.deps.Plugins.(*fakePlugins).adjustment = nri.Adjustment{
		Fields:    map[string][]string{"10-cpu": {"CPUShares"}},
		Resources: &cri.LinuxContainerResources{CpuShares: 77},
	}
	id := mustCreate(t, e, mustRunPod(t, e, "web"), "main")
	for _, when := range []string{"after the creation", "after a restart"} {
		s := container(t, e, id)
		if s.Resources.GetCpuShares() != 77 || !slices.Equal(s.Adjusted["10-cpu"], []string{"CPUShares"}) {
			t.Errorf("%s: resources %v, adjusted %v, want 77 shares by 10-cpu", when, s.Resources, s.Adjusted)
		}
		e, h = restart(t, m, e, h)
	}
	removeEverything(t, e)
	noLeaks(t, m)
}

// TestPluginRefusesStart: the container has exited, with the reason that the kubelet knows.
func TestPluginRefusesStart(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	id := mustCreate(t, e, mustRunPod(t, e, "web"), "main")
	h.fail("plugins")
	if err := e.StartContainer(t.Context(), id); !errors.Is(err, errInjected) {
		t.Errorf("StartContainer = %v, want %v", err, errInjected)
	}
	if s := container(t, e, id); s.State != record.ContainerExited || s.Reason != reasonStartError {
		t.Errorf("container is %s with reason %s, want exited with %s", s.State, s.Reason, reasonStartError)
	}
	removeEverything(t, e)
	noLeaks(t, m)
}

// TestPluginsChangeUpdates: what they want instead is set and in the status; limits that they set by themselves are
// set without asking them.
func TestPluginsChangeUpdates(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	id := mustCreate(t, e, mustRunPod(t, e, "web"), "main")
	e.deps.Plugins.(*fakePlugins).limits = &nri.Resources{
		CRI:  &cri.LinuxContainerResources{CpuShares: 3},
		Rest: &api.LinuxResources{Pids: &api.LinuxPids{Limit: 9}},
	}
	must(t, e.UpdateContainer(t.Context(), id, &cri.LinuxContainerResources{CpuShares: 2}))
	if got := container(t, e, id).Resources.GetCpuShares(); got != 3 {
		t.Errorf("shares in the status = %d, want 3", got)
	}
	if _, got, _ := m.runtimes["runc"].Request(id); got == nil || *got.CPU.Shares != 3 || *got.Pids.Limit != 9 {
		t.Errorf("the runtime has set %+v, want 3 shares and 9 tasks", got)
	}
	h.fail("update")
	err := e.UpdateContainer(t.Context(), id, &cri.LinuxContainerResources{CpuShares: 2})
	if !errors.Is(err, errInjected) {
		t.Errorf("UpdateContainer = %v, want %v", err, errInjected)
	}
	h.heal("update")
	if got := e.deps.Plugins.(*fakePlugins).outcomes; len(got) != 2 || got[0] != nil || !errors.Is(got[1], errInjected) {
		t.Errorf("plugins were told of the outcomes %v, want success and %v", got, errInjected)
	}
	asked := h.count("plugins update")
	unasked := ForPlugins(e, nil)
	must(t, unasked.Update(t.Context(), id, nri.Resources{CRI: &cri.LinuxContainerResources{CpuShares: 5}}))
	must(t, unasked.Update(t.Context(), "absent", nri.Resources{}))
	if got := container(t, e, id).Resources.GetCpuShares(); got != 5 || h.count("plugins update") != asked {
		t.Errorf("shares = %d after a plugin's update, asked %d times, want 5 and none", got, h.count("plugins update")-asked)
	}
	must(t, unasked.Evict(t.Context(), id, "test"))
	if s := container(t, e, id).State; s != record.ContainerExited {
		t.Errorf("an evicted container is %s, want exited", s)
	}
}

// TestExistingForPlugins: what plugins are synchronised with.
func TestExistingForPlugins(t *testing.T) {
	m := newMachine(t)
	e, _ := newEngine(t, m)
	pod := mustRunPod(t, e, "web")
	stopped := mustRunPod(t, e, "stopped")
	must(t, e.StopPod(t.Context(), stopped))
	created, exited := mustCreate(t, e, pod, "main"), mustCreate(t, e, pod, "exited")
	must(t, e.StopContainer(t.Context(), exited, 0))
	pods, containers := ForPlugins(e, nil).Existing()
	if len(pods) != 1 || pods[0].ID != pod || len(containers) != 1 || containers[0].ID != created {
		t.Errorf("existing = %d pods, %d containers, want %s and %s", len(pods), len(containers), pod, created)
	}
}
