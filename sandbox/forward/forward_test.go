package forward

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/cmd/budget"
)

// TestManyDials: 1,000 connections to a pod that does not answer wait in turns of 32, all of them end after the
// timeout, and a connection to another pod is established at once.
func TestManyDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := budget.New().Dials
		var now, most atomic.Int64
		stuck := func(ctx context.Context) (net.Conn, error) {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer now.Add(-1)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		began := time.Now()
		var all sync.WaitGroup
		var exhausted atomic.Int64
		for range 1000 {
			all.Go(func() {
				_, err := Connect(t.Context(), turns, "deaf", stuck)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Connect = %v, want a deadline", err)
				}
				if errdefs.IsResourceExhausted(err) {
					exhausted.Add(1)
				}
			})
		}
		synctest.Wait()
		healthy := func(context.Context) (net.Conn, error) { return &net.TCPConn{}, nil }
		conn, err := Connect(t.Context(), turns, "other", healthy)
		if err != nil || conn == nil || time.Since(began) != 0 {
			t.Errorf("another pod: %v after %v, want a connection at once", err, time.Since(began))
		}
		all.Wait()
		if took := time.Since(began); took != dialTimeout {
			t.Errorf("all ended after %v, want %v", took, dialTimeout)
		}
		// At the deadline a turn may go to a connection whose own time is over.
		if most.Load() != 32 || exhausted.Load() < 500 {
			t.Errorf("%d at once, %d without a turn, want 32, at least 500", most.Load(), exhausted.Load())
		}
	})
}
