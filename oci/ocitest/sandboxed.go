package ocitest

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/runc"
	"github.com/podd-project/podd/oci/runc/initproxy"
)

// Sandboxed makes a Machine with a runtime that has a kernel of its own, whose containers all run in the sandbox of
// one infra container, as the engine has it. It returns the infra container's id too.
func Sandboxed(t testing.TB, name string) (m *Machine, podID string) {
	t.Helper()
	return SandboxedIn(t, name, func(string) {})
}

// SandboxedIn is Sandboxed, in a cgroup of the pod that prepare has made.
func SandboxedIn(t testing.TB, name string, prepare func(cgroup string)) (m *Machine, podID string) {
	t.Helper()
	m = Real(t, name)
	prepare(m.Cgroup)
	path, err := initproxy.Install(filepath.Dir(m.Rootfs))
	if err != nil {
		t.Fatal(err)
	}
	m.Config.InitProxy = path
	m.SharedLimits = true
	// The runtime would pin one network namespace for all its helper processes, and leave it.
	// And it allows one container for each root filesystem, unless it writes to it as other runtimes do.
	m.Config.Options = map[string]string{"gofer-network-namespace": "new", "overlay2": "none"}
	infra := podRuntime{runc.New(m.Config), "infra-" + unique()}
	t.Cleanup(func() {
		if err := infra.Delete(context.Background(), infra.pod); err != nil {
			t.Errorf("delete infra container: %v", err)
		}
	})
	request := oci.CreateRequest{ID: infra.pod, Spec: m.spec([]string{"sleep", "100000"})}
	if _, err := infra.Create(t.Context(), request); err != nil {
		t.Fatalf("create infra container: %v", err)
	}
	if err := infra.Start(t.Context(), infra.pod); err != nil {
		t.Fatalf("start infra container: %v", err)
	}
	m.New = func() Runtime { return podRuntime{runc.New(m.Config), infra.pod} }
	return m, infra.pod
}

// podRuntime puts every container into the pod, as the engine's requests and specs do.
type podRuntime struct {
	*runc.Runtime
	pod string
}

func (g podRuntime) Create(ctx context.Context, r oci.CreateRequest) (oci.Process, error) {
	r.PodID = g.pod
	if r.Spec != nil {
		s := *r.Spec
		s.Annotations = map[string]string{
			"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-id": g.pod,
		}
		if r.ID == g.pod {
			s.Annotations["io.kubernetes.cri.container-type"] = "sandbox"
		}
		r.Spec = &s
	}
	return g.Runtime.Create(ctx, r)
}

var _ Runtime = podRuntime{}
