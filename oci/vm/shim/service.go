// Package shim is the service of containerd-shim-podvm-v1: containerd's task API for pods that run in a virtual machine
// of their own. The first container of a pod, its infra container, boots the machine; the others join it. In the guest
// an agent runs them with an OCI runtime (package guest).
//
// The guest is hostile: of its answers only what package shim itself copies reaches the caller, and nothing of it names
// a path, a process or a container of the host.
package shim

import (
	"context"
	"sync"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
)

// Service serves one pod with an agent.
type Service struct {
	ctx       context.Context
	publisher shim.Publisher
	shutdown  shutdown.Service

	// creating has a place for the Create that is served.
	creating chan struct{}

	mu sync.Mutex
	// pod is nil until the infra container is created.
	pod *pod
}

var _ task.TTRPCTaskService = (*Service)(nil)

// current returns the pod, errdefs.ErrNotFound before it exists.
func (s *Service) current() (*pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pod == nil {
		return nil, errgrpc.ToGRPCf(errdefs.ErrNotFound, "the pod has no virtual machine")
	}
	return s.pod, nil
}

// guestContext is the context of a call to the guest, which knows one namespace.
func guestContext(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, guestNamespace)
}

// guestNamespace is containerd's namespace in the guest.
const guestNamespace = "pod"

// callTimeout bounds calls to the guest that do nothing long, so that a guest that does not answer does not hold the
// caller.
const callTimeout = 30 * time.Second
