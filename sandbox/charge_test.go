package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/budget"
)

// annotated is a container with an annotation of n bytes, such as the kubelet makes of a preStop hook.
func annotated(name string, n int) *cri.ContainerConfig {
	c := containerConfig(name)
	c.Annotations = map[string]string{"io.kubernetes.container.preStopHandler": strings.Repeat("x", n)}
	return c
}

func wantRefused(t *testing.T, err error, name string) {
	t.Helper()
	var refused *budget.RefusedError
	if !errors.As(err, &refused) || refused.Budget != name || !errdefs.IsResourceExhausted(err) {
		t.Fatalf("error = %v, want that the budget %q refuses", err, name)
	}
}

// inUse returns how much of each budget is in use, by name.
func inUse(e *Engine) map[string]int64 {
	used := map[string]int64{}
	for _, u := range e.deps.Budgets.Usages() {
		used[u.Name] = u.InUse
	}
	return used
}

// TestListsHaveABudget: authors of pods cannot make lists larger than a message, in one pod or in many, also after a
// restart. Ordinary pods can be created nevertheless.
func TestListsHaveABudget(t *testing.T) {
	m := newMachine(t)
	e, _ := newEngine(t, m)
	pod := mustRunPod(t, e, "web")
	first, err := e.CreateContainer(t.Context(), pod, annotated("first", 1_000_000))
	must(t, err)
	_, err = e.CreateContainer(t.Context(), pod, annotated("second", 1_000_000))
	wantRefused(t, err, "lists and statuses")

	var answers int
	for i := range 66 {
		cfg := podConfig(fmt.Sprint("many-", i))
		cfg.Annotations = map[string]string{"a": strings.Repeat("x", 250<<10)}
		if _, err = e.RunPod(t.Context(), cfg, ""); err == nil {
			answers += proto.Size(cfg)
		}
	}
	wantRefused(t, err, "lists and statuses")
	if answers < 8<<20 || answers > 12<<20 {
		t.Errorf("pods with annotations of %d bytes could be created, want about 10 MiB", answers)
	}

	before := inUse(e)
	must(t, e.Close(t.Context()))
	e, _ = newEngine(t, m)
	if after := inUse(e); !maps.Equal(after, before) {
		t.Errorf("in use after a restart: %v, want %v as before", after, before)
	}
	_, err = e.CreateContainer(t.Context(), pod, annotated("second", 1_000_000))
	wantRefused(t, err, "lists and statuses")
	mustCreate(t, e, mustRunPod(t, e, "ordinary"), "app")

	must(t, e.RemoveContainer(t.Context(), first))
	_, err = e.CreateContainer(t.Context(), pod, annotated("second", 1_000_000))
	must(t, err)
	for _, p := range e.Pods() {
		must(t, e.RemovePod(t.Context(), p.ID))
	}
	if used := inUse(e); used["lists and statuses"] != 0 || used["configurations"] != 0 {
		t.Errorf("without pods %v is in use, want nothing", used)
	}
}

// TestConfigurationsHaveABudget: environments cannot fill podd's memory and the run directory. In records they are
// base64, a third larger.
func TestConfigurationsHaveABudget(t *testing.T) {
	e, _ := newEngine(t, newMachine(t))
	large := func(name string) *cri.ContainerConfig {
		c := containerConfig(name)
		c.Envs = []*cri.KeyValue{{Key: "A", Value: []byte(strings.Repeat("x", 2<<20))}}
		return c
	}
	kept := 0
	for i := range 12 {
		pod := mustRunPod(t, e, fmt.Sprint("pod-", i))
		for j := range 9 {
			_, err := e.CreateContainer(t.Context(), pod, large(fmt.Sprint("app-", j)))
			if err != nil {
				wantRefused(t, err, "configurations")
				break
			}
			kept += 2 << 20
		}
		mustCreate(t, e, pod, "ordinary")
	}
	if kept < 40<<20 || kept > 64<<20 {
		t.Errorf("environments of %d bytes are kept, want not much less than 64 MiB", kept)
	}
}

// TestPodsBeyondTheBudgets: pods of an older podd, which are larger than the budgets allow, stay and can be removed.
func TestPodsBeyondTheBudgets(t *testing.T) {
	m := newMachine(t)
	e, _ := newEngine(t, m)
	e.deps.Budgets = &budget.Table{} // without limits
	for i := range 3 {
		pod := mustRunPod(t, e, fmt.Sprint("pod-", i))
		for j := range 9 {
			_, err := e.CreateContainer(t.Context(), pod, annotated(fmt.Sprint("app-", j), 1_000_000))
			must(t, err)
		}
	}
	must(t, e.Close(t.Context()))
	e, _ = newEngine(t, m)
	if pods, containers := len(e.Pods()), len(e.Containers()); pods != 3 || containers != 27 {
		t.Errorf("%d pods and %d containers after a restart, want 3 and 27", pods, containers)
	}
	for _, p := range e.Pods() {
		must(t, e.RemovePod(t.Context(), p.ID))
	}
	if used := inUse(e)["lists and statuses"]; used != 0 {
		t.Errorf("%d bytes are in use without pods, want 0", used)
	}
}

// TestImageVolumesAreMountedOnce: each image that a container has as volumes is one mount of the node, however many
// paths it has, and pods have a budget of them.
func TestImageVolumesAreMountedOnce(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	pod := mustRunPod(t, e, "web")
	c := containerConfig("app")
	for i := range 60 {
		c.Mounts = append(c.Mounts, &cri.Mount{
			ContainerPath: fmt.Sprint("/volume-", i), Image: &cri.ImageSpec{Image: "busybox"},
		})
	}
	_, err := e.CreateContainer(t.Context(), pod, c)
	must(t, err)
	if n := h.count("volume"); n != 1 {
		t.Errorf("%d mounts of one image for one container, want 1", n)
	}
	for i := range 140 {
		c := containerConfig(fmt.Sprint("more-", i))
		c.Mounts = []*cri.Mount{{ContainerPath: "/volume", Image: &cri.ImageSpec{Image: "busybox"}}}
		if _, err = e.CreateContainer(t.Context(), pod, c); err != nil {
			break
		}
	}
	wantRefused(t, err, "image volumes")
}

// TestCommandsHaveABudget: their descriptions, with the environment, are in the run directory while they run.
func TestCommandsHaveABudget(t *testing.T) {
	e, _ := newEngine(t, newMachine(t))
	pod := mustRunPod(t, e, "web")
	c, err := e.Container(mustCreate(t, e, pod, "app"))
	must(t, err)
	config := make([]byte, 2<<20)
	var releases []func()
	for range 3 {
		release, err := e.chargeCommand(c, config, []string{"true"})
		must(t, err)
		releases = append(releases, release)
	}
	_, err = e.chargeCommand(c, config, []string{"true"})
	wantRefused(t, err, "commands of exec")
	for _, release := range releases {
		release()
	}
	must(t, e.StartContainer(t.Context(), c.ID))
	for range 10 {
		_, err := e.ExecSync(t.Context(), c.ID, []string{"true"}, 0)
		must(t, err)
	}
	if used := inUse(e)["commands of exec"]; used != 0 {
		t.Errorf("%d bytes are in use after the commands, want 0", used)
	}
}

// TestSmallOnesAddUp: thousands of small containers of one pod count as much as a large one.
func TestSmallOnesAddUp(t *testing.T) {
	e, _ := newEngine(t, newMachine(t))
	pod := mustRunPod(t, e, "web")
	var err error
	for i := 0; err == nil && i < 300; i++ {
		c := containerConfig(fmt.Sprint("small-", i))
		c.Envs = []*cri.KeyValue{{Key: "A", Value: []byte(strings.Repeat("x", 50<<10))}}
		_, err = e.CreateContainer(t.Context(), pod, c)
	}
	wantRefused(t, err, "configurations")
}
