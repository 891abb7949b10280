package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/sandbox/usage"
)

// meteredRuntime tells what its containers use once they were started, and errs before, as gVisor's shim does.
type meteredRuntime struct {
	ownKernel
	engine *Engine
	// delay is how long it takes to answer.
	delay atomic.Int64
}

// Usage returns a CPU time of 7 ns.
func (r *meteredRuntime) Usage(ctx context.Context, id string) (cgroups.Usage, error) {
	select {
	case <-time.After(time.Duration(r.delay.Load())):
	case <-ctx.Done():
		return cgroups.Usage{}, fmt.Errorf("shim Stats: %w", context.Cause(ctx))
	}
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

// TestMeteredSlowly: a runtime that takes some seconds is waited for once. Then a running container keeps its last
// figures, with their time, while the runtime does not answer.
func TestMeteredSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, rt := meteredEngine(t)
		pod, err := e.RunPod(t.Context(), podConfig("web"), "gvisor")
		must(t, err)
		id := mustCreate(t, e, pod, "main")
		mustStart(t, e, id)
		at := func(wait time.Duration) time.Time {
			t.Helper()
			begin := time.Now()
			got := e.ContainerUsage(t.Context(), []string{id}, usage.Want{})
			if got[id].Usage == nil || time.Since(begin) != wait {
				t.Fatalf("%s in %s, want the container in %s", asJSON(got), time.Since(begin), wait)
			}
			return got[id].Usage.At
		}
		const slow = usage.MeterPatience - time.Second
		rt.delay.Store(int64(slow))
		first := at(slow)
		rt.delay.Store(int64(time.Hour))
		time.Sleep(usage.Freshness)
		for _, wait := range []time.Duration{usage.Patience, 0} {
			if got := at(wait); !got.Equal(first) {
				t.Errorf("time of the figures = %s, want %s", got, first)
			}
			time.Sleep(time.Nanosecond)
		}
		time.Sleep(time.Minute) // the call has ended
		if got := at(usage.Patience); !got.Equal(first) {
			t.Errorf("time of the figures = %s, want %s", got, first)
		}
		rt.delay.Store(0)
		time.Sleep(time.Minute)
		if got := at(0); !got.After(first) {
			t.Errorf("time of the figures = %s, want a later one than %s", got, first)
		}
		e.usage.Close()
	})
}
