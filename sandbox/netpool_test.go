package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/garbage"
	"github.com/podd-project/podd/sandbox/handler"
	"github.com/podd-project/podd/sandbox/netpool"
)

// poolFills is more than the time after which a pool is full.
const poolFills = 10 * time.Second

// fillPool runs the pool of e until the function that it returns is called, which empties it.
func fillPool(t *testing.T, e *Engine) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.deps.Pool.Run(ctx, func() bool { return false })
	}()
	time.Sleep(poolFills)
	synctest.Wait()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// TestPodTakesNetwork: a pod gets an id, a namespace and addresses that are ready, without a call of CNI, and all of it
// is as of any other pod. What is in the pool is no garbage.
func TestPodTakesNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.poolSize = 2
		e, h := newEngine(t, m)
		stop := fillPool(t, e)
		ready := m.attachments()
		h.arm(0, false, false)
		h.on("pin", func(_ context.Context, path string) error {
			if slices.Contains(m.namespaces.Mounted(), path) {
				t.Errorf("pin %s, which is pinned", path)
			}
			return nil
		})
		id := mustRunPod(t, e, "web")
		if calls := h.callNames(); slices.Contains(calls, "setup") || !slices.Contains(ready, id) {
			t.Errorf("pod %s, calls %v; want one of %v without setup", id, calls, ready)
		}
		p, err := e.Pod(id)
		must(t, err)
		leases, _ := m.network.Leases()
		ips, pinned := p.Status().IPs, slices.Contains(m.namespaces.Mounted(), p.Netns)
		if !slices.Equal(ips, leases[id]) || len(ips) != 2 || !pinned {
			t.Errorf("pod %+v, want the addresses %v and a pinned network namespace", p.Status(), leases[id])
		}
		if again := mustRunPod(t, e, "web"); again != id { // this call took and returned another network
			t.Errorf("RunPod again = %s, want %s", again, id)
		}
		checkFinds(t, e, nil)
		must(t, e.GC(t.Context()))
		if got := m.attachments(); !slices.Equal(got, ready) {
			t.Errorf("attached after a collection: %v, want %v", got, ready)
		}
		second := mustRunPod(t, e, "db")
		third := mustRunPod(t, e, "late")
		if !slices.Contains(ready, second) || slices.Contains(ready, third) {
			t.Errorf("pods %s and %s, want the last of %v and one without a pool", second, third, ready)
		}
		if s := e.deps.Pool.Status(); s.Taken != 2 || s.Missed != 1 {
			t.Errorf("Status = %+v, want 2 taken and 1 missed", s)
		}
		must(t, e.RemoveAll(t.Context()))
		stop()
		noLeaks(t, m)
	})
}

// TestPoolAtEveryStep fails, or ends the daemon, at each call that is made while the pool is filled, while a pod takes
// from it, and while it is emptied. Nothing is left then that is not known, and after a restart nothing at all.
func TestPoolAtEveryStep(t *testing.T) {
	fill := func(t *testing.T, e *Engine) { fillPool(t, e) }
	for name, s := range map[string]struct {
		before func(t *testing.T, e *Engine)
		during func(ctx context.Context, t *testing.T, e *Engine)
	}{
		"fill": {func(*testing.T, *Engine) {}, func(_ context.Context, t *testing.T, e *Engine) { fillPool(t, e) }},
		"take": {fill, func(ctx context.Context, _ *testing.T, e *Engine) {
			_, _ = e.RunPod(ctx, podConfig("web"), "")
		}},
		"empty": {fill, func(_ context.Context, _ *testing.T, e *Engine) {
			e.deps.Pool.Reconfigure(netpool.Settings{})
			time.Sleep(poolFills)
		}},
		"give way": {fill, func(ctx context.Context, _ *testing.T, e *Engine) {
			e.deps.Pool.GiveWay(ctx, errInjected, 0)
		}},
	} {
		for _, crash := range []bool{false, true} {
			for _, late := range []bool{false, true} {
				for k, reached := 1, true; reached && !t.Failed(); k++ {
					t.Run(fmt.Sprintf("%s call %d crash=%v late=%v", name, k, crash, late), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							m := newMachine(t)
							m.poolSize = 2
							e, h := newEngine(t, m)
							s.before(t, e)
							h.arm(k, late, crash)
							reached = poolStep(t, m, e, h, func(ctx context.Context) { s.during(ctx, t, e) })
						})
					})
				}
			}
		}
	}
}

// poolStep does what fails or crashes, and reports whether it came so far.
func poolStep(
	t *testing.T, m *machine, e *Engine, h *faults, during func(context.Context),
) (reached bool) {
	reached = h.runUntilDead(during)
	if h.crash {
		e, _ = restart(t, m, e, h)
		if got := e.deps.Pool.Status(); got.Ready != 0 {
			t.Errorf("the pool after a restart: %+v, want nothing in it", got)
		}
	} else {
		reached = len(h.callNames()) >= h.failAt
		h.arm(0, false, false)
	}
	nothingHalfMade(t, e)
	removeEverything(t, e)
	must(t, e.GC(t.Context()))
	if h.crash {
		noLeaks(t, m)
	}
	time.Sleep(time.Minute) // the pool repeats what failed
	synctest.Wait()
	checkFinds(t, e, nil)
	if got, want := m.attachments(), e.deps.Pool.IDs(); len(got) != len(want) {
		t.Errorf("attached %v, want what is in the pool: %v", got, want)
	}
	return reached
}

// TestPoolGivesWay: a pod that cannot take a network of the pool gets the address that the pool holds, and a pod that
// cannot be attached anyway fails with its own error and leaves nothing.
func TestPoolGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.poolSize = 2
		e, h := newEngine(t, m)
		fillPool(t, e)
		h.arm(2, true, false) // setup, after its effect, as of a plugin in the middle
		port := podConfig("port")
		port.PortMappings = []*cri.PortMapping{{HostPort: 80, ContainerPort: 80}}
		id, err := e.RunPod(t.Context(), port, "")
		if err != nil {
			t.Fatalf("RunPod = %v, want an address of the pool", err)
		}
		if got := m.attachments(); !slices.Equal(got, []string{id}) {
			t.Errorf("attached %v, want the pod alone, %s", got, id)
		}
		h.fail("setup")
		if _, err := e.RunPod(t.Context(), podConfig("web"), ""); !errors.Is(err, errInjected) {
			t.Errorf("RunPod = %v, want %v", err, errInjected)
		}
		h.heal("setup")
		must(t, e.RemoveAll(t.Context()))
		time.Sleep(time.Second)
		noLeaks(t, m)
	})
}

// TestPoolGivesWayToItsNetwork: a pod that cannot be attached to another network does not empty the pool. One of the
// pool's network does, and if what its attempt has left cannot be undone, the error names both causes.
func TestPoolGivesWayToItsNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.poolSize = 2
		e, h := newEngine(t, m)
		e.cfg.Load().Handlers = map[string]handler.Config{"other": {CNIConfDir: "/etc/other/net.d"}}
		fillPool(t, e)
		ready := e.deps.Pool.IDs()
		h.fail("setup")
		if _, err := e.RunPod(t.Context(), podConfig("other"), "other"); !errors.Is(err, errInjected) {
			t.Errorf("RunPod = %v, want %v", err, errInjected)
		}
		if s := e.deps.Pool.Status(); s.Ready != 2 || s.Problem != "" {
			t.Errorf("the pool: %+v, want it full after a pod of another network failed", s)
		}
		undo := errors.New("undo")
		h.on("teardown", func(_ context.Context, id string) error {
			if slices.Contains(ready, id) {
				return nil
			}
			return undo
		})
		port := podConfig("port")
		port.PortMappings = []*cri.PortMapping{{HostPort: 80, ContainerPort: 80}}
		_, err := e.RunPod(t.Context(), port, "")
		if !errors.Is(err, errInjected) || !errors.Is(err, undo) {
			t.Errorf("RunPod = %v, want both causes", err)
		}
		h.heal("setup", "teardown")
		must(t, e.RemoveAll(t.Context()))
		noLeaks(t, m)
	})
}

// TestPoolGarbage: what an earlier daemon has left of its pool is freed, also by a podd that knows no pool.
func TestPoolGarbage(t *testing.T) {
	for name, size := range map[string]int{"with a pool": 2, "without": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t)
				m.poolSize = 2
				e, h := newEngine(t, m)
				fillPool(t, e)
				id := mustRunPod(t, e, "web")
				left := slices.DeleteFunc(m.attachments(), func(a string) bool { return a == id })
				kill(e, h)
				m.poolSize = size
				e, _ = makeEngine(t, m, "boot-1")
				found, err := e.Check(t.Context())
				must(t, err)
				if !slices.Contains(found, Finding{Problem: FindingLeak, What: garbage.Attachment, ID: left[0]}) {
					t.Errorf("Check = %+v, want %v", found, left)
				}
				must(t, e.Recover(t.Context()))
				must(t, e.WaitRecovered(t.Context()))
				must(t, e.GC(t.Context()))
				checkFinds(t, e, nil)
				if got := m.attachments(); !slices.Equal(got, []string{id}) {
					t.Errorf("attached %v, want only the pod, %s", got, id)
				}
				must(t, e.RemoveAll(t.Context()))
				noLeaks(t, m)
			})
		})
	}
}

// TestRestoredPodTakesNone: a restored pod does not take from the pool.
func TestRestoredPodTakesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.poolSize = 2
		e, _ := newEngine(t, m)
		l := &podLife{e: e, name: "web"}
		for _, v := range append(runsOn("gvisor"), verbCheckpoint) {
			must(t, v.do(t.Context(), l))
		}
		fillPool(t, e)
		must(t, verbRestore.do(t.Context(), l))
		if s := e.deps.Pool.Status(); s.Ready != 2 || s.Taken != 0 {
			t.Errorf("the pool: %+v, want nothing taken", s)
		}
	})
}
