package main

import (
	"context"
	"runtime/debug"
	"testing"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// gcNow is how much garbage the heap may hold now.
func gcNow() int {
	now := debug.SetGCPercent(100)
	debug.SetGCPercent(now)
	return now
}

func TestHeapIsSmallButForPulls(t *testing.T) {
	before := gcNow()
	t.Cleanup(func() { debug.SetGCPercent(before) })
	t.Setenv("GOGC", "")
	h := newHeap()
	if got := gcNow(); got != gcPercent {
		t.Fatalf("at rest: %d, want %d", got, gcPercent)
	}
	call := func(method string, during func()) {
		_, err := h.relax(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) {
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
			t.Errorf("%s: %d, want %d", when, got, want)
		}
	}
	call(cri.RuntimeService_ListContainers_FullMethodName, func() { check("in another call", gcPercent) })
	call(cri.ImageService_PullImage_FullMethodName, func() {
		check("in a pull", gcPercentPull)
		call(cri.ImageService_PullImage_FullMethodName, func() { check("in two", gcPercentPull) })
		check("in the first, the second has ended", gcPercentPull)
	})
	check("after them", gcPercent)
}

func TestHeapIsTheOperatorsToDecide(t *testing.T) {
	before := gcNow()
	t.Cleanup(func() { debug.SetGCPercent(before) })
	debug.SetGCPercent(77)
	t.Setenv("GOGC", "77") // which the runtime itself reads when a program starts
	h := newHeap()
	for _, n := range []int{+1, -1} {
		h.pull(n)
		if got := gcNow(); got != 77 {
			t.Errorf("pulls %+d: %d, want 77", n, got)
		}
	}
}
