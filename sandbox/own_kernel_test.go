package sandbox

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestOwnKernelSharesNoNamespaceWithTheNode(t *testing.T) {
	for name, o := range map[string]*cri.NamespaceOption{
		"network": {Network: cri.NamespaceMode_NODE},
		"pid":     {Pid: cri.NamespaceMode_NODE},
		"ipc":     {Ipc: cri.NamespaceMode_NODE},
	} {
		e, m := mixedEngine(t)
		config := podConfig("web")
		config.Linux.SecurityContext.NamespaceOptions = o
		if _, err := e.RunPod(t.Context(), config, "gvisor"); !errdefs.IsInvalidArgument(err) ||
			!strings.Contains(err.Error(), "gvisor") {
			t.Errorf("%s: RunPod = %v, want an invalid argument that names gvisor", name, err)
		}
		noLeaks(t, m)
	}
}

// TestOwnKernelPod: a pod in a sandbox has an infra container, made first and deleted last, and is stopped by what is
// in its record when nobody knows any more what its handler was.
func TestOwnKernelPod(t *testing.T) {
	e, m := mixedEngine(t)
	config := podConfig("web")
	config.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_CONTAINER
	id, err := e.RunPod(t.Context(), config, "gvisor")
	must(t, err)
	p, err := e.Pod(id)
	must(t, err)
	if !p.Infra || !p.OwnKernel || p.Status().Infra.Pid == 0 {
		t.Errorf("record %+v, infra %+v", p.Pod, p.Status().Infra)
	}
	must(t, e.StopPod(t.Context(), id))
	must(t, e.RemovePod(t.Context(), id))
	noLeaks(t, m)
}

// TestOwnKernelSysctls: the kernel of a sandbox gets the pod's sysctls and the defaults by config.json of the infra
// container. On the host's kernel the pinned namespaces have them.
func TestOwnKernelSysctls(t *testing.T) {
	e, m := mixedEngine(t)
	e.cfg.Load().DefaultSysctls = map[string]string{"net.ipv4.ip_unprivileged_port_start": "0", "net.ipv4.ip_forward": "0"}
	for handler, want := range map[string]map[string]string{
		"vm":   {"net.ipv4.ip_unprivileged_port_start": "0", "net.ipv4.ip_forward": "1"},
		"runc": nil,
	} {
		config := podConfig(handler)
		config.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_POD
		config.Linux.Sysctls = map[string]string{"net.ipv4.ip_forward": "1"}
		id, err := e.RunPod(t.Context(), config, handler)
		must(t, err)
		data, err := os.ReadFile(filepath.Join(m.bundle(id), "config.json"))
		must(t, err)
		var s specs.Spec
		must(t, json.Unmarshal(data, &s))
		if !maps.Equal(s.Linux.Sysctl, want) {
			t.Errorf("%s: sysctls of the infra container = %v, want %v", handler, s.Linux.Sysctl, want)
		}
	}
}
