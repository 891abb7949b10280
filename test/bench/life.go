package main

import (
	"context"
	"fmt"
	"time"
)

// The sums over the steps of a pod's life.
const (
	podUp   = "pod-up"
	podDown = "pod-down"
	execNow = "ExecSync true, at once"
	execOne = "ExecSync true"
)

// settled is how long a container runs before a command in it is measured as a probe. After a process was moved into a
// cgroup, as at the start of a container, the next moves are fast for some milliseconds: they do not wait for a grace
// period of RCU. settled is much longer than that.
const settled = 200 * time.Millisecond

// warmUp is the number of rounds before those that count.
const warmUp = 3

// lives are the durations of the lives of pods, made by hand and by servers in the same rounds.
type lives struct {
	byHand   *samples
	servers  []*server
	byServer []samples // of servers, in their order
	stages   *samples  // of podd
}

// life measures pods one after the other.
func (b *bench) life(ctx context.Context, handler string) error {
	l, err := b.liveTogether(ctx, handler, b.able(ctx, handler))
	if err != nil {
		return err
	}
	b.printLife(handler, l)
	printStages(l.stages)
	if len(l.servers) > 0 && l.servers[0] == b.servers[0] {
		b.judgeLife(handler, l.byHand, &l.byServer[0])
	}
	return nil
}

// liveTogether makes pods by hand and with the servers. In each round each makes one, so that a slow minute of the
// machine affects all of them.
func (b *bench) liveTogether(ctx context.Context, handler string, servers []*server) (l lives, err error) {
	podd := b.servers[0]
	l.servers = servers
	defer func() { l.stages, podd.stages = podd.stages, nil }()
	err = b.withReference(ctx, handler, nil, func() error {
		for round := range warmUp + b.rounds {
			if round == 0 || round == warmUp {
				l.byHand, l.byServer, podd.stages = &samples{}, make([]samples, len(servers)), &samples{}
			}
			if err := b.liveByHand(ctx, l.byHand); err != nil {
				return fmt.Errorf("by hand: %w", err)
			}
			for i, s := range servers {
				if err := s.live(ctx, handler, &l.byServer[i]); err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
			}
		}
		return nil
	})
	return l, err
}

// able returns the servers that can run a pod of the handler, and prints which cannot: an old crun refuses the OCI
// version that some of them write.
func (b *bench) able(ctx context.Context, handler string) []*server {
	var able []*server
	for _, s := range b.servers {
		if err := s.live(ctx, handler, &samples{}); err != nil {
			fmt.Printf("%s cannot run %s here: %v\n\n", s.name, handler, err)
			if err := s.kubelet.removeAll(ctx); err != nil && s.name != "podd" {
				fmt.Printf("%s: failed to remove pods: %v\n\n", s.name, err)
			}
			continue
		}
		able = append(able, s)
	}
	return able
}

// liveByHand makes a pod by hand and removes it.
func (b *bench) liveByHand(ctx context.Context, into *samples) error {
	var up, down timer
	p, err := b.floor.up(ctx, &up)
	if err != nil {
		return err
	}
	if err := measureExec(into, func() error { return b.floor.exec(p) }); err != nil {
		return err
	}
	if err := b.floor.down(ctx, p, &down); err != nil {
		return err
	}
	into.addAll(&up, podUp)
	into.addAll(&down, podDown)
	return nil
}

// live is liveByHand with a pod of s.
func (s *server) live(ctx context.Context, handler string, into *samples) error {
	var up, down timer
	p, err := s.kubelet.up(ctx, handler, &up)
	if err != nil {
		return err
	}
	if err := measureExec(into, func() error { return s.kubelet.exec(ctx, p) }); err != nil {
		return err
	}
	if s.stages != nil {
		if err := s.kubelet.stages(ctx, p, s.stages); err != nil {
			return err
		}
	}
	if err := s.kubelet.down(ctx, p, &down); err != nil {
		return err
	}
	into.addAll(&up, podUp)
	into.addAll(&down, podDown)
	return nil
}

// measureExec runs a command in a container right after its start, and again when it has run for a while, as for a
// probe.
func measureExec(into *samples, exec func() error) error {
	for _, e := range []struct {
		name  string
		after time.Duration
	}{{execNow, 0}, {execOne, settled}} {
		time.Sleep(e.after)
		start := time.Now()
		if err := exec(); err != nil {
			return err
		}
		into.add(e.name, time.Since(start))
	}
	return nil
}
