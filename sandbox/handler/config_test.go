package handler

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
)

func podConfig(name string) *cri.PodSandboxConfig {
	return &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: "default"},
		Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{},
		}},
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		h          Config
	}{
		{"nothing", "", Config{}},
		{"everything", "", Config{
			Infra:              InfraPause,
			AllowedAnnotations: []string{"io.katacontainers.*", "dev.gvisor.spec.rootfs"},
			DefaultAnnotations: map[string]string{"a": "b"},
		}},
		{"infra", "infra", Config{Infra: "sometimes"}},
		{"all annotations", "allowed_annotations", Config{AllowedAnnotations: []string{"*"}}},
		{"star in the middle", "allowed_annotations", Config{AllowedAnnotations: []string{"io.*.x"}}},
		{"reserved", "podd sets it", Config{AllowedAnnotations: []string{"io.kubernetes.cri.*"}}},
		{"CRIU's configuration", "podd sets it", Config{AllowedAnnotations: []string{"org.criu.config"}}},
		{"gVisor's images", "podd sets it", Config{AllowedAnnotations: []string{"dev.gvisor.internal.*"}}},
		{"reserved default", "podd sets it",
			Config{DefaultAnnotations: map[string]string{"io.kubernetes.cri.sandbox-id": "x"}}},
	} {
		wrong := problems(tt.h)
		if tt.want == "" && len(wrong) > 0 || tt.want != "" && (len(wrong) != 1 || !strings.Contains(wrong[0], tt.want)) {
			t.Errorf("%s: Validate reports %q, want %q", tt.name, wrong, tt.want)
		}
	}
}

// TestEveryWrongKeyIsReported: Validate reports all wrong keys, in their order.
func TestEveryWrongKeyIsReported(t *testing.T) {
	wrong := problems(Config{
		Infra: "x", PrivilegedWithoutHostDevices: "x", AllowedAnnotations: []string{"*", "ok", "a*b"},
		DefaultAnnotations: map[string]string{"io.kubernetes.cri.a": "", "io.kubernetes.cri.b": ""},
	})
	var keys []string
	for _, w := range wrong {
		keys = append(keys, w[:strings.Index(w, ":")])
	}
	want := []string{"infra", "privileged_without_host_devices", "allowed_annotations", "allowed_annotations",
		`default_annotations."io.kubernetes.cri.a"`, `default_annotations."io.kubernetes.cri.b"`}
	if d := cmp.Diff(want, keys); d != "" {
		t.Errorf("Validate, -want +got:\n%s", d)
	}
}

// problems returns what Validate reports, as "key: error".
func problems(h Config) (all []string) {
	h.Validate(func(key string, err error) { all = append(all, key+": "+err.Error()) })
	return all
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
		got, err := Config{Infra: tt.infra}.NeedsInfra(config, oci.Features{OwnKernel: tt.ownKernel})
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
		h := Config{PrivilegedWithoutHostDevices: tt.value}
		if wrong := problems(h); len(wrong) > 0 {
			t.Errorf("%q: Validate reports %q, want none", tt.value, wrong)
		}
		if got := h.HostDevices(oci.Features{OwnKernel: tt.ownKernel}); got != tt.devices {
			t.Errorf("%q, own kernel %v: hostDevices = %v, want %v", tt.value, tt.ownKernel, got, tt.devices)
		}
	}
}

// TestNodesNetwork: where the sandbox hands network calls to the host, a pod may use the node's network,
// but still nothing else of the node.
func TestNodesNetwork(t *testing.T) {
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
		infra, err := Config{}.NeedsInfra(config, f)
		if errdefs.IsInvalidArgument(err) != tt.refused || infra == tt.refused {
			t.Errorf("%s: infra container %v, %v", name, infra, err)
		}
	}
}
