package sandbox

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/record"
)

func TestCloseLetsAStartFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, h := newEngine(t, m)
		id := mustCreate(t, e, mustRunPod(t, e, "web"), "main")
		release := h.hold("start")
		started := make(chan error, 1)
		go func() { started <- e.StartContainer(t.Context(), id) }()
		h.await("start")
		closed := make(chan error, 1)
		go func() { closed <- e.Close(t.Context()) }()
		synctest.Wait()
		release()
		if err := errors.Join(<-started, <-closed); err != nil {
			t.Fatal(err)
		}
		if s := container(t, e, id); s.State != record.ContainerRunning || m.pidsAlive() != 2 {
			t.Errorf("%d processes live, the container is %+v", m.pidsAlive(), s)
		}
		h.kill()
	})
}

func TestClosedEngineTurnsWorkAway(t *testing.T) {
	m := newMachine(t)
	e, _ := newEngine(t, m)
	pod := mustRunPod(t, e, "web")
	created, running := mustCreate(t, e, pod, "created"), mustCreate(t, e, pod, "running")
	mustStart(t, e, running)
	must(t, e.Close(t.Context()))
	ctx := t.Context()
	_, run := e.RunPod(ctx, podConfig("other"), "")
	_, create := e.CreateContainer(ctx, pod, containerConfig("other"))
	for what, err := range map[string]error{
		"RunPod": run, "CreateContainer": create, "StartContainer": e.StartContainer(ctx, created),
		"StopContainer": e.StopContainer(ctx, running, 0),
	} {
		if !errors.Is(err, errClosing) {
			t.Errorf("%s = %v, want %v", what, err, errClosing)
		}
	}
	if n := len(e.store.pods.List(nil)); n != 1 {
		t.Errorf("%d pods, want 1", n)
	}
	if m.pidsAlive() != 3 {
		t.Errorf("%d processes live", m.pidsAlive())
	}
}

func TestContainerOfAHandlerThatIsNotConfiguredAnyMoreIsWatchedAndRemoved(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	pod, err := e.RunPod(t.Context(), podConfig("web"), "other")
	must(t, err)
	ends, stays := mustCreate(t, e, pod, "ends"), mustCreate(t, e, pod, "stays")
	mustStart(t, e, ends)
	mustStart(t, e, stays)
	kill(e, h)

	e, h = makeEngine(t, m, "boot-1")
	delete(e.handlers.Current().Runtimes, "other")
	made := 0
	e.handlers.NewRetired = func(handler string) Runtime {
		if made++; handler != "other" {
			t.Errorf("asked for handler %q", handler)
		}
		return m.runtime(h, handler)
	}
	must(t, e.Recover(t.Context()))
	if _, err := e.RunPod(t.Context(), podConfig("new"), "other"); err == nil {
		t.Error("a new pod was made with a handler that is not configured")
	}
	m.exit(ends, oci.Exit{Code: 7, Known: true, At: time.Now()})
	if s := waitExited(t, e, ends); s.ExitCode != 7 {
		t.Errorf("status = %+v, want exit code 7", s)
	}
	must(t, e.RemovePod(t.Context(), pod))
	noLeaks(t, m)
	if made != 1 {
		t.Errorf("the handler was made %d times: a Delete does not find who waits", made)
	}
}

// TestSoak: many callers make, start, stop and remove pods while the daemon is killed again and again.
func TestSoak(t *testing.T) {
	rounds := 5
	if os.Getenv("SOAK") != "" {
		rounds = 200
	}
	m := newMachine(t)
	for round := range rounds {
		e, h := newEngine(t, m)
		e.cfg.Load().CreateTimeout = time.Second // for what waits for a goroutine that died
		h.arm(200+round%100, false, true)
		ctx, stop := context.WithCancel(t.Context())
		var callers lifecycle.Work
		callers.Go(func() { e.RunGC(ctx) })
		for i := range 8 {
			callers.Go(func() {
				for v := 0; ctx.Err() == nil; v++ {
					l := &podLife{e: e, name: string(rune('a' + i))}
					for _, verb := range verbs {
						if err := verb.do(ctx, l); err != nil {
							removeNamed(ctx, e, l.name) // what an earlier daemon left stands in the way
							break
						}
					}
				}
			})
		}
		<-h.dead
		stop()
		e.life.End(errClosing)
		callers.Wait()
		e.work.Wait()
	}
	e, _ := newEngine(t, m)
	removeEverything(t, e)
	noLeaks(t, m)
}

// removeNamed removes the pods of that name, as a kubelet does that wants another.
func removeNamed(ctx context.Context, e *Engine, name string) {
	for _, p := range e.Pods() {
		if p.Config.GetMetadata().GetName() == name {
			_ = e.RemovePod(ctx, p.ID)
		}
	}
}
