package sandbox

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/sandbox/record"
)

// meteredRuntime tells what its containers use once they were started, and errs before, as gVisor's shim does.
type meteredRuntime struct {
	ownKernel
	engine *Engine
	// next are the times to be told, in turn; the error is a time below zero.
	next []time.Duration
}

// Usage says 7 unless something else is to be told.
func (r *meteredRuntime) Usage(_ context.Context, id string) (cgroups.Usage, error) {
	if c, err := r.engine.Container(id); err != nil || c.Status().State != record.ContainerRunning {
		return cgroups.Usage{}, errors.Join(err, errdefs.ErrFailedPrecondition)
	}
	if len(r.next) == 0 {
		return cgroups.Told(cgroups.Figures{Total: 7}), nil
	}
	total := r.next[0]
	r.next = r.next[1:]
	if total < 0 {
		return cgroups.Usage{}, errdefs.ErrUnavailable
	}
	return cgroups.Told(cgroups.Figures{Total: uint64(total)}), nil
}

// meteredEngine is an engine whose gVisor tells what its containers use.
func meteredEngine(t *testing.T) (*Engine, *meteredRuntime) {
	t.Helper()
	e, _ := mixedEngine(t)
	e.Cgroups = newFakeCgroups()
	e.stats = newCollector(e.cfg, e.Deps)
	e.stats.meter = e.meter
	gvisor, ok := e.Runtimes["gvisor"].(ownKernel)
	if !ok {
		t.Fatal("no handler with a kernel of its own")
	}
	rt := &meteredRuntime{ownKernel: gvisor, engine: e}
	e.Runtimes["gvisor"] = rt
	return e, rt
}

// TestMeteredOnceStarted: that somebody asked about a container before its start does not keep it from being measured after.
func TestMeteredOnceStarted(t *testing.T) {
	e, _ := meteredEngine(t)
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

// TestMeteredTimeNeverFalls: what the runtime takes back is left out, and what it adds after that counts, also when it could not
// be asked once between.
func TestMeteredTimeNeverFalls(t *testing.T) {
	e, rt := meteredEngine(t)
	pod, err := e.RunPod(t.Context(), podConfig("web"), "gvisor")
	must(t, err)
	id := mustCreate(t, e, pod, "main")
	mustStart(t, e, id)
	c, err := e.Container(id)
	must(t, err)
	gauge := e.stats.container(c).gauge
	for _, step := range []struct{ told, want time.Duration }{{10, 10}, {4, 10}, {-1, -1}, {6, 12}, {12, 18}, {11, 18}} {
		rt.next = []time.Duration{step.told}
		got := time.Duration(-1)
		if u, err := gauge.measure(nil, WantUsage{}); err == nil {
			got = u.Usage.CPU.Total
		}
		if got != step.want {
			t.Errorf("told %d: %d, want %d", step.told, got, step.want)
		}
	}
}
