package sandbox

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
)

// TestCreateVerifiesWhatNamesMean changes what a name means while the runtime creates the container: it is not created
// then, and nothing of it is left.
func TestCreateVerifiesWhatNamesMean(t *testing.T) {
	elsewhere := t.TempDir()
	cases := map[string]struct {
		pid    cri.NamespaceMode
		change func(t *testing.T, m *machine, pod, target, logs string)
	}{
		"infra container dies, its pid is free": {cri.NamespaceMode_POD, func(_ *testing.T, m *machine, pod, _, _ string) {
			m.exit(pod, oci.Exit{Known: true})
		}},
		"target container dies, its pid is free": {cri.NamespaceMode_TARGET, func(
			_ *testing.T, m *machine, _, target, _ string,
		) {
			m.exit(target, oci.Exit{Known: true})
		}},
		"log directory becomes a link": {cri.NamespaceMode_CONTAINER, func(t *testing.T, _ *machine, _, _, logs string) {
			must(t, os.Rename(filepath.Join(logs, "debug"), filepath.Join(logs, "away")))
			must(t, os.Symlink(elsewhere, filepath.Join(logs, "debug")))
		}},
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			e, h := newEngine(t, m)
			p := podConfig("web")
			p.LogDirectory = t.TempDir()
			pod, err := e.RunPod(t.Context(), p, "")
			must(t, err)
			target := mustCreate(t, e, pod, "main")
			mustStart(t, e, target)
			c := containerConfig("debug")
			c.LogPath = "debug/0.log"
			c.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{Pid: tt.pid}
			if tt.pid == cri.NamespaceMode_TARGET {
				c.Linux.SecurityContext.NamespaceOptions.TargetId = target
			}
			release := h.hold("create")
			created := make(chan error, 1)
			go func() {
				_, err := e.CreateContainer(t.Context(), pod, c)
				created <- err
			}()
			h.await("create")
			tt.change(t, m, pod, target, p.LogDirectory)
			release()
			if err := <-created; !errdefs.IsFailedPrecondition(err) && !errdefs.IsInvalidArgument(err) {
				t.Errorf("created all the same: %v", err)
			}
			must(t, e.RemovePod(t.Context(), pod))
			noLeaks(t, m)
		})
	}
}
