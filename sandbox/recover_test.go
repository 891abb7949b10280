package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/selinux/go-selinux"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/record"
)

// kill ends the engine of h as kill -9 does.
func kill(e *Engine, h *faults) {
	h.kill()
	e.life.End(errClosing)
	e.work.Wait()
}

// restart kills the engine of h and starts another on the same machine.
func restart(t *testing.T, m *machine, e *Engine, h *faults) (*Engine, *faults) {
	t.Helper()
	kill(e, h)
	return newEngine(t, m)
}

func TestRestartKeepsRunningPods(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	pod := mustRunPod(t, e, "web")
	id, created := mustCreate(t, e, pod, "main"), mustCreate(t, e, pod, "later")
	mustStart(t, e, id)
	before := container(t, e, id)

	e, h = restart(t, m, e, h)
	if calls := h.callNames(); len(calls) > 0 {
		t.Fatalf("calls of a restart = %v, want none", calls)
	}
	p, err := e.Pod(pod)
	must(t, err)
	if s := p.Status(); s.State != record.PodReady || len(s.IPs) != 2 {
		t.Fatalf("pod = %+v, want %s with 2 addresses", s, record.PodReady)
	}
	if p.Config.GetHostname() != "web" {
		t.Fatalf("hostname in config %v, want web", p.Config)
	}
	after := container(t, e, id)
	if after.State != record.ContainerRunning || !after.StartedAt.Equal(before.StartedAt) ||
		after.Process != before.Process || after.User == nil {
		t.Fatalf("before %+v, after %+v", before, after)
	}
	// The kubelet asks for the same pod again: it is the same.
	if again := mustRunPod(t, e, "web"); again != pod {
		t.Fatalf("got another pod")
	}
	mustStart(t, e, created)
	m.exit(id, oci.Exit{Code: 7, Known: true, At: time.Now()})
	if s := waitExited(t, e, id); s.ExitCode != 7 {
		t.Fatalf("status = %+v, want exit code 7", s)
	}
	must(t, e.RemovePod(t.Context(), pod))
	noLeaks(t, m)
}

func TestCommandThatCannotRunIsAStartErrorAfterARestartToo(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	pod := mustRunPod(t, e, "web")
	id := mustCreateUnrunnable(t, e, pod)
	e, _ = restart(t, m, e, h)
	if s := container(t, e, id); s.State != record.ContainerCreated {
		t.Fatalf("after the restart: %+v", s)
	}
	if err := e.StartContainer(t.Context(), id); !errors.Is(err, oci.ErrCommand) ||
		!strings.Contains(err.Error(), "nope") {
		t.Fatalf("StartContainer = %v, want %v that names the command", err, oci.ErrCommand)
	}
	if s := container(t, e, id); s.ExitCode != 128 || s.Reason != reasonStartError ||
		!strings.Contains(s.Message, "nope") {
		t.Fatalf("status = %+v, want 128, %s, a message that names the command", s, reasonStartError)
	}
	must(t, e.RemovePod(t.Context(), pod))
	noLeaks(t, m)
}

// TestCommandThatCannotRunAfterReboot: also a container that had no process has exited after another boot.
func TestCommandThatCannotRunAfterReboot(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	pod := mustRunPod(t, e, "web")
	id := mustCreateUnrunnable(t, e, pod)
	kill(e, h)
	m.reboot(t)
	e, _ = newEngineAt(t, m, "boot-2")
	if s := container(t, e, id); s.State != record.ContainerExited || s.ExitCode != 128 || s.Reason != reasonStartError ||
		!strings.Contains(s.Message, "nope") {
		t.Errorf("status = %+v, want exited, 128, %s, a message that names the command", s, reasonStartError)
	}
	must(t, e.RemovePod(t.Context(), pod))
	noLeaks(t, m)
}

func TestRestartKeepsSELinuxLevels(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	pod := mustRunPod(t, e, "web")
	var r record.Pod
	path := filepath.Join(m.dir, "root/pods", pod, record.File)
	must(t, checkpoint.Read(path, record.Version, &r))
	r.Labels.Process = "system_u:system_r:container_t:s0:c7,c1007"
	must(t, checkpoint.Write(path, record.Version, r))
	e, _ = restart(t, m, e, h)
	if err := selinux.ReserveLabelV2(r.Labels.Process); err == nil {
		t.Fatal("another pod could be given the level of a running one")
	}
	must(t, e.RemovePod(t.Context(), pod))
	must(t, selinux.ReserveLabelV2(r.Labels.Process))
	selinux.ReleaseLabel(r.Labels.Process)
}

func TestExitWhileTheDaemonWasDown(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	pod := mustRunPod(t, e, "web")
	id := mustCreate(t, e, pod, "main")
	mustStart(t, e, id)
	kill(e, h)
	at := time.Now().Add(time.Hour)
	m.exit(id, oci.Exit{Code: 137, OOM: true, Known: true, At: at})

	e, _ = newEngine(t, m)
	if s := waitExited(t, e, id); s.ExitCode != 137 || s.Reason != "OOMKilled" || !s.FinishedAt.Equal(at) {
		t.Fatalf("status = %+v, want 137, %s at %v", s, reasonOOMKilled, at)
	}
	must(t, e.RemovePod(t.Context(), pod))
	noLeaks(t, m)
}

func TestReboot(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	pod := mustRunPod(t, e, "web")
	id := mustCreate(t, e, pod, "main")
	mustStart(t, e, id)
	kill(e, h)
	m.reboot(t)

	e, h = newEngineAt(t, m, "boot-2")
	p, err := e.Pod(pod)
	must(t, err)
	if s := p.Status(); s.State != record.PodNotReady || !strings.Contains(s.Reason, "reboot") {
		t.Fatalf("pod = %+v, want %s after a reboot", s, record.PodNotReady)
	}
	if s := waitExited(t, e, id); s.ExitCode != 255 || s.Reason != "Unknown" {
		t.Fatalf("container = %+v, want 255, %s", s, reasonUnknown)
	}
	must(t, e.RemovePod(t.Context(), pod))
	noLeaks(t, m) // the attachment too: CNI DEL was run although its namespace is gone
	if id := mustRunPod(t, e, "web"); id == "" {
		t.Fatal("no pod")
	}
	_ = h
}

func TestRestartWithALeftoverOfTheSameName(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	pod := mustRunPod(t, e, "web")
	for range 4 { // ids are random, so each of the two comes first some time
		failContainerCreation(t, e, h, pod)
		id := mustCreate(t, e, pod, "main")
		mustStart(t, e, id)
		e, h = restart(t, m, e, h)
		if s := container(t, e, id); s.State != record.ContainerRunning {
			t.Fatalf("a leftover took a running container's place: %+v", s)
		}
		if n := len(e.ContainersOf(e.Pods()[0])); n != 1 {
			t.Fatalf("%d containers, want the leftover undone by the restart", n)
		}
		must(t, e.RemoveContainer(t.Context(), id))
	}
	must(t, e.RemovePod(t.Context(), pod))
	noLeaks(t, m)
}

func TestHalfMadeContainerThatCannotBeUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, h := newEngine(t, m)
		pod := mustRunPod(t, e, "web")
		h.arm(4, false, true) // the image is resolved twice, the root filesystem is there
		if !h.runUntilDead(func(ctx context.Context) { e.CreateContainer(ctx, pod, containerConfig("main")) }) {
			t.Fatal("no crash")
		}
		e.life.End(errClosing)
		e.work.Wait()

		e, h = makeEngine(t, m, "boot-1")
		h.fail("release")
		must(t, e.Recover(t.Context()))
		must(t, e.WaitRecovered(t.Context()))
		left := e.Containers()
		if len(left) != 1 || left[0].Status().State != record.ContainerCreating {
			t.Fatalf("containers = %v, want one that is %s", left, record.ContainerCreating)
		}
		if id := mustCreate(t, e, pod, "main"); id == left[0].ID {
			t.Fatal("the kubelet was given a half-made container")
		}
		h.heal("release")
		must(t, e.RemovePod(t.Context(), pod))
		noLeaks(t, m)
	})
}

func TestPodOfAHandlerThatIsNotConfiguredAnyMore(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	pod, err := e.RunPod(t.Context(), podConfig("web"), "other")
	must(t, err)
	mustStart(t, e, mustCreate(t, e, pod, "main"))
	crash := func() {
		kill(e, h)
	}
	crash()
	e, h = makeEngine(t, m, "boot-1")
	delete(e.handlers.Current().Runtimes, "other")
	e.cfg.Load().KillTimeout = 10 * time.Millisecond
	must(t, e.Recover(t.Context()))
	if err := e.RemovePod(t.Context(), pod); err == nil || m.pidsAlive() != 2 {
		t.Fatalf("removed without its processes, %d of which live: %v", m.pidsAlive(), err)
	}
	crash()
	m.reboot(t)
	e, h = makeEngine(t, m, "boot-2")
	delete(e.handlers.Current().Runtimes, "other")
	must(t, e.Recover(t.Context()))
	must(t, e.RemovePod(t.Context(), pod))
	noLeaks(t, m)
}

func TestBadRecordsHarmOnePod(t *testing.T) {
	damage := map[string]func(t *testing.T, dir string){
		"empty record":     func(t *testing.T, dir string) { truncate(t, filepath.Join(dir, record.File), 0) },
		"truncated status": func(t *testing.T, dir string) { truncate(t, filepath.Join(dir, record.StatusFile), 40) },
		"no status":        func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, record.StatusFile))) },
		"record is a dir": func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, record.File)))
			must(t, os.Mkdir(filepath.Join(dir, record.File), 0o700))
		},
	}
	for name, hurt := range damage {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			e, h := newEngine(t, m)
			bad, good := mustRunPod(t, e, "bad"), mustRunPod(t, e, "good")
			mustStart(t, e, mustCreate(t, e, bad, "main"))
			hurt(t, filepath.Join(m.dir, "root/pods", bad))
			e, _ = restart(t, m, e, h)
			if _, err := e.Pod(bad); err == nil {
				t.Error("the bad pod is listed")
			}
			if _, err := e.Pod(good); err != nil {
				t.Error(err)
			}
			kept, err := filepath.Glob(filepath.Join(m.dir, "root/quarantine", bad+"*"))
			if err != nil || len(kept) != 1 {
				t.Fatalf("quarantine holds %v", kept)
			}
			// What the lost record stood for is freed at the start, with nobody asking for it.
			must(t, os.RemoveAll(kept[0]))
			must(t, e.RemovePod(t.Context(), good))
			noLeaks(t, m)
		})
	}
}

func truncate(t *testing.T, path string, size int64) {
	t.Helper()
	must(t, os.Truncate(path, size))
}

func TestReconcilePod(t *testing.T) {
	alive, dead, other := podObservation{true, true}, podObservation{true, false}, podObservation{false, false}
	for _, c := range []struct {
		recorded record.PodState
		seen     podObservation
		want     podAction
	}{
		{record.PodCreating, alive, podDiscard},
		{record.PodCreating, dead, podDiscard},
		{record.PodCreating, other, podDiscard},
		{record.PodReady, alive, podKeep}, {record.PodReady, dead, podNotReady}, {record.PodReady, other, podNotReady},
		{record.PodStopping, alive, podNotReady}, {record.PodStopping, dead, podNotReady},
		{record.PodStopping, other, podNotReady},
		{record.PodNotReady, alive, podKeep}, {record.PodNotReady, dead, podKeep}, {record.PodNotReady, other, podKeep},
	} {
		if got := reconcilePod(c.recorded, c.seen); got != c.want {
			t.Errorf("%s, %+v: got %s, want %s", c.recorded, c.seen, got, c.want)
		}
	}
}

func TestReconcileContainer(t *testing.T) {
	for _, c := range []struct {
		recorded record.ContainerState
		sameBoot bool
		status   oci.Status
		want     containerAction
	}{
		{record.ContainerCreating, true, oci.Absent, containerDiscard},
		{record.ContainerCreating, true, oci.Running, containerDiscard},
		{record.ContainerCreating, false, oci.Absent, containerDiscard},
		{record.ContainerCreated, true, oci.Created, containerWatch},
		{record.ContainerCreated, true, oci.Running, containerStarted},
		{record.ContainerCreated, true, oci.Stopped, containerWatch},
		{record.ContainerCreated, true, oci.Absent, containerWatch},
		{record.ContainerCreated, false, oci.Absent, containerLost},
		{record.ContainerRunning, true, oci.Running, containerWatch},
		{record.ContainerRunning, true, oci.Paused, containerWatch},
		{record.ContainerRunning, true, oci.Stopped, containerWatch},
		{record.ContainerRunning, true, oci.Absent, containerWatch},
		{record.ContainerRunning, false, oci.Absent, containerLost},
		{record.ContainerExited, true, oci.Running, containerRelease},
		{record.ContainerExited, true, oci.Stopped, containerRelease},
		{record.ContainerExited, true, oci.Absent, containerKeep},
		{record.ContainerExited, false, oci.Absent, containerKeep},
	} {
		seen := containerObservation{sameBoot: c.sameBoot, status: c.status}
		if got := reconcileContainer(c.recorded, seen); got != c.want {
			t.Errorf("%s, same boot %v, %s: got %s, want %s", c.recorded, c.sameBoot, c.status, got, c.want)
		}
	}
	for status, want := range map[oci.Status]containerAction{
		oci.Created: containerKeep, "": containerKeep, oci.Stopped: containerWatch, oci.Running: containerStarted,
	} {
		seen := containerObservation{sameBoot: true, status: status, waiting: true}
		if got := reconcileContainer(record.ContainerCreated, seen); got != want {
			t.Errorf("not restored yet, %q: got %s, want %s", status, got, want)
		}
	}
}

func TestTransitions(t *testing.T) {
	for _, c := range []struct {
		from, to record.ContainerState
		ok       bool
	}{
		{record.ContainerCreating, record.ContainerCreated, true}, {record.ContainerCreating, record.ContainerRunning, false},
		{record.ContainerCreating, record.ContainerExited, false}, {record.ContainerCreated, record.ContainerExited, true},
		{record.ContainerRunning, record.ContainerCreated, false}, {record.ContainerExited, record.ContainerRunning, false},
		{record.ContainerExited, record.ContainerExited, true},
	} {
		if err := c.from.CheckTransition(c.to); (err == nil) != c.ok {
			t.Errorf("CheckTransition(%s -> %s) = %v, want it allowed: %v", c.from, c.to, err, c.ok)
		}
	}
	for _, c := range []struct {
		from, to record.PodState
		ok       bool
	}{
		{record.PodCreating, record.PodReady, true}, {record.PodReady, record.PodCreating, false},
		{record.PodNotReady, record.PodReady, false},
		{record.PodStopping, record.PodReady, false}, {record.PodStopping, record.PodNotReady, true},
	} {
		if err := c.from.CheckTransition(c.to); (err == nil) != c.ok {
			t.Errorf("CheckTransition(%s -> %s) = %v, want it allowed: %v", c.from, c.to, err, c.ok)
		}
	}
}
