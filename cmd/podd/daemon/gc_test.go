package daemon

import (
	"context"
	"runtime/debug"
	"testing"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// gcNow returns the present value of GOGC.
func gcNow() int {
	now := debug.SetGCPercent(100)
	debug.SetGCPercent(now)
	return now
}

func TestGCPercentIsRaisedDuringPulls(t *testing.T) {
	before := gcNow()
	t.Cleanup(func() { debug.SetGCPercent(before) })
	t.Setenv("GOGC", "")
	g := newGCTuner()
	if got := gcNow(); got != gcPercent {
		t.Fatalf("at start: GOGC = %d, want %d", got, gcPercent)
	}
	call := func(method string, during func()) {
		info := &grpc.UnaryServerInfo{FullMethod: method}
		_, err := g.duringPull(t.Context(), nil, info, func(context.Context, any) (any, error) {
			during()
			return nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string, want int) {
		t.Helper()
		if got := gcNow(); got != want {
			t.Errorf("%s: GOGC = %d, want %d", when, got, want)
		}
	}
	call(cri.RuntimeService_ListContainers_FullMethodName, func() { check("during ListContainers", gcPercent) })
	call(cri.ImageService_PullImage_FullMethodName, func() {
		check("during a pull", gcPercentPull)
		call(cri.ImageService_PullImage_FullMethodName, func() { check("during two pulls", gcPercentPull) })
		check("after the second pull, during the first", gcPercentPull)
	})
	check("after both", gcPercent)
}

func TestGOGCFromTheEnvironmentIsKept(t *testing.T) {
	before := gcNow()
	t.Cleanup(func() { debug.SetGCPercent(before) })
	debug.SetGCPercent(77)
	t.Setenv("GOGC", "77") // the Go runtime reads it at start
	g := newGCTuner()
	for _, n := range []int{+1, -1} {
		g.addPulls(n)
		if got := gcNow(); got != 77 {
			t.Errorf("addPulls(%+d): GOGC = %d, want 77", n, got)
		}
	}
}

func TestMemoryLimit(t *testing.T) {
	gc, memory := gcNow(), debug.SetMemoryLimit(-1)
	t.Cleanup(func() {
		debug.SetGCPercent(gc)
		debug.SetMemoryLimit(memory)
	})
	for _, c := range []struct {
		env  string
		want int64
	}{{"", memoryLimit}, {"77MiB", 77 << 20}} {
		debug.SetMemoryLimit(77 << 20) // the Go runtime reads the variable at start
		t.Setenv("GOMEMLIMIT", c.env)
		newGCTuner()
		if got := debug.SetMemoryLimit(-1); got != c.want {
			t.Errorf("GOMEMLIMIT=%s: limit = %d, want %d", c.env, got, c.want)
		}
	}
}
