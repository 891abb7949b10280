package main

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
)

// inflight counts the calls under way. Streams are not counted: a client that watches events or health would
// hold the daemon up for ever.
type inflight struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // not nil once somebody waits, closed at n == 0
}

// count is a gRPC interceptor.
func (i *inflight) count(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
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

// none returns a channel that is closed when no call is under way. It is asked once, when no new calls come.
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

// drain stops accepting, lets calls under way finish for a while and cuts off the others. A call that is cut
// off has not failed: creations go on detached from their caller, and are taken back by the engine's Close.
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
		log.WithField("limit", limit.String()).Warn("calls are still under way, cutting them off")
	}
	srv.Stop()
	<-stopped
}

// flushTimeout is how long the answer of the last call may take to get out once only streams are left.
const flushTimeout = 250 * time.Millisecond

func awaitFlush(stopped <-chan struct{}) {
	timer := time.NewTimer(flushTimeout)
	defer timer.Stop()
	select {
	case <-stopped:
	case <-timer.C:
	}
}
