package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/record"
)

func runningContainer(t *testing.T, m *machine) (*Engine, *faults, string) {
	t.Helper()
	e, h := newEngine(t, m)
	id := mustCreate(t, e, mustRunPod(t, e, "web"), "main")
	mustStart(t, e, id)
	return e, h, id
}

// stubbornContainer runs and ignores everything but SIGKILL.
func stubbornContainer(t *testing.T, m *machine) (*Engine, *faults, string) {
	t.Helper()
	e, h := newEngine(t, m)
	config := containerConfig("main")
	config.Command = []string{"sleep", "100000"}
	id, err := e.CreateContainer(t.Context(), mustRunPod(t, e, "web"), config)
	must(t, err)
	mustStart(t, e, id)
	return e, h, id
}

// survive makes the processes of all containers survive SIGKILL, as in an uninterruptible system call.
func survive(h *faults) {
	stuck := func(context.Context, string) error {
		return fmt.Errorf("%w: the process survives SIGKILL", context.DeadlineExceeded)
	}
	h.on("signal", stuck)
	h.on("delete", stuck)
}

func TestContainerThatCannotBeWaitedForIsNotDead(t *testing.T) {
	m := newMachine(t)
	synctest.Test(t, func(t *testing.T) {
		e, h := newEngine(t, m)
		var mu sync.Mutex
		failures := map[string]int{}
		h.on("wait", func(_ context.Context, id string) error {
			mu.Lock()
			defer mu.Unlock()
			if failures[id]++; failures[id] <= 2 {
				return errInjected
			}
			return nil
		})
		id := mustCreate(t, e, mustRunPod(t, e, "web"), "main")
		mustStart(t, e, id)
		time.Sleep(time.Minute)
		if s := container(t, e, id); s.State != record.ContainerRunning || m.pidsAlive() != 2 {
			t.Fatalf("%d processes, status %+v, want 2 and %s", m.pidsAlive(), s, record.ContainerRunning)
		}
		pod := e.Pods()[0]
		m.exit(pod.ID, oci.Exit{Known: true})
		m.exit(id, oci.Exit{Code: 7, Known: true, At: time.Now()})
		synctest.Wait()
		if s := container(t, e, id); s.ExitCode != 7 || pod.Status().State != record.PodNotReady {
			t.Fatalf("container %+v, pod %+v", s, pod.Status())
		}
		must(t, e.Close(t.Context()))
	})
}

func TestStopKillsAfterTheGracePeriod(t *testing.T) {
	m := newMachine(t)
	synctest.Test(t, func(t *testing.T) {
		e, h, id := stubbornContainer(t, m)
		begin := time.Now()
		must(t, e.StopContainer(t.Context(), id, 30*time.Second))
		if d := time.Since(begin); d != 30*time.Second {
			t.Fatalf("stopped after %v, want the grace period", d)
		}
		signals := slices.DeleteFunc(h.callNames(), func(c string) bool { return !strings.HasPrefix(c, "signal") })
		if !slices.Equal(signals, []string{"signal terminated", "signal killed"}) {
			t.Fatalf("signals = %v, want SIGTERM and SIGKILL", signals)
		}
		if s := container(t, e, id); s.ExitCode != 137 {
			t.Fatalf("exit code %d", s.ExitCode)
		}
		must(t, e.Close(t.Context()))
	})
}

func TestLaterStopOnlyShortens(t *testing.T) {
	m := newMachine(t)
	synctest.Test(t, func(t *testing.T) {
		e, _, id := stubbornContainer(t, m)
		begin := time.Now()
		first := make(chan error, 1)
		go func() { first <- e.StopContainer(t.Context(), id, 300*time.Second) }()
		time.Sleep(time.Second)
		go e.StopContainer(t.Context(), id, 900*time.Second)
		time.Sleep(time.Second)
		must(t, e.StopContainer(t.Context(), id, 5*time.Second))
		must(t, <-first)
		if d := time.Since(begin); d != 7*time.Second {
			t.Fatalf("stopped after %v, want 7s", d)
		}
		must(t, e.Close(t.Context()))
	})
}

func TestStuckContainerIsReportedAndTheNextStopTriesAgain(t *testing.T) {
	m := newMachine(t)
	synctest.Test(t, func(t *testing.T) {
		e, h, id := runningContainer(t, m)
		survive(h)
		for range 2 {
			err := e.StopContainer(t.Context(), id, 0)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "outlived SIGKILL") {
				t.Fatalf("StopContainer = %v, want %v", err, context.DeadlineExceeded)
			}
		}
		if n := len(h.callNames()); n < 2*int(e.cfg.Load().KillTimeout/killInterval) {
			t.Fatalf("%d calls: SIGKILL was not repeated", n)
		}
		h.heal("signal", "delete")
		must(t, e.StopContainer(t.Context(), id, 0))
		must(t, e.Close(t.Context()))
	})
}

func TestStopThatJoinsAnotherGivesUpWithIt(t *testing.T) {
	m := newMachine(t)
	synctest.Test(t, func(t *testing.T) {
		e, h, id := runningContainer(t, m)
		survive(h)
		first := make(chan error, 1)
		go func() { first <- e.StopContainer(t.Context(), id, 0) }()
		time.Sleep(time.Second)
		// This caller has all the time in the world, but nobody kills any more once the first stop has given up.
		if err := e.StopContainer(t.Context(), id, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("StopContainer = %v, want %v", err, context.DeadlineExceeded)
		}
		if err := <-first; !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("StopContainer = %v, want %v", err, context.DeadlineExceeded)
		}
		h.heal("signal", "delete")
		must(t, e.Close(t.Context()))
	})
}

func TestWhatSignalsDoNotEndIsDeleted(t *testing.T) {
	m := newMachine(t)
	synctest.Test(t, func(t *testing.T) {
		e, h, id := runningContainer(t, m)
		h.fail("signal") // as when its monitor hangs
		must(t, e.StopContainer(t.Context(), id, 0))
		if s := container(t, e, id); s.State != record.ContainerExited || s.ExitCode != 137 {
			t.Fatalf("status = %+v, want %s with 137", s, record.ContainerExited)
		}
		must(t, e.RemovePod(t.Context(), e.Pods()[0].ID))
		noLeaks(t, m)
		must(t, e.Close(t.Context()))
	})
}

func TestStopOvertakesAStuckStart(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	id := mustCreate(t, e, mustRunPod(t, e, "web"), "main")
	release := h.hold("start")
	defer release()
	started := make(chan error, 1)
	go func() { started <- e.StartContainer(t.Context(), id) }()
	h.await("start")
	must(t, e.StopContainer(t.Context(), id, time.Minute))
	if err := <-started; err == nil {
		t.Fatal("the start of a stopped container succeeded")
	}
	if s := waitExited(t, e, id); s.Reason != reasonStartError && s.Reason != reasonError {
		t.Fatalf("status = %+v, want %s or %s", s, reasonStartError, reasonError)
	}
}

func TestStopWaitsNoLongerThanItsCaller(t *testing.T) {
	m := newMachine(t)
	e, _, id := stubbornContainer(t, m)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := e.StopContainer(ctx, id, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("StopContainer = %v, want %v", err, context.DeadlineExceeded)
	}
	must(t, e.RemoveContainer(t.Context(), id)) // and a removal does not wait for the hour
}

// TestStopGoesOnWithoutItsCaller: a kubelet that was restarted meanwhile does not leave the container running.
func TestStopGoesOnWithoutItsCaller(t *testing.T) {
	m := newMachine(t)
	synctest.Test(t, func(t *testing.T) {
		e, _, id := stubbornContainer(t, m)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.StopContainer(ctx, id, 30*time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("StopContainer = %v, want %v", err, context.DeadlineExceeded)
		}
		time.Sleep(28 * time.Second)
		synctest.Wait()
		if s := container(t, e, id); s.State != record.ContainerRunning {
			t.Fatalf("status before the end of the grace period = %+v, want %s", s, record.ContainerRunning)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s := container(t, e, id); s.ExitCode != 137 || s.FinishedAt.Sub(begin) != 30*time.Second {
			t.Fatalf("status = %+v, want exit code 137 after 30s", s)
		}
		must(t, e.Close(t.Context()))
	})
}

func TestSecondStartIsRefused(t *testing.T) {
	m := newMachine(t)
	e, _, id := runningContainer(t, m)
	if err := e.StartContainer(t.Context(), id); err == nil || !strings.Contains(err.Error(), "running") {
		t.Fatalf("StartContainer = %v, want an error with the state, running", err)
	}
}

// A pod that has been stopped is removed without being stopped again, and one whose stop failed is stopped again.
func TestRemovePodAfterStop(t *testing.T) {
	m := newMachine(t)
	for _, stopFails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e, h := newEngine(t, m)
			id := mustRunPod(t, e, "web")
			want := 1 // by the removal itself
			if stopFails {
				h.fail("teardown")
				want = 2
			}
			if err := e.StopPod(t.Context(), id); (err != nil) != stopFails {
				t.Fatalf("StopPod = %v, want an error: %v", err, stopFails)
			}
			h.heal("teardown")
			h.arm(0, false, false)
			must(t, e.RemovePod(t.Context(), id))
			if n := h.count("teardown"); n != want {
				t.Errorf("RemovePod after a stop that failed (%v) tore the network down %d times, want %d; calls: %v",
					stopFails, n, want, h.callNames())
			}
		})
	}
}
