package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/sandbox/snapshot"
	"github.com/podd-project/podd/sandbox/usage"
)

// verbCheckpoint saves the pod. If it fails, its directory must be empty.
var verbCheckpoint = verb{"CheckpointPod", func(ctx context.Context, l *podLife) (err error) {
	if l.snapshot, err = os.MkdirTemp(filepath.Dir(l.e.node.Root), "snapshot-"); err != nil {
		return err
	}
	err = l.e.CheckpointPod(ctx, l.pod, l.snapshot, []string{l.container})
	if left, _ := os.ReadDir(l.snapshot); err != nil && len(left) > 0 {
		return fmt.Errorf("directory has %v after: %v", left, err)
	}
	return err
}}

// verbRestore restores the saved pod under another name. If it fails, no pod of that name may be left.
var verbRestore = verb{"RestorePod", func(ctx context.Context, l *podLife) error {
	_, containers, err := l.e.RestorePod(ctx, restoreRequest(l))
	if pods := l.e.store.pods.List(nil); err != nil && len(pods) > 1 {
		return fmt.Errorf("%d pods after: %v", len(pods), err)
	}
	if err == nil {
		l.restored = containers[0].ID
	}
	return err
}}

func restoreRequest(l *podLife) RestoreRequest {
	return RestoreRequest{
		Path: l.snapshot, Pod: ownPID("copy"), Containers: []*cri.ContainerConfig{containerConfig("main")},
		Handler: l.handler,
	}
}

// ownPID is the config of a pod whose containers have PID namespaces of their own.
func ownPID(name string) *cri.PodSandboxConfig {
	config := podConfig(name)
	config.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_CONTAINER
	return config
}

// checkpointHandlers are a handler with CRIU and one with a kernel of its own.
var checkpointHandlers = []string{"runc", "gvisor"}

// runsOn are the verbs that make a pod of a handler that can be saved.
func runsOn(handler string) []verb {
	return []verb{{"RunPod", func(ctx context.Context, l *podLife) (err error) {
		l.handler = handler
		l.pod, err = l.e.RunPod(ctx, ownPID(l.name), handler)
		return err
	}}, verbs[1], verbs[2]}
}

// saved returns a pod that runs and was saved.
func saved(t *testing.T, m *machine, handler string) (*podLife, *faults) {
	t.Helper()
	e, h := newEngine(t, m)
	l := &podLife{e: e, name: "web"}
	for _, v := range append(runsOn(handler), verbCheckpoint) {
		must(t, v.do(t.Context(), l))
	}
	return l, h
}

// eachKind runs the test with each of checkpointHandlers.
func eachKind(t *testing.T, test func(t *testing.T, handler string)) {
	for _, handler := range checkpointHandlers {
		t.Run(handler, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, handler) }) })
	}
}

// TestRestore: the containers are created and not started, the images are kept until they are, and a retry joins.
func TestRestore(t *testing.T) {
	eachKind(t, func(t *testing.T, handler string) {
		m := newMachine(t)
		l, _ := saved(t, m, handler)
		p, containers, err := l.e.RestorePod(t.Context(), restoreRequest(l))
		must(t, err)
		c := containers[0]
		s := c.Status().State
		if len(containers) != 1 || s != record.ContainerCreated || p.Status().State != record.PodReady {
			t.Errorf("restored pod is %s with containers %v, the first %s; want one that is created",
				p.Status().State, containers, s)
		}
		again, same, err := l.e.RestorePod(t.Context(), restoreRequest(l))
		if err != nil || again != p || same[0] != c {
			t.Errorf("the same request = %v, %v, %v, want the same pod", again, same, err)
		}
		if _, err := l.e.RunPod(t.Context(), ownPID("copy"), handler); !errdefs.IsAlreadyExists(err) {
			t.Errorf("RunPod with the config of the restored pod = %v, want %v", err, errdefs.ErrAlreadyExists)
		}
		if images, _ := os.ReadDir(l.e.paths.Images(p.ID)); len(images) == 0 {
			t.Error("no images before the start, want those of the checkpoint")
		}
		must(t, os.RemoveAll(l.snapshot)) // it is the caller's, and not needed any more
		mustStart(t, l.e, c.ID)
		if _, err := os.Stat(l.e.paths.Images(p.ID)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("images after the start: %v, want them removed", err)
		}
		removeEverything(t, l.e)
		noLeaks(t, m)
	})
}

// TestExecInAPodThatIsRestored: with gVisor, whose sandbox continues when its last container is started, a pod gets
// neither commands nor measurements before.
func TestExecInAPodThatIsRestored(t *testing.T) {
	eachKind(t, func(t *testing.T, handler string) {
		m := newMachine(t)
		e, _ := newEngine(t, m)
		e.deps.Cgroups = newFakeCgroups()
		e.usage = newCollector(*e.cfg.Load(), e.deps)
		defer e.usage.Close()
		metered := &meteredRuntime{ownKernel: e.handlers.Current().Runtimes["gvisor"].(ownKernel), engine: e}
		e.handlers.Current().Runtimes["gvisor"] = metered
		pod, err := e.RunPod(t.Context(), ownPID("web"), handler)
		must(t, err)
		var ids []string
		for _, name := range []string{"main", "side"} {
			ids = append(ids, mustCreate(t, e, pod, name))
			mustStart(t, e, ids[len(ids)-1])
		}
		dir := t.TempDir()
		must(t, e.CheckpointPod(t.Context(), pod, dir, ids))
		_, containers, err := e.RestorePod(t.Context(), RestoreRequest{
			Path: dir, Pod: ownPID("copy"), Handler: handler,
			Containers: []*cri.ContainerConfig{containerConfig("main"), containerConfig("side")},
		})
		must(t, err)
		first := containers[0].ID
		for i, c := range containers {
			mustStart(t, e, c.ID)
			held := handler == "gvisor" && i == 0
			_, err := e.ExecSync(t.Context(), first, []string{"true"}, time.Second)
			if held != errdefs.IsFailedPrecondition(err) || held != (err != nil) {
				t.Errorf("%d started: ExecSync = %v, want it held back: %v", i+1, err, held)
			}
			_, err = e.Exec(t.Context(), first, []string{"true"}, false, oci.Streams{})
			if held != errdefs.IsFailedPrecondition(err) || held != (err != nil) {
				t.Errorf("%d started: Exec = %v, want it held back: %v", i+1, err, held)
			}
			if handler == "gvisor" {
				if got := e.ContainerUsage(t.Context(), []string{first}, usage.Want{}); (len(got) == 0) != held {
					t.Errorf("%d started: usage = %s, want it held back: %v", i+1, asJSON(got), held)
				}
			}
		}
	})
}

// TestLargeRestoreMayTakeLonger: the limits of a creation grow with the images.
func TestLargeRestoreMayTakeLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		l, _ := saved(t, m, "runc")
		p, containers, err := l.e.RestorePod(t.Context(), restoreRequest(l))
		must(t, err)
		const size = 20 << 30
		must(t, os.Truncate(filepath.Join(containers[0].image(l.e.paths), "core-1.img"), size))
		p.source = &snapshot.Snapshot{Manifest: snapshot.Manifest{Files: []snapshot.File{{Size: size}}}}
		limit := l.e.cfg.Load().CreateTimeout
		for what, got := range map[string]time.Duration{
			"pod": l.e.podPlan(p).Timeout - limit, "container": l.e.containerPlan(containers[0]).Timeout - limit,
		} {
			if want := 1024 * time.Second; got != want {
				t.Errorf("%s may take %v more, want %v", what, got, want)
			}
		}
		p.source = nil
		if got := l.e.podPlan(p).Timeout; got != limit {
			t.Errorf("pod that is not restored may take %v, want %v", got, limit)
		}
		removeEverything(t, l.e)
		noLeaks(t, m)
	})
}

// TestRestoreOfARunningPodIsRefused: a request that comes again after the containers were started removes nothing.
func TestRestoreOfARunningPodIsRefused(t *testing.T) {
	eachKind(t, func(t *testing.T, handler string) {
		l, _ := saved(t, newMachine(t), handler)
		p, containers, err := l.e.RestorePod(t.Context(), restoreRequest(l))
		must(t, err)
		mustStart(t, l.e, containers[0].ID)
		if _, _, err := l.e.RestorePod(t.Context(), restoreRequest(l)); !errdefs.IsAlreadyExists(err) {
			t.Errorf("RestorePod = %v, want %v", err, errdefs.ErrAlreadyExists)
		}
		if s := p.Status().State; s != record.PodReady || containers[0].Status().State != record.ContainerRunning {
			t.Errorf("pod is %s, its container %s, want them to run", s, containers[0].Status().State)
		}
	})
}

// TestRestoreWhoseCallerGivesUp leaves nothing.
func TestRestoreWhoseCallerGivesUp(t *testing.T) {
	for _, verb := range []string{"setup", "create", "rootfs"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t)
				l, h := saved(t, m, "runc")
				defer h.hold(verb)()
				if _, _, err := l.e.RestorePod(h.givesUpAt(t.Context(), verb), restoreRequest(l)); !errdefs.IsCanceled(err) {
					t.Errorf("RestorePod = %v, want %v", err, context.Canceled)
				}
				if pods := l.e.store.pods.List(nil); len(pods) != 1 {
					t.Errorf("%d pods, want only the one that was saved", len(pods))
				}
				removeEverything(t, l.e)
				noLeaks(t, m)
			})
		})
	}
}

// TestRestoredContainerSurvivesARestart: it stays created, without being run, and can be started.
func TestRestoredContainerSurvivesARestart(t *testing.T) {
	eachKind(t, func(t *testing.T, handler string) {
		m := newMachine(t)
		l, h := saved(t, m, handler)
		_, containers, err := l.e.RestorePod(t.Context(), restoreRequest(l))
		must(t, err)
		e, _ := restart(t, m, l.e, h)
		c, err := e.Container(containers[0].ID)
		must(t, err)
		if s := c.Status().State; s != record.ContainerCreated {
			t.Fatalf("container is %s after the restart, want %s", s, record.ContainerCreated)
		}
		mustStart(t, e, c.ID)
		removeEverything(t, e)
		noLeaks(t, m)
	})
}

// TestRestoreIsRefused: each of these leaves no pod.
func TestRestoreIsRefused(t *testing.T) {
	eachKind(t, func(t *testing.T, handler string) {
		l, _ := saved(t, newMachine(t), handler)
		for words, change := range map[string]func(r *RestoreRequest){
			"differs from the checkpoint in command": func(r *RestoreRequest) { r.Containers[0].Command = []string{"true"} },
			`no container "db"`:                      func(r *RestoreRequest) { r.Containers[0].Metadata.Name = "db" },
			"no config in the request":               func(r *RestoreRequest) { r.Containers = nil },
			"image":                                  func(r *RestoreRequest) { r.Containers[0].Image.Image = "none" },
			"linux.security_context":                 func(r *RestoreRequest) { r.Pod.Linux.SecurityContext.Privileged = true },
			"manifest.json":                          func(r *RestoreRequest) { r.Path = filepath.Dir(r.Path) },
			"no runtime handler":                     func(r *RestoreRequest) { r.Handler = "none" },
			"has images of kind": func(r *RestoreRequest) {
				r.Handler = map[string]string{"runc": "gvisor", "gvisor": "runc"}[handler]
			},
		} {
			r := restoreRequest(l)
			change(&r)
			if _, _, err := l.e.RestorePod(t.Context(), r); err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("RestorePod = %v, want %q", err, words)
			}
		}
		if pods := l.e.store.pods.List(nil); len(pods) != 1 {
			t.Errorf("%d pods, want only the one that was saved", len(pods))
		}
	})
}

// TestCheckpointSeesChanges: a container that exits, or is created, while the pod is saved makes the checkpoint fail.
func TestCheckpointSeesChanges(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, m *machine, l *podLife){
		"created": func(t *testing.T, m *machine, l *podLife) { mustCreate(t, l.e, l.pod, "other") },
		"stopped": func(t *testing.T, m *machine, l *podLife) {
			must(t, l.e.StopContainer(t.Context(), l.container, 0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t)
				l, h := saved(t, m, "gvisor")
				release := h.hold("checkpoint")
				done := make(chan error, 1)
				go func() { done <- verbCheckpoint.do(t.Context(), l) }()
				h.await("checkpoint")
				change(t, m, l)
				release()
				if err := <-done; !errdefs.IsFailedPrecondition(err) {
					t.Errorf("CheckpointPod = %v, want %v", err, errdefs.ErrFailedPrecondition)
				}
				removeEverything(t, l.e)
				noLeaks(t, m)
			})
		})
	}
}

// TestImagesOfWhatNeverStarts: they have the memory of the processes, and are removed when the last container that
// would need them is stopped, removed, or fails to start, though the pod stays.
func TestImagesOfWhatNeverStarts(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, e *Engine, h *faults, id string){
		"stopped": func(t *testing.T, e *Engine, _ *faults, id string) { must(t, e.StopContainer(t.Context(), id, 0)) },
		"removed": func(t *testing.T, e *Engine, _ *faults, id string) { must(t, e.RemoveContainer(t.Context(), id)) },
		"failed": func(t *testing.T, e *Engine, h *faults, id string) {
			h.fail("start")
			defer h.heal("start")
			if err := e.StartContainer(t.Context(), id); err == nil {
				t.Error("StartContainer = nil, want an error")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, handler string) {
				m := newMachine(t)
				l, h := saved(t, m, handler)
				p, containers, err := l.e.RestorePod(t.Context(), restoreRequest(l))
				must(t, err)
				end(t, l.e, h, containers[0].ID)
				synctest.Wait()
				if _, err := os.Stat(l.e.paths.Images(p.ID)); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("images: %v, want them removed", err)
				}
				if s := p.Status().State; s != record.PodReady {
					t.Errorf("pod is %s, want it ready", s)
				}
				removeEverything(t, l.e)
				noLeaks(t, m)
			})
		})
	}
}

// TestStoppedRestoredPodHasNoImages: they are freed by the stop, not only with the record.
func TestStoppedRestoredPodHasNoImages(t *testing.T) {
	eachKind(t, func(t *testing.T, handler string) {
		l, _ := saved(t, newMachine(t), handler)
		p, _, err := l.e.RestorePod(t.Context(), restoreRequest(l))
		must(t, err)
		must(t, l.e.StopPod(t.Context(), p.ID))
		if _, err := os.Stat(l.e.paths.Images(p.ID)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("images after the stop: %v, want them removed", err)
		}
	})
}
