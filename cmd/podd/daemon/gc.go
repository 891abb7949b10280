package daemon

import (
	"context"
	"os"
	"runtime/debug"
	"sync"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Values of GOGC. Go's default of 100 costs 3 MB more on an idle node; 50 costs a few milliseconds of CPU time per pod.
// A pull allocates about 8 MiB for each layer, the buffers of two decompressors: at 50, an image of many small layers
// takes 1.3 times as long.
const (
	gcPercent     = 50
	gcPercentPull = 100
)

// memoryLimit is GOMEMLIMIT in bytes: above it the collector works more, up to half of the CPU time. podd uses a tenth
// of it. Not in the environment of the unit: programs that podd starts would get it, gVisor's sandboxes too.
const memoryLimit = 1 << 30

// gcTuner sets GOGC, and GOMEMLIMIT once, unless the environment does.
type gcTuner struct {
	fixed bool

	mu    sync.Mutex
	pulls int
}

func newGCTuner() *gcTuner {
	g := &gcTuner{fixed: os.Getenv("GOGC") != ""}
	g.set(gcPercent)
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	return g
}

// duringPull is a gRPC interceptor that lets the heap grow larger while PullImage is served.
func (g *gcTuner) duringPull(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	if info.FullMethod == cri.ImageService_PullImage_FullMethodName {
		g.addPulls(+1)
		defer g.addPulls(-1)
	}
	return handler(ctx, req)
}

func (g *gcTuner) addPulls(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.pulls
	g.pulls += n
	switch {
	case before == 0:
		g.set(gcPercentPull)
	case g.pulls == 0:
		g.set(gcPercent)
	}
}

func (g *gcTuner) set(percent int) {
	if !g.fixed {
		debug.SetGCPercent(percent)
	}
}
