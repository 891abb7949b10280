package shim

import (
	"context"
	"fmt"
	"math"
	"strings"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/cgroups"
)

// Usage returns the resource usage of a container in a sandbox with its own kernel, which no cgroup of the host shows.
// The error is errdefs.ErrNotFound if it is not running, errdefs.ErrNotImplemented on the host's kernel.
func (r *Runtime) Usage(ctx context.Context, id string) (cgroups.Usage, error) {
	rec, conn, err := r.reachContainer(ctx, id)
	switch {
	case errdefs.IsFailedPrecondition(err):
		return cgroups.Usage{}, fmt.Errorf("container %s is not running: %w", id, errdefs.ErrNotFound)
	case err != nil:
		return cgroups.Usage{}, err
	case r.cfg.HostKernel:
		return cgroups.Usage{}, fmt.Errorf("usage of a container on the host's kernel: %w", errdefs.ErrNotImplemented)
	}
	if status, err := r.queryStatus(ctx, rec, id); err == nil && status != oci.Running {
		return cgroups.Usage{}, fmt.Errorf("container %s is %s: %w", id, status, errdefs.ErrNotFound)
	}
	response := &task.StatsResponse{}
	if err := conn.call(ctx, "Stats", &task.StatsRequest{ID: id}, response); err != nil {
		return cgroups.Usage{}, err
	}
	return parseUsage(response.GetStats())
}

// parseUsage parses the metrics of a shim, which have the form of those of cgroups, v1 or v2.
func parseUsage(stats *anypb.Any) (cgroups.Usage, error) {
	url := stats.GetTypeUrl()
	switch {
	case strings.HasSuffix(url, "io.containerd.cgroups.v1.Metrics"):
		m := &v1.Metrics{}
		if err := proto.Unmarshal(stats.GetValue(), m); err != nil {
			return cgroups.Usage{}, fmt.Errorf("parse usage: %w", err)
		}
		cpu, memory := m.GetCPU().GetUsage(), m.GetMemory()
		return cgroups.FromSandbox(cgroups.SandboxStats{
			Total: cpu.GetTotal(), User: cpu.GetUser(), System: cpu.GetKernel(),
			Memory: memory.GetUsage().GetUsage(), Cache: memory.GetCache(), Idle: memory.GetTotalInactiveFile(),
			Pids: m.GetPids().GetCurrent(),
		}), nil
	case strings.HasSuffix(url, "io.containerd.cgroups.v2.Metrics"):
		m := &v2.Metrics{}
		if err := proto.Unmarshal(stats.GetValue(), m); err != nil {
			return cgroups.Usage{}, fmt.Errorf("parse usage: %w", err)
		}
		cpu, memory := m.GetCPU(), m.GetMemory()
		return cgroups.FromSandbox(cgroups.SandboxStats{
			Total: micros(cpu.GetUsageUsec()), User: micros(cpu.GetUserUsec()), System: micros(cpu.GetSystemUsec()),
			Memory: memory.GetUsage(), Cache: memory.GetFile(), Idle: memory.GetInactiveFile(),
			Pids: m.GetPids().GetCurrent(),
		}), nil
	}
	return cgroups.Usage{}, fmt.Errorf("unknown type of shim metrics %.80q: %w", url, errdefs.ErrNotImplemented)
}

// micros converts microseconds to nanoseconds.
func micros(n uint64) uint64 { return min(n, math.MaxUint64/1000) * 1000 }
