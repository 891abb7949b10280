package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// churn measures pods per second with concurrent callers, each of which brings pods up and down, first by hand and then
// with each runtime; and where the processor time went.
func (b *bench) churn(ctx context.Context, handler string) error {
	result := churnResult{where: b.where(handler), callers: b.callers, pods: 2 * b.rounds}
	err := b.withReference(ctx, handler, nil, func() error {
		return b.churnOf(ctx, nil, b.liveOnceByHand, &result)
	})
	if err != nil {
		return fmt.Errorf("by hand: %w", err)
	}
	for _, s := range b.able(ctx, handler) {
		one := func(ctx context.Context) error { return s.kubelet.upAndDown(ctx, handler) }
		if err := b.churnOf(ctx, s, one, &result); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	result.print()
	b.judgeChurn(result)
	return nil
}

// churnOf measures pods that one makes, of a server or by hand if that is nil, and adds a row.
func (b *bench) churnOf(ctx context.Context, s *server, one func(context.Context) error, into *churnResult) error {
	row := churnRow{name: "by hand"}
	if s != nil {
		row.name = s.name
	}
	meter := startMeter(s)
	rate, err := b.many(ctx, into.pods, one)
	row.rate = rate
	row.times, row.problem = meter.stop()
	into.rows = append(into.rows, row)
	return err
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
