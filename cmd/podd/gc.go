package main

import (
	"context"
	"os"
	"runtime/debug"
	"sync"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// How much garbage the heap may hold, in percent of what is alive. Go's own 100 costs three megabytes more on a node at
// rest; half of it costs a pod's life a few milliseconds of processor time. A pull makes some 8 MiB of garbage for each
// layer, the buffers of two decompressors: with half of it one of many small layers takes 1.3 times as long.
const (
	gcPercent     = 50
	gcPercentPull = 100
)

// heap decides how often garbage is collected, unless GOGC is set, which then does.
type heap struct {
	fixed bool

	mu    sync.Mutex
	pulls int
}

func newHeap() *heap {
	h := &heap{fixed: os.Getenv("GOGC") != ""}
	h.set(gcPercent)
	return h
}

// relax is a gRPC interceptor: garbage is collected less often while somebody waits for a pull.
func (h *heap) relax(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if info.FullMethod == cri.ImageService_PullImage_FullMethodName {
		h.pull(+1)
		defer h.pull(-1)
	}
	return handler(ctx, req)
}

func (h *heap) pull(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.pulls
	h.pulls += n
	switch {
	case before == 0:
		h.set(gcPercentPull)
	case h.pulls == 0:
		h.set(gcPercent)
	}
}

func (h *heap) set(percent int) {
	if !h.fixed {
		debug.SetGCPercent(percent)
	}
}
