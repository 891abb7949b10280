package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/record"
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
	running := verbs[:3]
	for _, v := range verbs[5:] {
		all = append(all, scenario{v.name + " of what runs", running, v})
	}
	return append(all,
		scenario{"Exec", running, verb{"Exec", func(ctx context.Context, l *podLife) error {
			_, err := l.e.Exec(ctx, l.container, []string{"true"}, false, oci.Streams{Stdout: io.Discard})
			return err
		}}},
		scenario{"UpdateContainer", running, verb{"UpdateContainer", func(ctx context.Context, l *podLife) error {
			return l.e.UpdateContainer(ctx, l.container, &cri.LinuxContainerResources{CpuShares: 100})
		}}})
}

// eachStep runs body for every outside call k of the scenario's verb, failing before and after its effect, until the verb
// makes no call number k any more. undo, if not 0, is the engine's UndoTimeout.
func eachStep(t *testing.T, s scenario, undo time.Duration, body func(t *testing.T, m *machine, l *podLife, h *fakeHost) (reached bool)) {
	for _, after := range []bool{false, true} {
		for k := 1; ; k++ {
			reached := true
			t.Run(fmt.Sprintf("call %d after=%v", k, after), func(t *testing.T) {
				m := newMachine(t)
				e, h := makeEngine(t, m, "boot-1")
				if undo > 0 {
					e.cfg.UndoTimeout = undo
				}
				must(t, e.Recover(t.Context()))
				l := &podLife{e: e, name: "web"}
				for _, earlier := range s.earlier {
					must(t, earlier.do(t.Context(), l))
				}
				h.quiesce(t)
				h.mu.Lock()
				h.calls, h.failAt, h.after = nil, k, after
				h.mu.Unlock()
				reached = body(t, m, l, h)
			})
			if t.Failed() || !reached {
				break
			}
		}
	}
}

// quiesce waits until the engine makes no more calls by itself, such as deleting an exited container's state.
func (h *fakeHost) quiesce(t *testing.T) {
	t.Helper()
	last := -1
	for range 1000 {
		n := len(h.callNames())
		if n == last {
			return
		}
		last = n
		time.Sleep(2 * time.Millisecond)
	}
	t.Fatal("the engine does not come to rest")
}

func TestFailAtEveryStep(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			eachStep(t, s, 0, func(t *testing.T, m *machine, l *podLife, h *fakeHost) bool {
				err := s.verb.do(t.Context(), l)
				h.quiesce(t)
				reached := len(h.callNames()) >= h.failAt
				h.mu.Lock()
				h.failAt = 0
				h.mu.Unlock()
				if err != nil && !errors.Is(err, errInjected) {
					t.Fatalf("the cause is lost: %v", err)
				}
				removeEverything(t, l.e)
				noLeaks(t, m)
				// The name is free: the same pod can be made at once.
				again, err := l.e.RunPod(t.Context(), podConfig("web"), "")
				must(t, err)
				must(t, l.e.RemovePod(t.Context(), again))
				noLeaks(t, m)
				return reached
			})
		})
	}
}

// waitForTheDead is how long what lives of a dead engine waits for a goroutine that ended with the daemon.
const waitForTheDead = time.Second

func TestCrashAtEveryStep(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			eachStep(t, s, waitForTheDead, func(t *testing.T, m *machine, l *podLife, h *fakeHost) bool {
				h.mu.Lock()
				h.crash = true
				h.mu.Unlock()
				crashed := h.runUntilDead(func(ctx context.Context) { s.verb.do(ctx, l) })
				h.kill()
				l.e.life.end(errClosing)
				l.e.work.Wait()

				e, _ := newEngine(t, m)
				for _, p := range e.Pods() {
					if s := p.Status().State; s != record.PodReady && s != record.PodNotReady {
						t.Errorf("pod is %s after the restart", s)
					}
				}
				for _, c := range e.Containers() {
					if c.Status().State == record.ContainerCreating {
						t.Error("a half-made container is listed after the restart")
					}
				}
				removeEverything(t, e)
				noLeaks(t, m)
				again, err := e.RunPod(t.Context(), podConfig("web"), "")
				must(t, err)
				must(t, e.RemovePod(t.Context(), again))
				noLeaks(t, m)
				return crashed
			})
		})
	}
}

// runUntilDead runs f until it returns or the daemon has died in it, and reports whether it died.
func (h *fakeHost) runUntilDead(f func(context.Context)) bool {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done) // also when the goroutine is ended by the crash
		f(ctx)
	}()
	select {
	case <-h.dead:
		cancel()
		<-done
		return true
	case <-done:
	}
	cancel()
	time.Sleep(5 * time.Millisecond) // what the verb left running may crash yet
	select {
	case <-h.dead:
		return true
	default:
		return false
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
	if left := e.store.podList(); len(left) > 0 {
		t.Fatalf("%d pods are hidden in the store", len(left))
	}
}

func TestFailedUndoLeavesAVisiblePod(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	h.mu.Lock()
	h.failAt = 2 // cni add
	h.mu.Unlock()
	del := &failing{fakeHost: h}
	e.Network = del
	_, err := e.RunPod(t.Context(), podConfig("web"), "")
	if !errors.Is(err, errInjected) || !strings.Contains(err.Error(), "undo") {
		t.Fatalf("got %v", err)
	}
	pods := e.Pods()
	if len(pods) != 1 || pods[0].Status().State != record.PodNotReady || pods[0].Status().Reason == "" {
		t.Fatalf("pods %v", pods)
	}
	// Its name does not stand in the way of the next attempt, and the kubelet can finish the undo.
	second := mustRunPod(t, e, "web")
	if err := e.StopPod(t.Context(), pods[0].ID); !errors.Is(err, errInjected) {
		t.Fatalf("stop while CNI DEL fails: %v", err)
	}
	del.healed = true
	must(t, e.RemovePod(t.Context(), pods[0].ID))
	must(t, e.RemovePod(t.Context(), second))
	noLeaks(t, m)
}

// failing is a network whose DEL fails until it is healed.
type failing struct {
	*fakeHost
	healed bool
}

func (f *failing) Teardown(ctx context.Context, podID string) error {
	if !f.healed {
		return errInjected
	}
	return f.fakeHost.Teardown(ctx, podID)
}

// failingImages cannot release anything until it is healed.
type failingImages struct {
	*fakeHost
	healed atomic.Bool
}

func (f *failingImages) Release(ctx context.Context, containerID string) error {
	if !f.healed.Load() {
		return errInjected
	}
	return f.fakeHost.Release(ctx, containerID)
}

// failContainerCreation leaves a container behind that could be neither created nor undone.
func failContainerCreation(t *testing.T, m *machine, e *Engine, pod string) *Container {
	t.Helper()
	m.mu.Lock()
	m.commandError = errInjected
	m.mu.Unlock()
	if _, err := e.CreateContainer(t.Context(), pod, containerConfig("main")); !errors.Is(err, errInjected) || !strings.Contains(err.Error(), "undo") {
		t.Fatalf("got %v", err)
	}
	m.mu.Lock()
	m.commandError = nil
	m.mu.Unlock()
	left := e.Containers()
	if len(left) != 1 || left[0].Status().State != record.ContainerCreating {
		t.Fatalf("containers %v, want the one that could not be undone", left)
	}
	return left[0]
}

func TestFailedUndoLeavesAVisibleContainer(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	images := &failingImages{fakeHost: h}
	e.Images = images
	pod := mustRunPod(t, e, "web")
	left := failContainerCreation(t, m, e, pod)
	// Its name does not stand in the way of the next attempt, and the kubelet can finish the undo.
	second := mustCreate(t, e, pod, "main")
	must(t, e.StopContainer(t.Context(), left.ID, 0))
	if err := e.RemoveContainer(t.Context(), left.ID); !errors.Is(err, errInjected) {
		t.Fatalf("remove while the release fails: %v", err)
	}
	images.healed.Store(true)
	must(t, e.RemoveContainer(t.Context(), left.ID))
	if again := mustCreate(t, e, pod, "main"); again != second {
		t.Fatalf("the removal took the name from %s", second)
	}
	must(t, e.RemovePod(t.Context(), pod))
	noLeaks(t, m)
}

func TestNamespaceOutlivesFailingCNI(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	del := &failing{fakeHost: h}
	e.Network = del
	pod := mustRunPod(t, e, "web")
	if err := e.StopPod(t.Context(), pod); !errors.Is(err, errInjected) {
		t.Fatalf("got %v", err)
	}
	p, err := e.Pod(pod)
	must(t, err)
	if !m.pins[p.Netns] {
		t.Fatal("the network namespace is gone before CNI let go of it")
	}
	if s := p.Status(); s.State != record.PodNotReady || !strings.Contains(s.Reason, "injected") {
		t.Fatalf("status %+v", s)
	}
	del.healed = true
	must(t, e.StopPod(t.Context(), pod))
	must(t, e.RemovePod(t.Context(), pod))
	noLeaks(t, m)
}
