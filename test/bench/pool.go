package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// poolRest is the pause before each pod in which podd makes a network in advance, which needs a quiet node.
const poolRest = 2 * time.Second

// poolAge is how long each pod rests before it is stopped. The kernel deletes an interface faster in its first two
// seconds, so a pod that lives for half a second is no match for one whose network was made before.
const poolAge = 3 * time.Second

// pool measures what networks made in advance save: the life of a pod by hand, with a podd without them and with a podd
// that has four, in turn, each after a rest. All use plugins of the same type, the podds with a bridge of their own.
func (b *bench) pool(ctx context.Context, handler string) (err error) {
	with, _, err := b.startPodd(ctx, "network.pool_size = 4")
	if with == nil {
		return err
	}
	defer func() { err = errors.Join(err, with.close()) }()
	if err == nil {
		err = with.kubelet.pull(ctx, busybox)
	}
	if err != nil {
		return err
	}
	names := []string{"by hand", "podd", "podd with a pool"}
	samplesOf := make([]samples, len(names))
	takeTurns := []func(*samples) error{
		func(s *samples) error { return b.liveByHand(ctx, poolAge, s) },
		func(s *samples) error { return b.servers[0].live(ctx, handler, poolAge, s) },
		func(s *samples) error { return with.live(ctx, handler, poolAge, s) },
	}
	err = b.withReference(ctx, handler, nil, func() error {
		for round := range warmUp + b.rounds {
			if round == warmUp {
				samplesOf = make([]samples, len(names))
				with.stages = &samples{}
			}
			for i := range takeTurns {
				one := (i + round) % len(takeTurns) // each is as often the first
				time.Sleep(poolRest)
				if err := takeTurns[one](&samplesOf[one]); err != nil {
					return fmt.Errorf("%s: %w", names[one], err)
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	printPool(b.where(handler), b.rounds, names, samplesOf)
	printStages(with.stages)
	b.judgePool(handler, &samplesOf[0], &samplesOf[2])
	return nil
}

// printPool prints the sums, each beside its ratio to the first column.
func printPool(where string, rounds int, names []string, samplesOf []samples) {
	fmt.Printf("### Networks made in advance, %s, p50 and p95 in ms of %d rounds, ratio of p50 to that by hand\n\n| |",
		where, rounds)
	for _, name := range names {
		fmt.Printf(" %s |", name)
	}
	fmt.Print("\n|---|---:|---:|---:|\n")
	for _, sum := range []string{podUp, podDown} {
		fmt.Printf("| %s |", sum)
		byHand := samplesOf[0].quantile(sum, 0.5)
		for i := range samplesOf {
			took := samplesOf[i].quantile(sum, 0.5)
			fmt.Printf(" %s, %s (%.2f) |", ms(took), ms(samplesOf[i].quantile(sum, 0.95)), float64(took)/float64(byHand))
		}
		fmt.Println()
	}
	printSteps(samplesOf)
	fmt.Println()
}

// printSteps prints the steps, of which a pod by hand and podd's have others.
func printSteps(samplesOf []samples) {
	var steps []string
	for _, s := range samplesOf {
		for _, name := range s.names {
			if !slices.Contains(append(steps, podUp, podDown), name) {
				steps = append(steps, name)
			}
		}
	}
	for _, step := range steps {
		fmt.Printf("| %s |", step)
		for _, s := range samplesOf {
			if len(s.took[step]) > 0 {
				fmt.Printf(" %s", ms(s.quantile(step, 0.5)))
			}
			fmt.Print(" |")
		}
		fmt.Println()
	}
}
