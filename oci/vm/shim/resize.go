package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/podd-project/podd/oci/vm/vmm"
	"github.com/podd-project/podd/oci/vm/wire"
)

// hostLimits are the largest size of a machine: all that the host has.
func hostLimits() vmm.Limits {
	limits := vmm.Limits{CPUs: runtime.NumCPU()}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		limits.Memory = int(min(info.Totalram*uint64(info.Unit)>>20, maxMemory))
	}
	return limits
}

// Update changes the limits of a container in the guest. Those of the infra container are those of the pod: the machine
// grows to hold them. A machine that cannot grow has them refused.
func (s *Service) Update(ctx context.Context, r *task.UpdateTaskRequest) (*emptypb.Empty, error) {
	var resources specs.LinuxResources
	if err := json.Unmarshal(r.GetResources().GetValue(), &resources); err != nil {
		return nil, errgrpc.ToGRPC(invalid("resources: %v", err))
	}
	p, err := s.current()
	if err != nil {
		return nil, err
	}
	if err := p.grow(ctx, sizeOf(&resources)); err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	if r.GetID() == p.id {
		return &emptypb.Empty{}, nil
	}
	data, err := json.Marshal(guestResources(&resources))
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	q := &task.UpdateTaskRequest{ID: r.GetID(), Resources: &anypb.Any{TypeUrl: r.GetResources().GetTypeUrl(), Value: data}}
	return s.call(ctx, func(ctx context.Context, p *pod) error { _, err := p.tasks.Update(ctx, q); return err })
}

// grow lets the machine hold a pod of that size, in addition to its own need. It never shrinks.
func (p *pod) grow(ctx context.Context, wanted size) error {
	memory := 0
	if wanted.memory > 0 {
		memory = p.options.size(wanted.memory)
	}
	cpus := wanted.processors(p.options.Driver, runtime.NumCPU())
	err := p.machine.Grow(ctx, memory, cpus)
	if errors.Is(err, vmm.ErrFixedSize) {
		return fmt.Errorf("%w: %w: recreate the pod with these limits", errdefs.ErrFailedPrecondition, err)
	}
	if err != nil || cpus == 1 {
		return err
	}
	c, err := p.open(ctx, wire.Header{Kind: wire.Online, CPUs: cpus})
	if err != nil {
		return err
	}
	defer c.Close()
	return readResult(ctx, c)
}
