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

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/record"
)

func TestHandlerConfigValidate(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		h          HandlerConfig
	}{
		{"nothing", "", HandlerConfig{}},
		{"everything", "", HandlerConfig{
			Infra:              InfraPause,
			AllowedAnnotations: []string{"io.katacontainers.*", "dev.gvisor.spec.rootfs"},
			DefaultAnnotations: map[string]string{"a": "b"},
		}},
		{"infra", "infra", HandlerConfig{Infra: "sometimes"}},
		{"all annotations", "allowed_annotations", HandlerConfig{AllowedAnnotations: []string{"*"}}},
		{"star in the middle", "allowed_annotations", HandlerConfig{AllowedAnnotations: []string{"io.*.x"}}},
		{"reserved", "podd sets it", HandlerConfig{AllowedAnnotations: []string{"io.kubernetes.cri.*"}}},
		{"CRIU's configuration", "podd sets it", HandlerConfig{AllowedAnnotations: []string{"org.criu.config"}}},
		{"gVisor's images", "podd sets it", HandlerConfig{AllowedAnnotations: []string{"dev.gvisor.internal.*"}}},
		{"reserved default", "podd sets it",
			HandlerConfig{DefaultAnnotations: map[string]string{"io.kubernetes.cri.sandbox-id": "x"}}},
	} {
		err := tt.h.Validate()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestNeedsInfra(t *testing.T) {
	own := cri.NamespaceMode_CONTAINER
	for _, tt := range []struct {
		infra     string
		ownKernel bool
		pid       cri.NamespaceMode
		want      bool
	}{
		{"", false, own, false},
		{"", false, cri.NamespaceMode_POD, true},
		{"auto", true, own, true},
		{"none", true, own, false},
		{"none", false, cri.NamespaceMode_POD, true},
		{"pause", false, own, true},
	} {
		config := podConfig("web")
		config.Linux.SecurityContext.NamespaceOptions.Pid = tt.pid
		got, err := HandlerConfig{Infra: tt.infra}.needsInfra(config, oci.Features{OwnKernel: tt.ownKernel})
		if err != nil || got != tt.want {
			t.Errorf("%+v: needsInfra = %v, %v, want %v", tt, got, err, tt.want)
		}
	}
}

func TestPrivilegedWithoutHostDevices(t *testing.T) {
	for _, tt := range []struct {
		value     string
		ownKernel bool
		devices   bool
	}{
		{"", false, true}, {"", true, false}, {"auto", false, true}, {"auto", true, false},
		{"true", false, false}, {"true", true, false}, {"false", false, true}, {"false", true, true},
	} {
		h := HandlerConfig{PrivilegedWithoutHostDevices: tt.value}
		if err := h.Validate(); err != nil {
			t.Errorf("%q: Validate = %v, want nil", tt.value, err)
		}
		if got := h.hostDevices(oci.Features{OwnKernel: tt.ownKernel}); got != tt.devices {
			t.Errorf("%q, own kernel %v: hostDevices = %v, want %v", tt.value, tt.ownKernel, got, tt.devices)
		}
	}
}

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

// TestOwnKernelOnTheNodesNetwork: where the sandbox hands network calls to the host, a pod may use the node's network,
// but still nothing else of the node.
func TestOwnKernelOnTheNodesNetwork(t *testing.T) {
	f := oci.Features{OwnKernel: true, HostNetwork: true}
	for name, tt := range map[string]struct {
		o       *cri.NamespaceOption
		refused bool
	}{
		"pod's network":  {&cri.NamespaceOption{}, false},
		"node's network": {&cri.NamespaceOption{Network: cri.NamespaceMode_NODE}, false},
		"node's network and PIDs": {
			&cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_NODE}, true,
		},
		"node's network and IPC": {
			&cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Ipc: cri.NamespaceMode_NODE}, true,
		},
		"pod's network, node's PIDs": {&cri.NamespaceOption{Pid: cri.NamespaceMode_NODE}, true},
	} {
		config := podConfig("web")
		config.Linux.SecurityContext.NamespaceOptions = tt.o
		infra, err := HandlerConfig{}.needsInfra(config, f)
		if errdefs.IsInvalidArgument(err) != tt.refused || infra == tt.refused {
			t.Errorf("%s: infra container %v, %v", name, infra, err)
		}
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
	e.cfg.DefaultSysctls = map[string]string{"net.ipv4.ip_unprivileged_port_start": "0", "net.ipv4.ip_forward": "0"}
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

func TestHandlerAnnotations(t *testing.T) {
	e, _ := mixedEngine(t)
	config := podConfig("web")
	config.Annotations = map[string]string{
		"io.katacontainers.x": "1", "io.other": "2", "exact": "3", "exactly": "4", "default": "pod",
	}
	for name, tt := range map[string]struct {
		h    HandlerConfig
		want map[string]string
	}{
		"none by default": {HandlerConfig{}, nil},
		"allowed": {HandlerConfig{AllowedAnnotations: []string{"io.katacontainers.*", "exact"}},
			map[string]string{"io.katacontainers.x": "1", "exact": "3"}},
		"default": {HandlerConfig{DefaultAnnotations: map[string]string{"default": "node"}},
			map[string]string{"default": "node"}},
		"both": {
			HandlerConfig{
				DefaultAnnotations: map[string]string{"default": "node"}, AllowedAnnotations: []string{"default"},
			},
			map[string]string{"default": "pod"},
		},
	} {
		e.cfg.Handlers = map[string]HandlerConfig{"runc": tt.h}
		got := e.handlers.annotations(&Pod{Pod: record.Pod{Config: config, ResolvedHandler: "runc"}})
		if !maps.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}
