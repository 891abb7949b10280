package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/image"
)

// TestPodsKeepNothingOfTheCallsThatMadeThem looks whether what a call carries can be collected while its pod and its
// container live on: gRPC hangs a connection's worth of memory on each.
func TestPodsKeepNothingOfTheCallsThatMadeThem(t *testing.T) {
	e, _ := newEngine(t, newMachine(t))
	// A timer that was stopped may stay until its time.
	e.cfg.Load().CreateTimeout, e.operations.Slow = time.Second, time.Second
	type carried [4096]byte
	type key struct{}
	call := func(do func(ctx context.Context)) weak.Pointer[carried] {
		value := new(carried)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, value))
		do(ctx)
		cancel()
		return weak.Make(value)
	}
	var pod, c string
	var err error
	calls := map[string]weak.Pointer[carried]{
		"RunPodSandbox": call(func(ctx context.Context) { pod, err = e.RunPod(ctx, podConfig("web"), ""); must(t, err) }),
		"CreateContainer": call(func(ctx context.Context) {
			c, err = e.CreateContainer(ctx, pod, containerConfig("app"))
			must(t, err)
		}),
		"StartContainer": call(func(ctx context.Context) { must(t, e.StartContainer(ctx, c)) }),
	}
	for name, value := range calls {
		for deadline := time.Now().Add(10 * time.Second); value.Value() != nil; runtime.GC() {
			if time.Now().After(deadline) {
				t.Errorf("what the call of %s carried is kept as long as the pod and the container are", name)
				break
			}
		}
	}
	runtime.KeepAlive(e)
}

// TestFailedCreationLeavesNoLog fails and crashes a creation in each call, after its effect. The kubelet would count a
// log as a restart of the container.
func TestFailedCreationLeavesNoLog(t *testing.T) {
	for _, crash := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { failCreations(t, crash) })
	}
}

func failCreations(t *testing.T, crash bool) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	pc, cc := podConfig("web"), containerConfig("main")
	pc.LogDirectory, cc.LogPath = t.TempDir(), "main/0.log"
	pod, err := e.RunPod(t.Context(), pc, "")
	must(t, err)
	log := filepath.Join(pc.LogDirectory, cc.LogPath)
	for k := range 10 {
		h.arm(k+1, true, crash)
		var err error
		crashed := h.runUntilDead(func(ctx context.Context) { _, err = e.CreateContainer(ctx, pod, cc) })
		if crashed {
			e.life.End(errClosing)
			e.work.Wait()
			e, h = newEngine(t, m)
		}
		if _, missing := os.Lstat(log); missing == nil && (crashed || err != nil) {
			t.Errorf("crash %v in call %d: the log is there, want none", crash, k+1)
		}
		h.arm(0, false, false)
		for _, c := range e.Containers() {
			if _, err := os.Lstat(log); err != nil {
				t.Errorf("log of a created container: %v, want it there", err)
			}
			must(t, e.RemoveContainer(t.Context(), c.ID))
		}
	}
	must(t, e.RemovePod(t.Context(), pod))
	noLeaks(t, m)
}

// TestImageOfCheckpoint: an image that was made of a checkpoint runs no container.
func TestImageOfCheckpoint(t *testing.T) {
	m := newMachine(t)
	e, _ := newEngine(t, m)
	pod, err := e.RunPod(t.Context(), podConfig("web"), "")
	must(t, err)
	for _, key := range []string{"org.criu.checkpoint.container.name", "io.kubernetes.cri-o.annotations.checkpoint.name"} {
		m.Images.Add(image.Image{ID: key, Annotations: map[string]string{key: "main"}}, nil)
		c := containerConfig("main")
		c.Image.Image = key
		if _, err := e.CreateContainer(t.Context(), pod, c); !errdefs.IsNotImplemented(err) ||
			!strings.Contains(err.Error(), key) {
			t.Errorf("container of an image with the annotation %s: %v, want not implemented", key, err)
		}
	}
	must(t, e.RemovePod(t.Context(), pod))
	noLeaks(t, m)
}

// TestDiscardLeavesLogOfRetry: the kubelet repeats a creation with the same log path while podd discards the one that a
// crash has interrupted.
func TestDiscardLeavesLogOfRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, h := newEngine(t, m)
		pc, cc := podConfig("web"), containerConfig("main")
		pc.LogDirectory, cc.LogPath = t.TempDir(), "main/0.log"
		pod, err := e.RunPod(t.Context(), pc, "")
		must(t, err)
		h.hold("create")
		go func() { _, _ = e.CreateContainer(t.Context(), pod, cc) }() // the daemon dies before its answer
		h.await("create")
		kill(e, h)

		e, h = makeEngine(t, m, "boot-1")
		release := h.hold("delete")
		must(t, e.Recover(t.Context()))
		h.await("delete")
		retry := containerConfig("main")
		retry.LogPath = "main/./0.log"
		_, err = e.CreateContainer(t.Context(), pod, retry)
		must(t, err)
		release()
		must(t, e.WaitRecovered(t.Context()))
		if n := len(e.store.containers.List(nil)); n != 1 {
			t.Errorf("%d containers, want the repeated one", n)
		}
		if _, err := os.Lstat(filepath.Join(pc.LogDirectory, cc.LogPath)); err != nil {
			t.Errorf("log of the repeated container: %v, want it there", err)
		}
		removeEverything(t, e)
		noLeaks(t, m)
		kill(e, h)
	})
}

func TestRetryByNameJoinsTheCreation(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	release := h.hold("setup")
	_, err := e.RunPod(h.givesUpAt(t.Context(), "setup"), podConfig("web"), "")
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "stage: network") {
		t.Fatalf("the caller who gave up got %v, want the stage", err)
	}
	if n := len(e.Pods()); n != 0 {
		t.Fatalf("%d pods are listed that nobody has heard of", n)
	}
	ids := make(chan string, 8)
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			id, err := e.RunPod(t.Context(), podConfig("web"), "")
			if err != nil {
				t.Error(err)
			}
			ids <- id
		})
	}
	release()
	callers.Wait()
	close(ids)
	first := <-ids
	for id := range ids {
		if id != first {
			t.Fatalf("callers got %s and %s", first, id)
		}
	}
	if n := len(e.Pods()); n != 1 {
		t.Fatalf("%d pods, want 1", n)
	}
	// A ready pod answers the same request with its id, and refuses another one by the same name.
	if id := mustRunPod(t, e, "web"); id != first {
		t.Fatalf("RunPod = %s, want the pod there is, %s", id, first)
	}
	other := podConfig("web")
	other.Hostname = "different"
	if _, err := e.RunPod(t.Context(), other, ""); !errdefs.IsAlreadyExists(err) || !strings.Contains(err.Error(), first) {
		t.Fatalf("another config: %v", err)
	}
	must(t, e.RemovePod(t.Context(), first))
	noLeaks(t, m)
}

func TestRetryByNameJoinsTheContainersCreation(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	pod := mustRunPod(t, e, "web")
	release := h.hold("rootfs")
	_, err := e.CreateContainer(h.givesUpAt(t.Context(), "rootfs"), pod, containerConfig("main"))
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("CreateContainer = %v, want %v", err, context.Canceled)
	}
	if n := len(e.Containers()); n != 0 {
		t.Fatalf("%d containers are listed that nobody has heard of", n)
	}
	release()
	id := mustCreate(t, e, pod, "main")
	if again := mustCreate(t, e, pod, "main"); again != id {
		t.Fatalf("got %s and %s", id, again)
	}
	other := containerConfig("main")
	other.Envs = []*cri.KeyValue{{Key: "A", Value: []byte("1")}}
	if _, err := e.CreateContainer(t.Context(), pod, other); !errdefs.IsAlreadyExists(err) {
		t.Fatalf("another config: %v", err)
	}
	must(t, e.RemovePod(t.Context(), pod))
	noLeaks(t, m)
}

func TestUnheardOfMakesRoomForAnotherConfig(t *testing.T) {
	for _, finished := range []bool{false, true} {
		m := newMachine(t)
		e, h := newEngine(t, m)
		release := h.hold("setup")
		defer release()
		if _, err := e.RunPod(h.givesUpAt(t.Context(), "setup"), podConfig("web"), ""); !errors.Is(err, context.Canceled) {
			t.Fatalf("RunPod = %v, want %v", err, context.Canceled)
		}
		if finished {
			release()
			<-e.store.pods.List(nil)[0].creation.Done()
		} else {
			h.unhold("setup")
		}
		edited := podConfig("web")
		edited.Annotations = map[string]string{"edited": "meanwhile"}
		pod, err := e.RunPod(t.Context(), edited, "")
		must(t, err)

		release = h.hold("rootfs")
		defer release()
		_, err = e.CreateContainer(h.givesUpAt(t.Context(), "rootfs"), pod, containerConfig("main"))
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("CreateContainer = %v, want %v", err, context.Canceled)
		}
		if finished {
			release()
			<-e.store.containers.List(nil)[0].creation.Done()
		} else {
			h.unhold("rootfs")
		}
		config := containerConfig("main")
		config.Annotations = edited.Annotations
		id, err := e.CreateContainer(t.Context(), pod, config)
		must(t, err)
		if left := e.store.containers.List(nil); len(left) != 1 || left[0].ID != id {
			t.Fatalf("containers = %v, want %s alone", left, id)
		}
		must(t, e.RemovePod(t.Context(), pod))
		noLeaks(t, m)
	}
}

func TestUnclaimedIsDiscarded(t *testing.T) {
	m := newMachine(t)
	synctest.Test(t, func(t *testing.T) {
		e, h := newEngine(t, m)
		release := h.hold("setup")
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := e.RunPod(impatient, podConfig("web"), ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("RunPod = %v, want %v", err, context.DeadlineExceeded)
		}
		release()
		synctest.Wait()
		if n := len(e.store.pods.List(nil)); n != 1 {
			t.Fatalf("%d pods wait for their caller, want 1", n)
		}
		time.Sleep(unclaimedTime + time.Second)
		synctest.Wait()
		noLeaks(t, m)
		must(t, e.Close(t.Context()))
	})
}

func TestCreationTimeoutIsUndone(t *testing.T) {
	m := newMachine(t)
	synctest.Test(t, func(t *testing.T) {
		e, h := newEngine(t, m)
		release := h.hold("setup")
		defer release()
		_, err := e.RunPod(t.Context(), podConfig("web"), "")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "network") {
			t.Fatalf("got %v, want a deadline that names the step", err)
		}
		noLeaks(t, m)
	})
}

func TestStopOvertakesACreation(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	release := h.hold("setup")
	defer release()
	failed := make(chan error, 1)
	go func() {
		_, err := e.RunPod(t.Context(), podConfig("web"), "")
		failed <- err
	}()
	h.await("setup")
	must(t, e.StopPod(t.Context(), e.store.pods.List(nil)[0].ID))
	if err := <-failed; !errors.Is(err, errStopping) {
		t.Fatalf("the creation ended with %v", err)
	}
	noLeaks(t, m)
}

func TestRemoveOvertakesAContainersCreation(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	pod := mustRunPod(t, e, "web")
	release := h.hold("rootfs")
	defer release()
	failed := make(chan error, 1)
	go func() {
		_, err := e.CreateContainer(t.Context(), pod, containerConfig("main"))
		failed <- err
	}()
	h.await("rootfs")
	must(t, e.RemoveContainer(t.Context(), e.store.containers.List(nil)[0].ID))
	if err := <-failed; err == nil {
		t.Fatal("a removed container was created")
	}
	must(t, e.RemovePod(t.Context(), pod))
	noLeaks(t, m)
}

func TestStopPodCancelsContainersBeingCreated(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	pod := mustRunPod(t, e, "web")
	release := h.hold("rootfs")
	defer release()
	failed := make(chan error, 1)
	go func() {
		_, err := e.CreateContainer(t.Context(), pod, containerConfig("main"))
		failed <- err
	}()
	h.await("rootfs")
	must(t, e.StopPod(t.Context(), pod))
	if err := <-failed; !errors.Is(err, errStopping) {
		t.Fatalf("the creation ended with %v", err)
	}
	must(t, e.RemovePod(t.Context(), pod))
	noLeaks(t, m)
}

func TestManyPodsAtOnce(t *testing.T) {
	m := newMachine(t)
	e, _ := newEngine(t, m)
	var group sync.WaitGroup
	for i := range 40 {
		group.Go(func() {
			name := strings.Repeat("p", i+1)
			pod, err := e.RunPod(t.Context(), podConfig(name), "")
			if err != nil {
				t.Error(err)
				return
			}
			id, err := e.CreateContainer(t.Context(), pod, containerConfig("main"))
			if err == nil {
				err = e.StartContainer(t.Context(), id)
			}
			if err == nil {
				err = e.RemovePod(t.Context(), pod)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	noLeaks(t, m)
}

// The engine primes the cgroups beside a container's creation, which does not wait for it.
func TestPrimeBesideCreation(t *testing.T) {
	m := newMachine(t)
	synctest.Test(t, func(t *testing.T) {
		e, _ := newEngine(t, m)
		pod := mustRunPod(t, e, "web")
		primed, end := make(chan struct{}), make(chan struct{})
		e.deps.Prime = func() { close(primed); <-end }
		mustCreate(t, e, pod, "main")
		<-primed
		close(end)
	})
}
