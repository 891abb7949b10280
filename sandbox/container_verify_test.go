package sandbox

import (
	"testing"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
)

// TestCreateVerifiesWhatNamesMean changes what a name means while the runtime creates the container: it is not created
// then, and nothing of it is left.
func TestCreateVerifiesWhatNamesMean(t *testing.T) {
	cases := map[string]struct {
		pid    cri.NamespaceMode
		change func(m *machine, pod, target string)
	}{
		"infra container dies, its pid is free": {cri.NamespaceMode_POD, func(m *machine, pod, _ string) {
			m.exit(pod, oci.Exit{Known: true})
		}},
		"target container dies, its pid is free": {cri.NamespaceMode_TARGET, func(m *machine, _, target string) {
			m.exit(target, oci.Exit{Known: true})
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
			tt.change(m, pod, target)
			release()
			if err := <-created; !errdefs.IsFailedPrecondition(err) && !errdefs.IsInvalidArgument(err) {
				t.Errorf("created all the same: %v", err)
			}
			must(t, e.RemovePod(t.Context(), pod))
			noLeaks(t, m)
		})
	}
}
