package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// restartRounds is how often a server is restarted.
const restartRounds = 5

// restart measures the time from the start of a server until it lists all its pods as ready, with as many pods as the
// largest size, 100 at most.
func (b *bench) restart(ctx context.Context, handler string) error {
	n := min(100, slices.Max(b.sizes))
	for _, s := range b.able(ctx, handler) {
		if err := b.restartWith(ctx, s, handler, n); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func (b *bench) restartWith(ctx context.Context, s *server, handler string, n int) (err error) {
	pods, err := b.upMany(ctx, s, handler, n)
	defer func() { err = errors.Join(err, b.downAll(ctx, s, pods)) }()
	if err != nil {
		return err
	}
	took, err := restarts(ctx, s, n)
	if err != nil {
		return err
	}
	if s == b.servers[0] {
		b.judgeRestart(b.where(handler), n, took)
	}
	fmt.Printf("Restart of %s with %d pods of %s: %s ms (p50 of %d)\n\n", s.name, n, handler, ms(took), restartRounds)
	return nil
}

// restarts restarts a server with n pods a few times, and returns the median.
func restarts(ctx context.Context, s *server, n int) (time.Duration, error) {
	var took samples
	for range restartRounds {
		if err := s.process.Stop(); err != nil {
			return 0, err
		}
		start := time.Now()
		if err := s.process.Start(ctx); err != nil {
			return 0, err
		}
		ready := cri.PodSandboxState_SANDBOX_READY
		l, err := s.kubelet.runtime.ListPodSandbox(ctx,
			&cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{State: &cri.PodSandboxStateValue{State: ready}}})
		if err != nil {
			return 0, fmt.Errorf("list pods after a restart: %w", err)
		}
		if len(l.Items) != n {
			return 0, fmt.Errorf("ready pods after a restart = %d, want %d", len(l.Items), n)
		}
		took.add("restart", time.Since(start))
	}
	return took.quantile("restart", 0.5), nil
}
