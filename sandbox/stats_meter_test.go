package sandbox

import (
	"context"
	"errors"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/cgroups"
)

// meteredRuntime tells what its containers use once they were started, and errs before, as gVisor's shim does.
type meteredRuntime struct {
	ownKernel
	engine *Engine
}

func (r *meteredRuntime) Usage(_ context.Context, id string) (cgroups.Usage, error) {
	if c, err := r.engine.Container(id); err != nil || c.Status().State != ContainerRunning {
		return cgroups.Usage{}, errors.Join(err, errdefs.ErrFailedPrecondition)
	}
	return cgroups.Told(cgroups.Figures{Total: 7}), nil
}

// TestMeteredOnceStarted: that somebody asked about a container before its start does not keep it from being measured after.
func TestMeteredOnceStarted(t *testing.T) {
	e, _ := mixedEngine(t)
	e.Cgroups = newFakeCgroups()
	e.stats = newCollector(e.cfg, e.Deps)
	e.stats.meter = e.meter
	gvisor, ok := e.Runtimes["gvisor"].(ownKernel)
	if !ok {
		t.Fatal("no handler with a kernel of its own")
	}
	e.Runtimes["gvisor"] = &meteredRuntime{gvisor, e}
	pod, err := e.RunPod(t.Context(), podConfig("web"), "gvisor")
	must(t, err)
	id := mustCreate(t, e, pod, "main")
	e.collectOnce(t.Context())
	if got := e.ContainerUsage(t.Context(), []string{id}, WantUsage{}); len(got) != 0 {
		t.Errorf("before the start: %s", asJSON(got))
	}
	mustStart(t, e, id)
	if got := e.ContainerUsage(t.Context(), []string{id}, WantUsage{}); got[id].Usage == nil {
		t.Errorf("after the start: %s", asJSON(got))
	}
}
