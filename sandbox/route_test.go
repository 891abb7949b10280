package sandbox

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/ocitest"
	"github.com/podd-project/podd/sandbox/handler"
)

// ownKernel is a handler with a kernel of its own.
type ownKernel struct{ *ocitest.Fake }

func (r ownKernel) Features() oci.Features {
	f := r.Fake.Features()
	f.OwnKernel, f.UserNamespaces = true, false
	return f
}

// Keys of annotations that choose a handler.
const (
	osContainer = "runtime.frakti.alpha.kubernetes.io/OSContainer"
	unikernel   = "runtime.frakti.alpha.kubernetes.io/Unikernel"
)

// mixedEngine has the handlers runc (default), other, vm and gvisor; the last two have kernels of their own.
func mixedEngine(t *testing.T) (*Engine, *machine) {
	t.Helper()
	m := newMachine(t)
	e, h := newEngine(t, m)
	e.handlers.Current().Runtimes["vm"] = ownKernel{m.runtime(h, "vm")}
	return e, m
}

func TestRoute(t *testing.T) {
	annotations := map[string]string{handler.UntrustedAnnotation: "gvisor", osContainer: "runc", unikernel: "vm"}
	privileged := func(c *cri.PodSandboxConfig) { c.Linux.SecurityContext.Privileged = true }
	hostPID := func(c *cri.PodSandboxConfig) {
		c.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_NODE
	}
	with := func(keys ...string) func(*cri.PodSandboxConfig) {
		return func(c *cri.PodSandboxConfig) {
			c.Annotations = map[string]string{}
			for _, k := range keys {
				c.Annotations[k] = "true"
			}
		}
	}
	tests := []struct {
		name     string
		byDef    string // default handler
		host     string // host_access_handler
		mapped   bool
		config   func(*cri.PodSandboxConfig)
		asked    string
		want     string
		mistaken string // words of the error
	}{
		{name: "default", byDef: "runc"},
		{name: "asked for", byDef: "gvisor", host: "runc", mapped: true, config: with(unikernel), asked: "other",
			want: "other"},
		{name: "asked for by a privileged pod", byDef: "gvisor", host: "runc", config: privileged, asked: "gvisor",
			want: "gvisor"},
		{name: "privileged", byDef: "gvisor", host: "runc", config: privileged, want: "runc"},
		{name: "namespace of the node", byDef: "gvisor", host: "runc", config: hostPID, want: "runc"},
		{name: "not opted in", byDef: "gvisor", config: privileged},
		{name: "no need", byDef: "gvisor", host: "runc"},
		{name: "default has the node's kernel", byDef: "other", host: "runc", config: privileged},
		{name: "untrusted", byDef: "runc", mapped: true, config: with(handler.UntrustedAnnotation), want: "gvisor"},
		{name: "untrusted, not opted in", byDef: "runc", config: with(handler.UntrustedAnnotation)},
		{name: "untrusted and privileged", byDef: "runc", mapped: true, mistaken: "untrusted",
			config: func(c *cri.PodSandboxConfig) {
				with(handler.UntrustedAnnotation)(c)
				privileged(c)
			}},
		{name: "OS container", byDef: "gvisor", mapped: true, config: with(osContainer), want: "runc"},
		{name: "unikernel", byDef: "runc", mapped: true, config: with(unikernel), want: "vm"},
		{name: "annotation that is not true", byDef: "runc", mapped: true, config: func(c *cri.PodSandboxConfig) {
			c.Annotations = map[string]string{unikernel: "false"}
		}},
		{name: "two that differ", byDef: "runc", mapped: true, config: with(unikernel, osContainer), mistaken: "different"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e, _ := mixedEngine(t)
			e.cfg.Load().DefaultHandler, e.cfg.Load().HostAccessHandler = tt.byDef, tt.host
			if tt.mapped {
				e.cfg.Load().AnnotationHandlers = annotations
			}
			config := podConfig("web")
			if tt.config != nil {
				tt.config(config)
			}
			got, err := e.handlers.Current().Route(config, tt.asked)
			if tt.mistaken != "" {
				if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), tt.mistaken) {
					t.Fatalf("route = %q, %v, want an invalid argument with %q", got, err, tt.mistaken)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

// TestPrivilegedInUntrustedPod: an ephemeral container cannot circumvent what the annotation demands of its pod.
func TestPrivilegedInUntrustedPod(t *testing.T) {
	for name, tt := range map[string]struct {
		annotations map[string]string
		privileged  bool
		refused     bool
	}{
		"privileged, untrusted":   {map[string]string{handler.UntrustedAnnotation: "true"}, true, true},
		"unprivileged, untrusted": {map[string]string{handler.UntrustedAnnotation: "true"}, false, false},
		"privileged":              {nil, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := mixedEngine(t)
			e.cfg.Load().AnnotationHandlers = map[string]string{handler.UntrustedAnnotation: "gvisor"}
			config := podConfig("web")
			config.Annotations = tt.annotations
			pod, err := e.RunPod(t.Context(), config, "")
			must(t, err)
			c := containerConfig("debugger")
			c.Linux.SecurityContext.Privileged = tt.privileged
			_, err = e.CreateContainer(t.Context(), pod, c)
			if errdefs.IsInvalidArgument(err) != tt.refused || !tt.refused && err != nil {
				t.Errorf("CreateContainer = %v, want an invalid argument: %v", err, tt.refused)
			}
		})
	}
}

func TestPodKeepsItsRuntimeWhenTheDefaultChanges(t *testing.T) {
	e, _ := mixedEngine(t)
	id, err := e.RunPod(t.Context(), podConfig("web"), "")
	must(t, err)
	e.cfg.Load().DefaultHandler = "gvisor"
	p, err := e.Pod(id)
	must(t, err)
	if p.RequestedHandler != "" || p.Handler != "runc" || p.OwnKernel {
		t.Errorf("handler %q, runtime %q, own kernel %v", p.RequestedHandler, p.Handler, p.OwnKernel)
	}
}
