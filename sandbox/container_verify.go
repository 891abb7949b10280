package sandbox

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
)

// verifyPIDNamespace checks, before anything of c has run, that the process whose PID namespace c has joined still
// runs: then its pid was not reused. If it has ended, the pid may belong to a process of the node, and c may be in the
// node's PID namespace.
func (e *Engine) verifyPIDNamespace(ctx context.Context, c *Container, rt Runtime, b containerBuild) error {
	if b.commandErr != nil || c.pod.OwnKernel {
		return nil // there is no process, or it joins none by a pid of the host
	}
	owner := ""
	switch options := c.Config.GetLinux().GetSecurityContext().GetNamespaceOptions(); options.GetPid() {
	case cri.NamespaceMode_POD:
		if c.pod.Status().Infra.Pid != 0 {
			owner = c.pod.ID
		}
	case cri.NamespaceMode_TARGET:
		target, err := e.Container(options.GetTargetId())
		if err != nil {
			return fmt.Errorf("target container: %w", err)
		}
		owner = target.ID
	}
	if owner == "" {
		return nil
	}
	s, err := rt.State(ctx, owner)
	if err != nil {
		return fmt.Errorf("owner of the PID namespace: %w", err)
	}
	if s.Status != oci.Running && s.Status != oci.Paused {
		return fmt.Errorf("%w: the owner of the PID namespace, %s, has ended",
			errdefs.ErrFailedPrecondition, owner)
	}
	return nil
}
