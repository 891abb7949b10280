package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// listRounds is the number of requests for each list, statsRounds for each list of statistics.
const (
	listRounds  = 30
	statsRounds = 10
)

// listPause is the pause between two rounds. A kubelet requests statistics every ten seconds; statsPause is longer than
// a server uses a sample again.
const (
	listPause  = 50 * time.Millisecond
	statsPause = 1200 * time.Millisecond
)

// maxPods is the largest number of pods. More containers than that are added to these pods, and only with the first
// handler, because lists do not depend on the handler.
const maxPods = 200

// restTime is how long a server only answers lists before its memory is measured as that at rest. It may have had 1,000
// containers just before, and Go runs a garbage collection at least every two minutes.
const restTime = 130 * time.Second

// sizesAndMemory measures, with growing numbers of containers, the requests that a kubelet repeats, and the memory for
// pods of one container; then the memory when all are removed.
func (b *bench) sizesAndMemory(ctx context.Context, handler string) error {
	servers := b.able(ctx, handler)
	if handler == b.handlers[0] { // else they have rested at the end of the handler before
		if err := rest(ctx, servers); err != nil {
			return err
		}
	}
	for _, s := range servers {
		if err := b.sizesOf(ctx, s, handler); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if err := rest(ctx, servers); err != nil {
		return err
	}
	for _, s := range servers {
		idle, err := s.memory()
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		most := b.most(handler)
		fmt.Printf("%s idle after %d containers of %s were removed: daemon %s MB, other processes %s MB (PSS)\n\n", s.name,
			most, handler, mb(idle.daemon), mb(idle.others))
		if s == b.servers[0] {
			b.judgeIdle(handler, most, idle)
		}
	}
	return nil
}

// most is the largest number of containers with that handler.
func (b *bench) most(handler string) int {
	most := 0
	for _, n := range b.sizes {
		if n <= maxPods || handler == b.handlers[0] {
			most = max(most, n)
		}
	}
	return most
}

// rest lists pods and containers of the servers once a second, as a kubelet does.
func rest(ctx context.Context, servers []*server) error {
	for end := time.Now().Add(restTime); time.Now().Before(end); time.Sleep(time.Second) {
		for _, s := range servers {
			_, err1 := s.kubelet.runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
			_, err2 := s.kubelet.runtime.ListContainers(ctx, &cri.ListContainersRequest{})
			if err := errors.Join(err1, err2); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
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
	containers := 0
	for _, n := range slices.Sorted(slices.Values(b.sizes)) {
		if n > maxPods && handler != b.handlers[0] {
			break
		}
		more, err := b.upMany(ctx, s, handler, min(n, maxPods)-len(pods))
		pods, containers = append(pods, more...), max(containers, len(pods)+len(more))
		if err != nil {
			return err
		}
		if err := b.fill(ctx, s, pods, n-containers); err != nil {
			return err
		}
		containers = n
		if err := b.sizeOf(ctx, s, handler, pods, size{containers: n, idle: idle}); err != nil {
			return err
		}
	}
	return nil
}

// size is the number of containers, and the server's memory when there were none.
type size struct {
	containers int
	idle       usage
}

// sizeOf measures one size.
func (b *bench) sizeOf(ctx context.Context, s *server, handler string, pods []criPod, at size) error {
	took, err := s.lists(ctx, at.containers, pods)
	if err != nil {
		return err
	}
	used, err := s.memory()
	if err != nil {
		return err
	}
	printSize(s.name, at, len(pods), took, used)
	if s != b.servers[0] {
		return nil
	}
	b.judgeLists(handler, at.containers, took)
	if len(pods) == at.containers && at.containers == maxPods {
		b.judgeMemory(b.where(handler), len(pods), used, at.idle)
	}
	return nil
}

// fill adds n containers to the pods, in turn.
func (b *bench) fill(ctx context.Context, s *server, pods []criPod, n int) error {
	var next atomic.Int64
	_, err := b.many(ctx, max(n, 0), func(ctx context.Context) error {
		i := int(next.Add(1))
		return s.kubelet.add(ctx, pods[i%len(pods)], fmt.Sprint("more-", i))
	})
	return err
}

// upMany creates n pods, with all callers.
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
	_, err := b.many(context.WithoutCancel(ctx), len(pods), func(ctx context.Context) error {
		p := <-left
		if err := s.kubelet.removeFurther(ctx, p); err != nil {
			return err
		}
		return s.kubelet.down(ctx, p, &timer{})
	})
	return err
}

// looking is a read-only call of a kubelet. It returns the number of items and the number expected.
type looking struct {
	name string
	call func(round int) (got, want int, err error)
}

// looks returns the read-only calls of a kubelet, with n containers in the pods: lists and statuses, and statistics.
func (s *server) looks(ctx context.Context, n int, pods []criPod) (often, seldom []looking) {
	r := s.kubelet.runtime
	often = []looking{
		{"ListPodSandbox", func(int) (int, int, error) {
			l, err := r.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
			return len(l.GetItems()), len(pods), err
		}},
		{"ListContainers", func(int) (int, int, error) {
			l, err := r.ListContainers(ctx, &cri.ListContainersRequest{})
			return len(l.GetContainers()), n, err
		}},
		{"PodSandboxStatus", func(round int) (int, int, error) {
			_, err := r.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: pods[round%len(pods)].pod})
			return 0, 0, err
		}},
		{"ContainerStatus", func(round int) (int, int, error) {
			_, err := r.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: pods[round%len(pods)].container})
			return 0, 0, err
		}},
	}
	seldom = []looking{
		{"ListContainerStats", func(int) (int, int, error) {
			l, err := r.ListContainerStats(ctx, &cri.ListContainerStatsRequest{})
			return len(l.GetStats()), n, err
		}},
		{"ListPodSandboxStats", func(int) (int, int, error) {
			l, err := r.ListPodSandboxStats(ctx, &cri.ListPodSandboxStatsRequest{})
			return len(l.GetStats()), len(pods), err
		}},
	}
	return often, seldom
}

// lists measures the read-only calls of a kubelet, with n containers in the pods.
func (s *server) lists(ctx context.Context, n int, pods []criPod) (*samples, error) {
	took := &samples{}
	often, seldom := s.looks(ctx, n, pods)
	for round := range listRounds {
		for _, l := range often {
			if err := l.measure(took, round); err != nil {
				return nil, err
			}
		}
		time.Sleep(listPause)
	}
	for round := range statsRounds {
		for _, l := range seldom {
			time.Sleep(statsPause)
			if err := l.measure(took, round); err != nil {
				return nil, err
			}
		}
	}
	return took, nil
}

func (l looking) measure(took *samples, round int) error {
	start := time.Now()
	got, want, err := l.call(round)
	took.add(l.name, time.Since(start))
	if err != nil {
		return fmt.Errorf("%s: %w", l.name, err)
	}
	if got != want {
		return fmt.Errorf("%s: %d items, want %d", l.name, got, want)
	}
	return nil
}
