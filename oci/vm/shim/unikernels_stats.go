package shim

import (
	"context"
	"fmt"
	"os"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"
)

// Stats returns the usage of the whole machine as the host measures it: there is no agent in the guest to ask.
func (s *unikernels) Stats(_ context.Context, r *task.StatsRequest) (*task.StatsResponse, error) {
	u, err := s.member(r.GetID(), "")
	if err != nil {
		return nil, err
	}
	if err := u.started(); err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	metrics, err := ownMetrics()
	if err != nil {
		return nil, errgrpc.ToGRPC(fmt.Errorf("usage of the virtual machine: %w", err))
	}
	any, err := typeurl.MarshalAnyToProto(metrics)
	return &task.StatsResponse{Stats: any}, errgrpc.ToGRPC(err)
}

// ownMetrics are those of the shim's cgroup, which has the monitor, too.
func ownMetrics() (any, error) {
	if cgroups.Mode() == cgroups.Unified {
		path, err := cgroup2.PidGroupPath(os.Getpid())
		if err != nil {
			return nil, err
		}
		m, err := cgroup2.Load(path)
		if err != nil {
			return nil, err
		}
		return m.Stat()
	}
	c, err := cgroup1.Load(cgroup1.PidPath(os.Getpid()))
	if err != nil {
		return nil, err
	}
	return c.Stat(cgroup1.IgnoreNotExist)
}
