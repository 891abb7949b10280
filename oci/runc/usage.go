package runc

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/cgroups"
)

// usageTimeout bounds one measurement.
const usageTimeout = 5 * time.Second

// Usage returns the resource usage of a container in a sandbox with its own kernel, which no cgroup of the host shows.
// The error is errdefs.ErrNotFound if it is not running, errdefs.ErrNotImplemented on the host's kernel.
func (r *Runtime) Usage(ctx context.Context, id string) (cgroups.Usage, error) {
	b, rec, err := r.open(id)
	switch {
	case err != nil:
		return cgroups.Usage{}, err
	case rec.Sandbox == "":
		return cgroups.Usage{}, fmt.Errorf("usage of a container on the host's kernel: %w", errdefs.ErrNotImplemented)
	case !rec.Init.Alive() || !b.isStarted() || b.frozen(rec):
		return cgroups.Usage{}, fmt.Errorf("container %s is not running: %w", id, errdefs.ErrNotFound)
	}
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	out, err := r.runRuntime(ctx, nil, "events", "--stats", id)
	if err != nil {
		if s, serr := r.queryState(ctx, id); serr == nil && s.Status != oci.Running {
			err = fmt.Errorf("container %s is not running: %w", id, errdefs.ErrNotFound)
		}
		return cgroups.Usage{}, err
	}
	return parseUsage(out)
}

// parseUsage parses the output of `runsc events --stats`: runc's format, with the values that gVisor has.
func parseUsage(out []byte) (cgroups.Usage, error) {
	var said struct {
		Data struct {
			CPU struct {
				Usage struct{ Total, Kernel, User uint64 }
			}
			Memory struct {
				Cache uint64
				Usage struct{ Usage uint64 }
			}
			Pids struct{ Current uint64 }
		}
	}
	if err := json.Unmarshal(out, &said); err != nil {
		return cgroups.Usage{}, fmt.Errorf("parse usage: %w", err)
	}
	cpu, memory := said.Data.CPU.Usage, said.Data.Memory
	return cgroups.FromSandbox(cgroups.SandboxStats{
		Total: cpu.Total, User: cpu.User, System: cpu.Kernel,
		// runsc does not report active file pages: count all cache as idle.
		Memory: memory.Usage.Usage, Cache: memory.Cache, Idle: memory.Cache, Pids: said.Data.Pids.Current,
	}), nil
}
