package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/sandbox/garbage"
	"github.com/podd-project/podd/sandbox/record"
)

// hide makes reading path fail with an error that is no verdict on the record (ELOOP), until show.
func hide(t *testing.T, path string) (show func()) {
	t.Helper()
	must(t, os.Rename(path, path+".hidden"))
	must(t, os.Symlink(filepath.Base(path), path))
	return func() {
		t.Helper()
		must(t, os.Remove(path))
		must(t, os.Rename(path+".hidden", path))
	}
}

// recordsOf are the things of a pod and its container that may be unreadable.
func recordsOf(m *machine, pod, container string) map[string]string {
	dir := filepath.Join(m.dir, "root/pods", pod)
	return map[string]string{
		"pod record":       filepath.Join(dir, record.File),
		"pod status":       filepath.Join(dir, record.StatusFile),
		"containers":       filepath.Join(dir, record.ContainersDir),
		"container record": filepath.Join(dir, record.ContainersDir, container, record.File),
		"container status": filepath.Join(dir, record.ContainersDir, container, record.StatusFile),
	}
}

func TestRecordThatCannotBeReadForNowIsLeftAlone(t *testing.T) {
	for what := range recordsOf(newMachine(t), "", "") {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t)
				e, h := newEngine(t, m)
				pod := mustRunPod(t, e, "web")
				id := mustCreate(t, e, pod, "main")
				mustStart(t, e, id)
				show := hide(t, recordsOf(m, pod, id)[what])
				e, h = restart(t, m, e, h)
				if m.pidsAlive() != 2 {
					t.Fatal("a pod was killed because its record could not be read")
				}
				if _, err := e.Container(id); !errdefs.IsUnavailable(err) && !errdefs.IsNotFound(err) {
					t.Errorf("Container = %v, want unavailable or not found", err)
				}
				if _, err := e.CreateContainer(t.Context(), pod, containerConfig("main")); !errdefs.IsUnavailable(err) {
					t.Errorf("another container of that name: %v", err)
				}
				u := troubles(e, garbage.Unread)
				if len(u) != 1 || !strings.Contains(u[0].Path, pod) || !strings.Contains(u[0].Error, "symbolic links") {
					t.Errorf("unread records = %+v, want the record of %s", u, pod)
				}
				show()
				time.Sleep(2 * loadRetry)
				synctest.Wait()
				must(t, e.GC(t.Context()))
				if s := container(t, e, id); s.State != record.ContainerRunning {
					t.Errorf("container = %+v, want %s", s, record.ContainerRunning)
				}
				if u := troubles(e, garbage.Unread); len(u) > 0 {
					t.Errorf("still told: %+v", u)
				}
				must(t, e.RemovePod(t.Context(), pod))
				noLeaks(t, m)
				h.kill()
				e.life.End(errClosing)
			})
		})
	}
}

func TestPodWithAnUnreadableContainerCanBeRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, h := newEngine(t, m)
		pod := mustRunPod(t, e, "web")
		id := mustCreate(t, e, pod, "main")
		mustStart(t, e, id)
		hide(t, recordsOf(m, pod, id)["container record"])
		e, h = restart(t, m, e, h)
		must(t, e.StopPod(t.Context(), pod))
		if n := m.pidsAlive(); n > 0 {
			t.Errorf("%d processes live in a stopped pod", n)
		}
		must(t, e.RemovePod(t.Context(), pod))
		time.Sleep(2 * loadRetry) // the record is looked for once more, and is nobody's loss
		if u := troubles(e, garbage.Unread); len(u) > 0 {
			t.Errorf("unread records = %+v, want none", u)
		}
		noLeaks(t, m)
		h.kill()
		e.life.End(errClosing)
	})
}

func TestRecordThatTurnsOutDamagedIsCollectedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, h := newEngine(t, m)
		pod := mustRunPod(t, e, "web")
		record := recordsOf(m, pod, "")["pod record"]
		show := hide(t, record)
		e, h = restart(t, m, e, h)
		ctx, stop := context.WithCancel(t.Context())
		go e.RunGC(ctx)
		synctest.Wait()
		show()
		truncate(t, record, 10)
		time.Sleep(2 * loadRetry)
		synctest.Wait()
		if q := troubles(e, garbage.Quarantined); len(q) != 1 || q[0].ID != pod {
			t.Errorf("quarantined = %v, want one of %s", q, pod)
		}
		must(t, os.RemoveAll(filepath.Join(m.dir, "root/quarantine")))
		noLeaks(t, m)
		stop()
		h.kill()
		e.life.End(errClosing)
	})
}

func TestOneThatHangsDelaysNobodysRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, h := newEngine(t, m)
		var pods []string
		for i := range 100 {
			pods = append(pods, mustRunPod(t, e, fmt.Sprint("web-", i)))
		}
		stuck := mustCreate(t, e, pods[0], "main")
		kill(e, h)

		e, h = makeEngine(t, m, "boot-1")
		h.on("state", func(ctx context.Context, id string) error {
			if id != stuck {
				return nil
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		begin := time.Now()
		must(t, e.Recover(t.Context()))
		if took := time.Since(begin); took != observeGrace {
			t.Errorf("recovery took %v", took)
		}
		if n := len(e.Pods()); n != 100 {
			t.Errorf("%d pods, want 100", n)
		}
		must(t, e.RemovePod(t.Context(), pods[1]))
		time.Sleep(observeTimeout)
		synctest.Wait()
		mustStart(t, e, stuck) // it was kept as recorded
		for _, p := range e.Pods() {
			must(t, e.RemovePod(t.Context(), p.ID))
		}
		noLeaks(t, m)
		h.kill()
		e.life.End(errClosing)
	})
}

func TestHalfMadePodThatIsHardToUndoDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, h := newEngine(t, m)
		h.arm(3, false, true) // after CNI ADD
		if !h.runUntilDead(func(ctx context.Context) { e.RunPod(ctx, podConfig("web"), "") }) {
			t.Fatal("no crash")
		}
		e.life.End(errClosing)
		e.work.Wait()

		e, h = makeEngine(t, m, "boot-1")
		release := h.hold("teardown")
		begin := time.Now()
		must(t, e.Recover(t.Context()))
		if took := time.Since(begin); took > 0 || len(e.Pods()) > 0 {
			t.Errorf("recovery took %v, pods %v", took, e.Pods())
		}
		pod := mustRunPod(t, e, "web") // the kubelet asks for the same pod again
		release()
		must(t, e.GC(t.Context()))
		synctest.Wait()
		if n := len(e.store.pods.List(nil)); n != 1 {
			t.Errorf("%d pods, want the new one", n)
		}
		must(t, e.RemovePod(t.Context(), pod))
		noLeaks(t, m)
		h.kill()
		e.life.End(errClosing)
	})
}

func TestCollectionSparesWhatIsBeingMade(t *testing.T) {
	m := newMachine(t)
	e, _ := newEngine(t, m)
	stop := make(chan struct{})
	var collector sync.WaitGroup
	collector.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				must(t, e.GC(t.Context()))
			}
		}
	})
	var callers sync.WaitGroup
	for i := range 20 {
		callers.Go(func() {
			pod, err := e.RunPod(t.Context(), podConfig(fmt.Sprint("web-", i)), "")
			if err != nil {
				t.Error(err)
				return
			}
			id, err := e.CreateContainer(t.Context(), pod, containerConfig("main"))
			if err != nil {
				t.Error(err)
				return
			}
			if err := e.StartContainer(t.Context(), id); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	close(stop)
	collector.Wait()
	if n := m.pidsAlive(); n != 40 {
		t.Errorf("%d processes, want 20 containers and 20 infra containers", n)
	}
	if n := len(m.attachments()); n != 20 {
		t.Errorf("%d pods are attached, want 20", n)
	}
	for _, p := range e.Pods() {
		must(t, e.RemovePod(t.Context(), p.ID))
	}
	noLeaks(t, m)
}

func TestGarbageThatCannotBeRemovedIsOwedAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, h := newEngine(t, m)
		m.makeRootfs(t, "orphan", "other")
		h.fail("release")
		ctx, stop := context.WithCancel(t.Context())
		go e.RunGC(ctx)
		synctest.Wait()
		if d := troubles(e, garbage.Cleanup); len(d) != 2 || d[0].What != "root filesystem" || d[0].Error == "" {
			t.Fatalf("cleanups = %+v, want 2 root filesystems, with errors", d)
		}
		h.heal("release")
		time.Sleep(time.Minute)
		synctest.Wait()
		if d := troubles(e, garbage.Cleanup); len(d) > 0 {
			t.Errorf("still owed: %+v", d)
		}
		noLeaks(t, m)
		stop()
		h.kill()
		e.life.End(errClosing)
	})
}

// TestUndoingDelaysNobody: what was half made is undone after the start, a few at a time.
func TestUndoingDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, h := newEngine(t, m)
		h.hold("setup")
		const pods = 3 * undoParallel
		for i := range pods {
			go func() { e.RunPod(t.Context(), podConfig(fmt.Sprint("web-", i)), "") }()
		}
		synctest.Wait()
		kill(e, h)

		e, h = makeEngine(t, m, "boot-1")
		release := h.hold("teardown")
		begin := time.Now()
		must(t, e.Recover(t.Context()))
		if took := time.Since(begin); took > 0 {
			t.Errorf("recovery took %v", took)
		}
		synctest.Wait()
		undone := func() int { return h.count("teardown") }
		if n := undone(); n != undoParallel {
			t.Errorf("%d pods are being undone at once, want %d", n, undoParallel)
		}
		time.Sleep(observeTimeout) // those four hang
		synctest.Wait()
		if n := undone(); n != pods {
			t.Errorf("%d pods are being undone after a while, want all %d", n, pods)
		}
		release()
		must(t, e.WaitRecovered(t.Context()))
		if n := len(e.store.pods.List(nil)); n != 0 {
			t.Errorf("%d pods are left", n)
		}
		noLeaks(t, m)
		h.kill()
		e.life.End(errClosing)
	})
}

// troubles returns the troubles of one kind.
func troubles(e *Engine, kind garbage.TroubleKind) []Trouble {
	return slices.DeleteFunc(e.Troubles(), func(t Trouble) bool { return t.Kind != kind })
}
