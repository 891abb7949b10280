package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// listRounds is how often each list is asked for.
const listRounds = 30

// sizesAndMemory measures, with growing numbers of pods of one container, what a kubelet asks for all the time, and what
// they cost in memory.
func (b *bench) sizesAndMemory(ctx context.Context, handler string) error {
	for _, s := range b.able(ctx, handler) {
		if err := b.sizesOf(ctx, s, handler); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func (b *bench) sizesOf(ctx context.Context, s *server, handler string) (err error) {
	var pods []criPod
	defer func() { err = errors.Join(err, b.downAll(ctx, s, pods)) }()
	idle, err := s.memory()
	if err != nil {
		return err
	}
	printIdle(s.name, handler, idle)
	for _, n := range slices.Sorted(slices.Values(b.sizes)) {
		more, err := b.upMany(ctx, s, handler, n-len(pods))
		pods = append(pods, more...)
		if err != nil {
			return err
		}
		took, err := s.lists(ctx, n, pods)
		if err != nil {
			return err
		}
		used, err := s.memory()
		if err != nil {
			return err
		}
		printSize(s.name, n, took, used, idle)
	}
	return nil
}

// upMany brings n pods up, by all callers.
func (b *bench) upMany(ctx context.Context, s *server, handler string, n int) ([]criPod, error) {
	var mu sync.Mutex
	var pods []criPod
	_, err := b.many(ctx, n, func(ctx context.Context) error {
		p, err := s.kubelet.up(ctx, handler, &timer{})
		mu.Lock()
		defer mu.Unlock()
		pods = append(pods, p)
		return err
	})
	return pods, err
}

func (b *bench) downAll(ctx context.Context, s *server, pods []criPod) error {
	left := make(chan criPod, len(pods))
	for _, p := range pods {
		left <- p
	}
	_, err := b.many(context.WithoutCancel(ctx), len(pods), func(ctx context.Context) error { return s.kubelet.down(ctx, <-left, &timer{}) })
	return err
}

// lists measures the calls of a kubelet that only looks. Every list must hold the n pods or containers.
func (s *server) lists(ctx context.Context, n int, pods []criPod) (*samples, error) {
	r, took := s.kubelet.runtime, &samples{}
	calls := []struct {
		name string
		call func(round int) (int, error)
	}{
		{"ListPodSandbox", func(int) (int, error) {
			l, err := r.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
			return len(l.GetItems()), err
		}},
		{"ListContainers", func(int) (int, error) {
			l, err := r.ListContainers(ctx, &cri.ListContainersRequest{})
			return len(l.GetContainers()), err
		}},
		{"PodSandboxStatus", func(round int) (int, error) {
			_, err := r.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: pods[round%n].pod})
			return n, err
		}},
		{"ContainerStatus", func(round int) (int, error) {
			_, err := r.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: pods[round%n].container})
			return n, err
		}},
		{"ListContainerStats", func(int) (int, error) {
			l, err := r.ListContainerStats(ctx, &cri.ListContainerStatsRequest{})
			return len(l.GetStats()), err
		}},
		{"ListPodSandboxStats", func(int) (int, error) {
			l, err := r.ListPodSandboxStats(ctx, &cri.ListPodSandboxStatsRequest{})
			return len(l.GetStats()), err
		}},
	}
	for round := range listRounds {
		for _, c := range calls {
			start := time.Now()
			got, err := c.call(round)
			if err != nil || got != n {
				return nil, fmt.Errorf("%s: %d of %d, %w", c.name, got, n, err)
			}
			took.add(c.name, time.Since(start))
		}
		time.Sleep(50 * time.Millisecond) // a kubelet does not ask without a pause either
	}
	return took, nil
}
