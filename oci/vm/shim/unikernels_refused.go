package shim

import (
	"context"
	"slices"
	"strings"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/emptypb"
)

// refuseForUnikernel returns an error for what only an agent in the machine could give.
func refuseForUnikernel(r *task.CreateTaskRequest, spec *specs.Spec) error {
	if r.GetTerminal() || r.GetStdin() != "" {
		return invalid("stdin and terminals: a unikernel has output only")
	}
	if err := refuse(spec, infraPids{host: uint32(shimPid())}); err != nil {
		return err
	}
	for _, m := range spec.Mounts {
		bind := m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
		if bind && !everyPodHas(m.Destination) {
			return invalid("mount %s: a unikernel has no volumes", m.Destination)
		}
	}
	return nil
}

// everyPodHas reports whether a mount is one that kubelets and runtimes add to every container. A unikernel gets none.
func everyPodHas(destination string) bool {
	return slices.Contains([]string{
		"/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev/shm", "/dev/termination-log",
	}, destination) || strings.HasPrefix(destination, "/var/run/secrets/kubernetes.io/serviceaccount")
}

// refuseSysctls returns an error for a sysctl, but not for those that podd sets in every pod: a unikernel is not a user
// who may open a low port.
func refuseSysctls(sysctls map[string]string) error {
	for name := range sysctls {
		if !slices.Contains([]string{"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range"}, name) {
			return invalid("sysctl %s: the kernel of a unikernel is its image's", name)
		}
	}
	return nil
}

// noAgent is the error for a call that needs an agent.
func noAgent(what string) error {
	return errgrpc.ToGRPCf(errdefs.ErrNotImplemented, "%s: the pod is a unikernel, in which podd has no agent", what)
}

// Exec is refused: no command can be run.
func (s *unikernels) Exec(context.Context, *task.ExecProcessRequest) (*emptypb.Empty, error) {
	return nil, noAgent("exec")
}

// Pause is refused.
func (s *unikernels) Pause(context.Context, *task.PauseRequest) (*emptypb.Empty, error) {
	return nil, noAgent("pause")
}

// Resume is refused.
func (s *unikernels) Resume(context.Context, *task.ResumeRequest) (*emptypb.Empty, error) {
	return nil, noAgent("resume")
}

// ResizePty is refused: there is no terminal.
func (s *unikernels) ResizePty(context.Context, *task.ResizePtyRequest) (*emptypb.Empty, error) {
	return nil, noAgent("terminal")
}

// CloseIO has nothing to close.
func (s *unikernels) CloseIO(context.Context, *task.CloseIORequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

// Checkpoint is refused.
func (s *unikernels) Checkpoint(context.Context, *task.CheckpointTaskRequest) (*emptypb.Empty, error) {
	return nil, noAgent("checkpoint")
}
