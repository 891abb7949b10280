package sandbox

import (
	"context"
	"errors"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/sandbox/usage"
)

// meteredRuntime tells what its containers use once they were started, and errs before, as gVisor's shim does.
type meteredRuntime struct {
	ownKernel
	engine *Engine
}

// Usage returns a CPU time of 7 ns.
func (r *meteredRuntime) Usage(_ context.Context, id string) (cgroups.Usage, error) {
	if c, err := r.engine.Container(id); err != nil || c.Status().State != record.ContainerRunning {
		return cgroups.Usage{}, errors.Join(err, errdefs.ErrFailedPrecondition)
	}
	return cgroups.FromSandbox(cgroups.SandboxStats{Total: 7}), nil
}

// meteredEngine is an engine whose gVisor tells what its containers use.
func meteredEngine(t *testing.T) (*Engine, *meteredRuntime) {
	t.Helper()
	e, _ := mixedEngine(t)
	e.deps.Cgroups = newFakeCgroups()
	e.usage = newCollector(*e.cfg.Load(), e.deps)
	gvisor, ok := e.handlers.Current().Runtimes["gvisor"].(ownKernel)
	if !ok {
		t.Fatal("no handler with a kernel of its own")
	}
	rt := &meteredRuntime{ownKernel: gvisor, engine: e}
	e.handlers.Current().Runtimes["gvisor"] = rt
	return e, rt
}

// TestMeteredOnceStarted: that somebody asked about a container before its start does not keep it from being measured
// after.
func TestMeteredOnceStarted(t *testing.T) {
	e, _ := meteredEngine(t)
	pod, err := e.RunPod(t.Context(), podConfig("web"), "gvisor")
	must(t, err)
	id := mustCreate(t, e, pod, "main")
	e.usage.Round(t.Context(), e.usageTargets)
	if got := e.ContainerUsage(t.Context(), []string{id}, usage.Want{}); len(got) != 0 {
		t.Errorf("before the start: %s", asJSON(got))
	}
	mustStart(t, e, id)
	if got := e.ContainerUsage(t.Context(), []string{id}, usage.Want{}); got[id].Usage == nil {
		t.Errorf("after the start: %s", asJSON(got))
	}
}
