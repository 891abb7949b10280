package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
)

// inflight counts the unary calls in progress. Streams are not counted: a client that watches events or health would
// delay the stop of the daemon indefinitely.
type inflight struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // not nil once none was called, closed at n == 0
}

// count is a gRPC interceptor.
func (i *inflight) count(
	ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	i.add(1)
	defer i.add(-1)
	return handler(ctx, req)
}

func (i *inflight) add(n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.n += n
	i.signalLocked()
}

// none returns a channel that is closed when no call is in progress. It is called once, when no new calls are accepted.
func (i *inflight) none() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	idle := make(chan struct{})
	i.idle = idle
	i.signalLocked()
	return idle
}

func (i *inflight) signalLocked() {
	if i.n == 0 && i.idle != nil {
		close(i.idle)
		i.idle = nil
	}
}

// drain stops accepting calls, waits up to limit for those in progress and cancels the rest. A canceled creation
// continues detached from its caller, until the engine's Close undoes it.
func drain(srv *grpc.Server, calls *inflight, limit time.Duration, log logrus.FieldLogger) {
	stopped := make(chan struct{})
	go func() {
		srv.GracefulStop() // returns when calls and streams have ended
		close(stopped)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-stopped:
		return
	case <-calls.none():
		awaitFlush(stopped)
	case <-timer.C:
		log.WithField("limit", limit.String()).Warn("calls did not finish in time, canceling them")
	}
	srv.Stop()
	<-stopped
}

// flushTimeout is how long the response of the last call may take to be sent once only streams are left.
const flushTimeout = 250 * time.Millisecond

func awaitFlush(stopped <-chan struct{}) {
	timer := time.NewTimer(flushTimeout)
	defer timer.Stop()
	select {
	case <-stopped:
	case <-timer.C:
	}
}
