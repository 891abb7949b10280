package main

import (
	"context"
	"errors"
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

// life measures pods one after the other. In each round the floor and every runtime make one, so that a slow minute of
// the machine affects all of them.
func (b *bench) life(ctx context.Context, handler string) (err error) {
	podd := b.servers[0]
	reference, err := podd.kubelet.up(ctx, handler, &timer{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, podd.kubelet.down(ctx, reference, &timer{})) }()
	if err := b.floor.copyFrom(handler, reference.container); err != nil {
		return fmt.Errorf("take the reference from podd: %w", err)
	}
	lives := b.able(ctx, handler)
	byHand, byServer := &samples{}, make([]samples, len(lives))
	for round := range warmUp + b.rounds {
		if round == warmUp {
			byHand, byServer = &samples{}, make([]samples, len(lives))
			podd.stages = &samples{}
		}
		if err := b.liveByHand(ctx, byHand); err != nil {
			return fmt.Errorf("by hand: %w", err)
		}
		for i, s := range lives {
			if err := s.live(ctx, handler, &byServer[i]); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	printLife(handler, b.rounds, byHand, lives, byServer)
	printStages(podd.stages)
	podd.stages = nil
	if len(lives) > 0 && lives[0] == podd {
		b.judgeLife(handler, byHand, &byServer[0])
	}
	return nil
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
