package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

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
	var took samples
	for range 5 {
		if err := s.process.Stop(); err != nil {
			return err
		}
		start := time.Now()
		if err := s.process.Start(ctx); err != nil {
			return err
		}
		ready := cri.PodSandboxState_SANDBOX_READY
		l, err := s.kubelet.runtime.ListPodSandbox(ctx,
			&cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{State: &cri.PodSandboxStateValue{State: ready}}})
		if err != nil {
			return fmt.Errorf("list pods after a restart: %w", err)
		}
		if len(l.Items) != n {
			return fmt.Errorf("ready pods after a restart = %d, want %d", len(l.Items), n)
		}
		took.add("restart", time.Since(start))
	}
	if s == b.servers[0] {
		b.judgeRestart(handler, n, took.quantile("restart", 0.5))
	}
	fmt.Printf("Restart of %s with %d pods of %s: %s ms (p50 of 5)\n\n", s.name, n, handler,
		ms(took.quantile("restart", 0.5)))
	return nil
}
