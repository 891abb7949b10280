package sandbox

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
)

// verify looks again, before anything of c has run, at what runtime and monitor were given by names whose meaning
// may have changed since they were looked at: a pid, and a path that a pod may be able to write to.
func (e *Engine) verify(ctx context.Context, c *Container, rt Runtime, b containerBuild) error {
	if b.doom != nil {
		return nil // there is no process
	}
	if err := e.verifyPIDNamespace(ctx, c, rt); err != nil {
		return err
	}
	// The monitor has the file open that is at the path; that no link leads there is what is asked here.
	_, err := c.prepareLog()
	return err
}

// verifyPIDNamespace asks whether the process whose PID namespace c has joined lives still. If so, its pid was its own
// all the time. If not, the pid may have been given to a process of the node, and its namespace, the node's, to c.
func (e *Engine) verifyPIDNamespace(ctx context.Context, c *Container, rt Runtime) error {
	if c.pod.OwnKernel {
		return nil // it has joined none by a pid of the host
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
		return fmt.Errorf("%w: the owner of the PID namespace, %s, has ended meanwhile", errdefs.ErrFailedPrecondition, owner)
	}
	return nil
}
