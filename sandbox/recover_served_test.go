package sandbox

import (
	"context"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/record"
)

// TestStopOnFullDisk: the disk did not take the state of a pod that was stopped. After a restart it is not ready: lists
// said so.
func TestStopOnFullDisk(t *testing.T) {
	for name, c := range map[string]struct {
		network cri.NamespaceMode
		fails   []string
	}{
		"killed before the end": {cri.NamespaceMode_POD, []string{"unpin"}},
		"killed at the start":   {cri.NamespaceMode_POD, []string{"unmount", "teardown", "unpin"}},
		"of the node's network": {cri.NamespaceMode_NODE, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			e, h := newEngine(t, m)
			config := podConfig("web")
			config.Hostname = ""
			config.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{
				Network: c.network, Pid: cri.NamespaceMode_CONTAINER,
			}
			pod, err := e.RunPod(t.Context(), config, "")
			must(t, err)
			h.fail(append(c.fails, "status")...)
			if err := e.StopPod(t.Context(), pod); (err != nil) != (len(c.fails) > 0) {
				t.Fatalf("StopPod = %v, want an error: %v", err, len(c.fails) > 0)
			}
			e, _ = restart(t, m, e, h)
			p, err := e.Pod(pod)
			must(t, err)
			if s := p.Status(); s.State != record.PodNotReady {
				t.Errorf("pod = %+v, want %s", s, record.PodNotReady)
			}
			must(t, e.RemovePod(t.Context(), pod))
			noLeaks(t, m)
		})
	}
}

// TestExitIsSyncedBeforeItIsListed: podd may have died between the write of an exit and its sync.
func TestExitIsSyncedBeforeItIsListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, h := newEngine(t, m)
		pod := mustRunPod(t, e, "web")
		id := mustCreate(t, e, pod, "main")
		mustStart(t, e, id)
		m.exit(id, oci.Exit{Code: 7, Known: true, At: time.Now()})
		waitExited(t, e, id)
		kill(e, h)

		e, h = makeEngine(t, m, "boot-1")
		h.fail("sync")
		must(t, e.Recover(t.Context()))
		if c, err := e.Container(id); !errdefs.IsUnavailable(err) {
			t.Errorf("Container before its exit is synced = %v, %v, want unavailable", c, err)
		}
		h.heal("sync")
		time.Sleep(2 * loadRetry)
		if s := waitExited(t, e, id); s.ExitCode != 7 {
			t.Errorf("status = %+v, want exit code 7", s)
		}
		kill(e, h)

		old := time.Now().Add(-time.Hour)
		must(t, os.Chtimes(recordsOf(m, pod, id)["container status"], old, old))
		e, h = makeEngine(t, m, "boot-1")
		h.fail("sync")
		must(t, e.Recover(t.Context()))
		if s := container(t, e, id); s.ExitCode != 7 {
			t.Errorf("status of an old exit = %+v, want exit code 7 without a sync", s)
		}
		must(t, e.RemovePod(t.Context(), pod))
		noLeaks(t, m)
		kill(e, h)
	})
}

// TestEventOfPodFoundDead: the engine serves before a slow runtime has said that a pod is dead.
func TestEventOfPodFoundDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, h := newEngine(t, m)
		pod := mustRunPod(t, e, "web")
		kill(e, h)
		m.exit(pod, oci.Exit{Code: 137, Known: true, At: time.Now()})

		e, h = makeEngine(t, m, "boot-1")
		release := h.hold("state")
		must(t, e.Recover(t.Context()))
		var stopped []string
		ctx, cancel := context.WithCancel(t.Context())
		go e.Events(ctx, func(event Event) error {
			if event.Type == lifecycle.Stopped {
				stopped = append(stopped, event.ID)
			}
			return nil
		})
		synctest.Wait()
		p, err := e.Pod(pod)
		must(t, err)
		if s := p.Status().State; s != record.PodReady {
			t.Fatalf("pod is %s before the runtime has answered, want %s", s, record.PodReady)
		}
		release()
		synctest.Wait()
		if s := p.Status().State; s != record.PodNotReady || !slices.Equal(stopped, []string{pod}) {
			t.Errorf("pod is %s, stopped events of %v, want %s and one", s, stopped, record.PodNotReady)
		}
		cancel()
		must(t, e.RemovePod(t.Context(), pod))
		noLeaks(t, m)
		kill(e, h)
	})
}

// TestStopOfPodFoundDead: a recovery finds a pod dead while a caller stops it. The stop says so, and posts the event.
func TestStopOfPodFoundDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, h := newEngine(t, m)
		pod := mustRunPod(t, e, "web")
		kill(e, h)
		m.exit(pod, oci.Exit{Code: 137, Known: true, At: time.Now()})

		e, h = makeEngine(t, m, "boot-1")
		look, detach := h.hold("state"), h.hold("teardown")
		must(t, e.Recover(t.Context()))
		stopped := make(chan error, 1)
		go func() { stopped <- e.StopPod(t.Context(), pod) }()
		synctest.Wait()
		look()
		synctest.Wait()
		p, err := e.Pod(pod)
		must(t, err)
		if s := p.Status().State; s != record.PodStopping {
			t.Errorf("pod is %s during the stop, want %s", s, record.PodStopping)
		}
		detach()
		must(t, <-stopped)
		if s := p.Status().State; s != record.PodNotReady {
			t.Errorf("pod is %s after the stop, want %s", s, record.PodNotReady)
		}
		must(t, e.RemovePod(t.Context(), pod))
		noLeaks(t, m)
		kill(e, h)
	})
}
