package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The periods of what a kubelet does all the time. A container is probed by exec in each of them.
const (
	relistPeriod = time.Second
	statsPeriod  = 10 * time.Second
	probePeriod  = time.Second
)

// scale measures what a node full of pods costs while nothing happens: each server in turn has the pods, and a kubelet
// relists once a second, takes statistics every ten seconds, and runs exec probes.
func (b *bench) scale(ctx context.Context, handler string) error {
	servers := b.able(ctx, handler)
	fmt.Printf("### A node full of pods, %s: %v of relists, statistics and %d exec probes a second; p50 (p99) in ms\n\n"+
		"| | pods | ListPodSandbox | ListContainers | ListPodSandboxStats | ExecSync | probes/s | daemon CPU, %% of a core "+
		"| daemon, MB | other processes, MB |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
		handler, b.scaleTime, b.probes)
	for _, s := range servers {
		if err := b.scaleOf(ctx, s, handler); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	fmt.Println()
	return nil
}

// scaleOf measures one server with each number of pods.
func (b *bench) scaleOf(ctx context.Context, s *server, handler string) (err error) {
	var pods []criPod
	defer func() { err = errors.Join(err, b.downAll(ctx, s, pods)) }()
	for _, n := range slices.Sorted(slices.Values(b.sizes)) {
		more, err := b.upMany(ctx, s, handler, n-len(pods))
		pods = append(pods, more...)
		if err != nil {
			return err
		}
		cpu, began := cpuSeconds(s.process.Pid()), time.Now()
		took, err := b.attend(ctx, s, pods)
		if err != nil {
			return err
		}
		elapsed := time.Since(began).Seconds()
		used, err := s.memory()
		if err != nil {
			return err
		}
		printScale(s.name, len(pods), took, elapsed, cpuSeconds(s.process.Pid())-cpu, used)
	}
	return nil
}

// attend does what a kubelet does with running pods.
func (b *bench) attend(ctx context.Context, s *server, pods []criPod) (*samples, error) {
	var mu sync.Mutex
	all, r := &samples{}, s.kubelet.runtime
	timed := func(l looking) func(int) error {
		return func(round int) error {
			took := &samples{}
			err := l.measure(took, round)
			mu.Lock()
			defer mu.Unlock()
			all.add(l.name, took.quantile(l.name, 1))
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	lists, stats := s.looks(ctx, len(pods), pods)
	for _, l := range lists[:2] {
		g.Go(func() error { return b.each(ctx, relistPeriod, timed(l)) })
	}
	g.Go(func() error { return b.each(ctx, statsPeriod, timed(stats[1])) })
	for worker := range b.probes {
		g.Go(func() error {
			return b.each(ctx, probePeriod, timed(looking{"ExecSync", func(round int) (int, int, error) {
				p := pods[(round*b.probes+worker)%len(pods)]
				answer, err := r.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: p.container, Cmd: []string{"true"}, Timeout: 60})
				return int(answer.GetExitCode()), 0, err
			}}))
		})
	}
	return all, g.Wait()
}

// each calls f once in each period for the time of the measurement, and waits for it: a call that takes longer than the
// period delays the next.
func (b *bench) each(ctx context.Context, period time.Duration, f func(round int) error) error {
	ticks := time.NewTicker(period)
	defer ticks.Stop()
	end := time.NewTimer(b.scaleTime)
	defer end.Stop()
	for round := 0; ; round++ {
		if err := f(round); err != nil {
			return err
		}
		select {
		case <-ticks.C:
		case <-end.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// printScale prints a row of the table.
func printScale(name string, pods int, took *samples, elapsed, cpu float64, used usage) {
	fmt.Printf("| %s | %d |", name, pods)
	for _, call := range []string{"ListPodSandbox", "ListContainers", "ListPodSandboxStats", "ExecSync"} {
		fmt.Printf(" %s (%s) |", ms(took.quantile(call, 0.5)), ms(took.quantile(call, 0.99)))
	}
	fmt.Printf(" %.1f | %.1f | %s | %s |\n", float64(len(took.took["ExecSync"]))/elapsed, 100*cpu/elapsed, mb(used.daemon),
		mb(used.others))
}
