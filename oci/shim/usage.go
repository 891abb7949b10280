package shim

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/cgroups"
)

// Usage is what a container in a sandbox with a kernel of its own uses, which no control group of the host tells, as the
// shim says. errdefs.ErrNotFound when it does not run, errdefs.ErrNotImplemented for a container on the host's kernel.
func (r *Runtime) Usage(ctx context.Context, id string) (cgroups.Usage, error) {
	rec, conn, err := r.reach(ctx, id)
	switch {
	case errdefs.IsFailedPrecondition(err):
		return cgroups.Usage{}, fmt.Errorf("container %s does not run: %w", id, errdefs.ErrNotFound)
	case err != nil:
		return cgroups.Usage{}, err
	case r.cfg.HostKernel:
		return cgroups.Usage{}, fmt.Errorf("usage of a container on the host's kernel: %w", errdefs.ErrNotImplemented)
	}
	if status, err := r.ask(ctx, rec, id); err == nil && status != oci.Running {
		return cgroups.Usage{}, fmt.Errorf("container %s is %s: %w", id, status, errdefs.ErrNotFound)
	}
	response := &task.StatsResponse{}
	if err := conn.call(ctx, "Stats", &task.StatsRequest{ID: id}, response); err != nil {
		return cgroups.Usage{}, err
	}
	return parseUsage(response.GetStats())
}

// parseUsage reads the metrics of a shim, which have the form of those of control groups, of version 1 or 2.
func parseUsage(stats *anypb.Any) (cgroups.Usage, error) {
	url := stats.GetTypeUrl()
	switch {
	case strings.HasSuffix(url, "io.containerd.cgroups.v1.Metrics"):
		m := &v1.Metrics{}
		if err := proto.Unmarshal(stats.GetValue(), m); err != nil {
			return cgroups.Usage{}, fmt.Errorf("parse usage: %w", err)
		}
		cpu, memory := m.GetCPU().GetUsage(), m.GetMemory()
		return usage(
			cgroups.CPU{Total: time.Duration(cpu.GetTotal()), User: time.Duration(cpu.GetUser()), System: time.Duration(cpu.GetKernel())},
			figures{used: memory.GetUsage().GetUsage(), cache: memory.GetCache(), idle: memory.GetTotalInactiveFile()},
			m.GetPids().GetCurrent()), nil
	case strings.HasSuffix(url, "io.containerd.cgroups.v2.Metrics"):
		m := &v2.Metrics{}
		if err := proto.Unmarshal(stats.GetValue(), m); err != nil {
			return cgroups.Usage{}, fmt.Errorf("parse usage: %w", err)
		}
		cpu, memory := m.GetCPU(), m.GetMemory()
		return usage(
			cgroups.CPU{Total: micros(cpu.GetUsageUsec()), User: micros(cpu.GetUserUsec()), System: micros(cpu.GetSystemUsec())},
			figures{used: memory.GetUsage(), cache: memory.GetFile(), idle: memory.GetInactiveFile()},
			m.GetPids().GetCurrent()), nil
	}
	return cgroups.Usage{}, fmt.Errorf("the shim tells usage as %.80q: %w", url, errdefs.ErrNotImplemented)
}

func micros(n uint64) time.Duration { return time.Duration(n) * time.Microsecond }

// figures are what is known of a container's memory, in bytes: all, that of files, and that of files that were not
// used lately, which does not count as needed.
type figures struct{ used, cache, idle uint64 }

func usage(cpu cgroups.CPU, m figures, pids uint64) cgroups.Usage {
	m.cache = min(m.cache, m.used)
	m.idle = min(m.idle, m.used)
	return cgroups.Usage{
		At: time.Now(), CPU: &cpu, Pids: &cgroups.Pids{Current: pids, Limit: cgroups.Unlimited},
		Memory: &cgroups.Memory{Usage: m.used, WorkingSet: m.used - m.idle, Cache: m.cache, RSS: m.used - m.cache, Limit: cgroups.Unlimited},
	}
}
