package sandbox

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/record"
)

// runUserPod runs a pod with every kind of pin.
func runUserPod(t *testing.T, e *Engine) *Pod {
	t.Helper()
	config := podConfig("web")
	ids := []*cri.IDMapping{{HostId: 100_000, Length: 65_536}}
	config.Linux.SecurityContext.NamespaceOptions.UsernsOptions = &cri.UserNamespace{
		Mode: cri.NamespaceMode_POD, Uids: ids, Gids: ids,
	}
	id, err := e.RunPod(t.Context(), config, "")
	must(t, err)
	p, err := e.Pod(id)
	must(t, err)
	return p
}

// TestLostPartOfAPod: a pod that has lost what its containers need is not ready, however that is found out.
func TestLostPartOfAPod(t *testing.T) {
	for name, path := range map[string]func(e *Engine, p *Pod) string{
		"net namespace":  func(_ *Engine, p *Pod) string { return p.Netns },
		"ipc namespace":  func(e *Engine, p *Pod) string { return e.paths.Pins(p.ID).IPC },
		"uts namespace":  func(e *Engine, p *Pod) string { return e.paths.Pins(p.ID).UTS },
		"user namespace": func(e *Engine, p *Pod) string { return e.paths.Pins(p.ID).User },
		"hosts":          func(e *Engine, p *Pod) string { return e.files.Paths(p.ID, p.Config).Hosts },
		"shm":            func(e *Engine, p *Pod) string { return e.files.Paths(p.ID, p.Config).Shm },
	} {
		t.Run(name, func(t *testing.T) {
			testLoss(t, name, func(m *machine, e *Engine, p *Pod) {
				must(t, errors.Join(m.namespaces.Unmount(path(e, p)), os.Remove(path(e, p))))
			})
		})
		if strings.HasSuffix(name, "namespace") {
			t.Run(name+" unmounted", func(t *testing.T) {
				testLoss(t, name, func(m *machine, e *Engine, p *Pod) { must(t, m.namespaces.Unmount(path(e, p))) })
			})
		}
	}
	t.Run("infra container", func(t *testing.T) {
		testLoss(t, "infra", func(m *machine, _ *Engine, p *Pod) { m.exit(p.ID, oci.Exit{Code: 137, Known: true}) })
	})
}

// testLoss checks a loss that is found by a look, by a failed creation, and by a restart.
func testLoss(t *testing.T, what string, lose func(*machine, *Engine, *Pod)) {
	synctest.Test(t, func(t *testing.T) {
		for _, find := range []func(*machine, *Engine, *faults, *Pod) *Engine{
			func(_ *machine, e *Engine, _ *faults, _ *Pod) *Engine {
				time.Sleep(lossInterval + time.Second)
				return e
			},
			func(_ *machine, e *Engine, h *faults, p *Pod) *Engine {
				h.fail("create")
				if _, err := e.CreateContainer(t.Context(), p.ID, containerConfig("x")); !errdefs.IsFailedPrecondition(err) {
					t.Errorf("CreateContainer = %v, want a failed precondition", err)
				}
				return e
			},
			func(m *machine, e *Engine, h *faults, _ *Pod) *Engine {
				e, _ = restart(t, m, e, h)
				return e
			},
		} {
			m := newMachine(t)
			e, h := newEngine(t, m)
			p := runUserPod(t, e)
			id := mustCreate(t, e, p.ID, "main")
			mustStart(t, e, id)
			lose(m, e, p)
			e = find(m, e, h, p)
			p, err := e.Pod(p.ID)
			must(t, err)
			if s := p.Status(); s.State != record.PodNotReady || !strings.Contains(s.Reason, what) {
				t.Errorf("pod = %s (%s), want %s because of %q", s.State, s.Reason, record.PodNotReady, what)
			}
			if _, err := e.CreateContainer(t.Context(), p.ID, containerConfig("y")); !errdefs.IsFailedPrecondition(err) ||
				!strings.Contains(err.Error(), what) {
				t.Errorf("CreateContainer after that = %v, want a failed precondition because of %q", err, what)
			}
			must(t, e.StopPod(t.Context(), p.ID))
			must(t, e.RemovePod(t.Context(), p.ID))
			noLeaks(t, m)
			e.life.End(errClosing)
		}
	})
}

// TestFailedCreationIsNotALoss: a pod that has everything stays ready.
func TestFailedCreationIsNotALoss(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	p := runUserPod(t, e)
	h.fail("create")
	if _, err := e.CreateContainer(t.Context(), p.ID, containerConfig("x")); !errors.Is(err, errInjected) {
		t.Errorf("CreateContainer = %v, want %v", err, errInjected)
	}
	if s := p.Status(); s.State != record.PodReady {
		t.Errorf("pod = %+v, want it ready", s)
	}
	must(t, e.RemovePod(t.Context(), p.ID))
	noLeaks(t, m)
}
