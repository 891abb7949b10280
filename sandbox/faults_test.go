package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/test/sample"
)

// verb is one step of a pod's life in the order of a kubelet; failures and crashes are injected into each.
type verb struct {
	name string
	do   func(ctx context.Context, l *podLife) error
}

// podLife is a pod with one container on its way through the verbs.
type podLife struct {
	e              *Engine
	name           string
	pod, container string
	handler        string // of a pod that is saved
	// snapshot is the directory of a checkpoint, restored a container from it.
	snapshot, restored string
}

var verbs = []verb{
	{"RunPod", func(ctx context.Context, l *podLife) (err error) {
		l.pod, err = l.e.RunPod(ctx, podConfig(l.name), "")
		return err
	}},
	{"CreateContainer", func(ctx context.Context, l *podLife) (err error) {
		l.container, err = l.e.CreateContainer(ctx, l.pod, containerConfig("main"))
		return err
	}},
	{"StartContainer", func(ctx context.Context, l *podLife) error { return l.e.StartContainer(ctx, l.container) }},
	{"ExecSync", func(ctx context.Context, l *podLife) error {
		_, err := l.e.ExecSync(ctx, l.container, []string{"true"}, time.Second)
		return err
	}},
	{"StopContainer", func(ctx context.Context, l *podLife) error { return l.e.StopContainer(ctx, l.container, 0) }},
	{"RemoveContainer", func(ctx context.Context, l *podLife) error { return l.e.RemoveContainer(ctx, l.container) }},
	{"StopPod", func(ctx context.Context, l *podLife) error { return l.e.StopPod(ctx, l.pod) }},
	{"RemovePod", func(ctx context.Context, l *podLife) error { return l.e.RemovePod(ctx, l.pod) }},
}

// scenario is a verb in a certain moment of a pod's life.
type scenario struct {
	name    string
	earlier []verb
	verb    verb
}

// scenarios are every verb in its order, and those that a kubelet also calls without the ones before.
func scenarios() []scenario {
	var all []scenario
	for v, one := range verbs {
		all = append(all, scenario{one.name, verbs[:v], one})
	}
	started := verbs[:3]
	for _, v := range verbs[5:] {
		all = append(all, scenario{v.name + " of what runs", started, v})
	}
	for _, handler := range checkpointHandlers {
		all = append(all, checkpointScenarios(handler)...)
	}
	return append(all,
		scenario{"Exec", started, verb{"Exec", func(ctx context.Context, l *podLife) error {
			_, err := l.e.Exec(ctx, l.container, []string{"true"}, false, oci.Streams{Stdout: io.Discard})
			return err
		}}},
		scenario{"UpdateContainer", started, verb{"UpdateContainer", func(ctx context.Context, l *podLife) error {
			return l.e.UpdateContainer(ctx, l.container, &cri.LinuxContainerResources{CpuShares: 100})
		}}},
		scenario{"CheckpointContainer", started, verbDump})
}

// checkpointScenarios are the verbs of checkpoints of pods of a handler, and those after them.
func checkpointScenarios(handler string) []scenario {
	saved := append(runsOn(handler), verbCheckpoint)
	restored := append(slices.Clone(saved), verbRestore)
	onRestored := func(name string, do func(e *Engine, ctx context.Context, id string) error) verb {
		return verb{name, func(ctx context.Context, l *podLife) error { return do(l.e, ctx, l.restored) }}
	}
	start := onRestored("StartContainer", (*Engine).StartContainer)
	stop := onRestored("StopContainer", func(e *Engine, ctx context.Context, id string) error {
		return e.StopContainer(ctx, id, 0)
	})
	return []scenario{
		{"CheckpointPod of " + handler, runsOn(handler), verbCheckpoint},
		{"RestorePod of " + handler, saved, verbRestore},
		{"StartContainer of what is restored of " + handler, restored, start},
		{"StopContainer of what is restored of " + handler, restored, stop},
	}
}

// eachStep tests each scenario with a failure, before and after its effect, of each outside call k of its verb that
// the sample takes (every fourth), until the verb makes no call number k; crash ends the engine there instead.
// Everything that the pod's earlier life started has come to rest before, so k means the same call each time. do does
// the verb in a synctest bubble, and returns whether it came to call k and the engine that has to clean up afterwards.
func eachStep(
	t *testing.T, crash bool, do func(t *testing.T, s scenario, m *machine, l *podLife, h *faults) (*Engine, bool),
) {
	for i, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for _, late := range []bool{false, true} {
				first, distance := sample.Every(4, i, late)
				t.Logf("call %d and every %d after it, late=%v", first, distance, late)
				for k, reached := first, true; reached && !t.Failed(); k += distance {
					t.Run(fmt.Sprintf("call %d late=%v", k, late), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							m := newMachine(t)
							e, h := newEngine(t, m)
							l := &podLife{e: e, name: "web"}
							for _, earlier := range s.earlier {
								must(t, earlier.do(t.Context(), l))
							}
							synctest.Wait()
							h.arm(k, late, crash)
							e, reached = do(t, s, m, l, h)
							removeEverything(t, e)
							noLeaks(t, m)
							makeAgain(t, m, e)
						})
					})
				}
			}
		})
	}
}

func TestFailAtEveryStep(t *testing.T) {
	eachStep(t, false, func(t *testing.T, s scenario, m *machine, l *podLife, h *faults) (*Engine, bool) {
		err := s.verb.do(t.Context(), l)
		synctest.Wait()
		reached := len(h.callNames()) >= h.failAt
		h.arm(0, false, false)
		if err != nil && !errors.Is(err, errInjected) {
			t.Fatalf("%s = %v, want it to wrap %v", s.name, err, errInjected)
		}
		nothingHalfMade(t, l.e)
		return l.e, reached
	})
}

// nothingHalfMade: a creation that failed is undone by itself, and what is on the machine is in a record.
func nothingHalfMade(t *testing.T, e *Engine) {
	t.Helper()
	for _, p := range e.store.pods.List(nil) {
		if s := p.Status().State; s == record.PodCreating {
			t.Errorf("pod %s is %s, want it undone", p.ID, s)
		}
	}
	for _, c := range e.store.containers.List(nil) {
		if s := c.Status().State; s == record.ContainerCreating {
			t.Errorf("container %s is %s, want it undone", c.ID, s)
		}
	}
	findings, err := e.Check(t.Context())
	must(t, err)
	for _, f := range findings {
		if f.Problem == FindingLeak {
			t.Errorf("Check found %+v, want no leak", f)
		}
	}
}

// makeAgain makes and removes a pod of the same name: the name is free.
func makeAgain(t *testing.T, m *machine, e *Engine) {
	t.Helper()
	again, err := e.RunPod(t.Context(), podConfig("web"), "")
	must(t, err)
	must(t, e.RemovePod(t.Context(), again))
	noLeaks(t, m)
}

func TestCrashAtEveryStep(t *testing.T) {
	eachStep(t, true, func(t *testing.T, s scenario, m *machine, l *podLife, h *faults) (*Engine, bool) {
		crashed := h.runUntilDead(func(ctx context.Context) { s.verb.do(ctx, l) })
		kill(l.e, h)
		if h.failAt%2 == 0 {
			takeBackSyncs(t, m)
		}
		e, _ := newEngine(t, m)
		for _, p := range e.Pods() {
			if s := p.Status().State; s != record.PodReady && s != record.PodNotReady {
				t.Errorf("pod is %s after the restart, want %s or %s", s, record.PodReady, record.PodNotReady)
			}
		}
		nothingHalfMade(t, e)
		return e, crashed
	})
}

// takeBackSyncs does as if podd had been killed before the records of what was being created were synced.
func takeBackSyncs(t *testing.T, m *machine) {
	t.Helper()
	for _, dir := range []string{"root/pods/*", "root/pods/*/containers/*"} {
		found, err := filepath.Glob(filepath.Join(m.dir, dir, record.StatusFile))
		must(t, err)
		for _, path := range found {
			if !strings.HasPrefix(filepath.Base(filepath.Dir(path)), ".") { // a leftover, not a record
				takeBackSync(t, filepath.Dir(path))
			}
		}
	}
}

// removeEverything does what a kubelet does with pods that it does not want: stop and remove, again on failure.
func removeEverything(t *testing.T, e *Engine) {
	t.Helper()
	for _, p := range e.Pods() {
		var errs []string
		for range 3 {
			err := errors.Join(e.StopPod(t.Context(), p.ID), e.RemovePod(t.Context(), p.ID))
			if _, gone := e.Pod(p.ID); gone != nil {
				errs = nil
				break
			}
			errs = append(errs, fmt.Sprint(err))
		}
		if len(errs) > 0 {
			t.Fatalf("pod cannot be removed:\n%s", strings.Join(errs, "\n"))
		}
	}
	if left := e.store.pods.List(nil); len(left) > 0 {
		t.Fatalf("%d pods are hidden in the store", len(left))
	}
}

func TestFailedUndoLeavesAVisiblePod(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	h.fail("setup", "teardown")
	_, err := e.RunPod(t.Context(), podConfig("web"), "")
	if !errors.Is(err, errInjected) || !strings.Contains(err.Error(), "undo") {
		t.Fatalf("RunPod = %v, want %v, and of its undo, too", err, errInjected)
	}
	pods := e.Pods()
	if len(pods) != 1 || pods[0].Status().State != record.PodNotReady || pods[0].Status().Reason == "" {
		t.Fatalf("pods = %v, want one that is not ready, with a reason", pods)
	}
	// Its name does not stand in the way of the next attempt, and the kubelet can finish the undo.
	h.heal("setup")
	second := mustRunPod(t, e, "web")
	if err := e.StopPod(t.Context(), pods[0].ID); !errors.Is(err, errInjected) {
		t.Fatalf("StopPod while CNI DEL fails = %v, want %v", err, errInjected)
	}
	h.heal("teardown")
	must(t, e.RemovePod(t.Context(), pods[0].ID))
	must(t, e.RemovePod(t.Context(), second))
	noLeaks(t, m)
}

// failContainerCreation leaves a container behind that could be neither created nor undone.
func failContainerCreation(t *testing.T, e *Engine, h *faults, pod string) *Container {
	t.Helper()
	h.fail("create", "release")
	_, err := e.CreateContainer(t.Context(), pod, containerConfig("main"))
	if !errors.Is(err, errInjected) || !strings.Contains(err.Error(), "undo") {
		t.Fatalf("CreateContainer = %v, want %v, and of its undo, too", err, errInjected)
	}
	h.heal("create")
	left := e.Containers()
	if len(left) != 1 || left[0].Status().State != record.ContainerCreating {
		t.Fatalf("containers %v, want the one that could not be undone", left)
	}
	return left[0]
}

func TestFailedUndoLeavesAVisibleContainer(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	pod := mustRunPod(t, e, "web")
	left := failContainerCreation(t, e, h, pod)
	// Its name does not stand in the way of the next attempt, and the kubelet can finish the undo.
	second := mustCreate(t, e, pod, "main")
	must(t, e.StopContainer(t.Context(), left.ID, 0))
	if err := e.RemoveContainer(t.Context(), left.ID); !errors.Is(err, errInjected) {
		t.Fatalf("RemoveContainer while the release fails = %v, want %v", err, errInjected)
	}
	h.heal("release")
	must(t, e.RemoveContainer(t.Context(), left.ID))
	if again := mustCreate(t, e, pod, "main"); again != second {
		t.Fatalf("CreateContainer = %s, want %s: the removal took its name", again, second)
	}
	must(t, e.RemovePod(t.Context(), pod))
	noLeaks(t, m)
}

// TestStopEndsUncreatedContainer: the process of a container whose creation failed, and could not be undone, ends with
// a stop of the container or the pod.
func TestStopEndsUncreatedContainer(t *testing.T) {
	for name, stop := range map[string]func(e *Engine, pod, container string) error{
		"StopPodSandbox": func(e *Engine, pod, _ string) error { return e.StopPod(t.Context(), pod) },
		"StopContainer":  func(e *Engine, _, container string) error { return e.StopContainer(t.Context(), container, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			e, h := newEngine(t, m)
			pod := mustRunPod(t, e, "web")
			infra := m.pidsAlive()
			h.fail("state", "delete") // the pod is looked at once the container exists
			if _, err := e.CreateContainer(t.Context(), pod, containerConfig("main")); err == nil {
				t.Fatal("CreateContainer = nil, want the error of the runtime")
			}
			left := e.Containers()
			if len(left) != 1 || m.pidsAlive() != infra+1 {
				t.Fatalf("%d containers, %d processes, want one that could not be undone", len(left), m.pidsAlive()-infra)
			}
			h.heal("state")
			h.heal("delete")
			must(t, stop(e, pod, left[0].ID))
			if n := m.pidsAlive(); n > infra {
				t.Errorf("%d processes after %s, want that of the pod at most", n, name)
			}
			must(t, e.RemovePod(t.Context(), pod))
			noLeaks(t, m)
		})
	}
}

func TestNamespaceOutlivesFailingCNI(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	pod := mustRunPod(t, e, "web")
	h.fail("teardown")
	if err := e.StopPod(t.Context(), pod); !errors.Is(err, errInjected) {
		t.Fatalf("StopPod = %v, want %v", err, errInjected)
	}
	p, err := e.Pod(pod)
	must(t, err)
	if !slices.Contains(m.namespaces.Mounted(), p.Netns) {
		t.Fatal("the network namespace is gone before CNI let go of it")
	}
	if s := p.Status(); s.State != record.PodNotReady || !strings.Contains(s.Reason, "injected") {
		t.Fatalf("status = %+v, want not ready with the reason %q", s, errInjected)
	}
	h.heal("teardown")
	must(t, e.StopPod(t.Context(), pod))
	must(t, e.RemovePod(t.Context(), pod))
	noLeaks(t, m)
}
