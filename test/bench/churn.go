package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// churn measures pods per second with concurrent callers, each of which brings pods up and down, first by hand and then
// with each runtime.
func (b *bench) churn(ctx context.Context, handler string) (err error) {
	podd := b.servers[0]
	reference, err := podd.kubelet.up(ctx, handler, &timer{})
	if err != nil {
		return err
	}
	if err := b.floor.copyFrom(handler, reference.container); err != nil {
		return fmt.Errorf("take the reference from podd: %w", err)
	}
	pods := 2 * b.rounds
	result := churnResult{handler: handler, callers: b.callers, pods: pods}
	byHand, err := b.many(ctx, pods, func(ctx context.Context) error { return b.liveOnceByHand(ctx) })
	if err != nil {
		return fmt.Errorf("by hand: %w", err)
	}
	if err := podd.kubelet.down(ctx, reference, &timer{}); err != nil {
		return err
	}
	result.add("by hand", byHand, 0)
	for _, s := range b.able(ctx, handler) {
		cpu := cpuSeconds(s.process.Pid())
		rate, err := b.many(ctx, pods, func(ctx context.Context) error { return s.kubelet.upAndDown(ctx, handler) })
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		result.add(s.name, rate, (cpuSeconds(s.process.Pid())-cpu)/float64(pods))
	}
	result.print()
	b.judgeChurn(handler, result)
	return nil
}

// many calls one n times in all, with concurrent callers, and returns the rate.
func (b *bench) many(ctx context.Context, n int, one func(context.Context) error) (perSecond float64, err error) {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	begin := time.Now()
	for range b.callers {
		g.Go(func() error {
			for next.Add(1) <= int64(n) {
				if err := one(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = g.Wait()
	return float64(n) / time.Since(begin).Seconds(), err
}

func (k *kubelet) upAndDown(ctx context.Context, handler string) error {
	p, err := k.up(ctx, handler, &timer{})
	if err != nil {
		return err
	}
	return k.down(ctx, p, &timer{})
}

func (b *bench) liveOnceByHand(ctx context.Context) error {
	p, err := b.floor.up(ctx, &timer{})
	if err != nil {
		return err
	}
	return b.floor.down(ctx, p, &timer{})
}
