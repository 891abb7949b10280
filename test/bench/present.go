package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// presence is what was measured while some pods were present.
type presence struct {
	pods    int
	lives   lives
	used    usage
	restart time.Duration // 0 without pods
}

// present measures the life of a pod, by hand and with podd, while podd has other pods; then podd's memory, and the
// time from its start until it lists them.
func (b *bench) present(ctx context.Context, handler string) (err error) {
	podd := b.servers[0]
	var pods []criPod
	defer func() { err = errors.Join(err, b.downAll(ctx, podd, pods)) }()
	time.Sleep(idleTime) // podd may have been started just now
	idle, err := podd.memory()
	if err != nil {
		return err
	}
	var all []presence
	for _, n := range slices.Sorted(slices.Values(b.others)) {
		more, err := b.upMany(ctx, podd, handler, n-len(pods))
		pods = append(pods, more...)
		if err != nil {
			return fmt.Errorf("bring up %d pods: %w", n, err)
		}
		p := presence{pods: len(pods)}
		if p.lives, err = b.liveTogether(ctx, handler, []*server{podd}); err != nil {
			return err
		}
		time.Sleep(idleTime)
		if p.used, err = podd.memory(); err != nil {
			return err
		}
		if n > 0 {
			if p.restart, err = restarts(ctx, podd, n); err != nil {
				return err
			}
		}
		all = append(all, p)
	}
	b.printPresent(handler, all, idle)
	printPresentSteps(all)
	b.judgePresent(handler, all, idle)
	return nil
}

// printPresent prints a row for each number of pods. All ratios are of medians.
func (b *bench) printPresent(handler string, all []presence, idle usage) {
	fmt.Printf("### One pod with others present, %s, p50 in ms of %d rounds\n\n| present | pod-up by hand | podd "+
		"| x floor | x first row | pod-down by hand | podd | x floor | x first row | daemon, MB "+
		"| daemon, MB more for each pod | other processes, MB for each pod | restart |\n|---:|%s\n", b.where(handler),
		b.rounds, "---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	first := &all[0].lives.byServer[0]
	for _, p := range all {
		fmt.Printf("| %d |", p.pods)
		podd := &p.lives.byServer[0]
		for _, name := range []string{podUp, podDown} {
			fmt.Printf(" %s | %s | %s | %s |", ms(p.lives.byHand.quantile(name, 0.5)), ms(podd.quantile(name, 0.5)),
				ratio(podd, p.lives.byHand, name), ratio(podd, first, name))
		}
		fmt.Printf(" %s |", mb(p.used.daemon))
		if p.pods == 0 {
			fmt.Print(" | | |\n")
			continue
		}
		fmt.Printf(" %.3f | %.3f | %s |\n", grown(p.used.daemon, idle.daemon, p.pods), grown(p.used.others, idle.others,
			p.pods), ms(p.restart))
	}
	fmt.Println()
}

// printPresentSteps prints the steps of the pod by hand, and podd's stages, with each number of pods: what takes longer
// by hand is the kernel's and the plugins'.
func printPresentSteps(all []presence) {
	fmt.Print("| with other pods |")
	for _, p := range all {
		fmt.Printf(" %d |", p.pods)
	}
	fmt.Printf("\n|---|%s\n", strings.Repeat("---:|", len(all)))
	row := func(what, name string, of func(presence) *samples) {
		fmt.Printf("| %s%s |", what, name)
		for _, p := range all {
			fmt.Printf(" %s |", ms(of(p).quantile(name, 0.5)))
		}
		fmt.Println()
	}
	byHand := func(p presence) *samples { return p.lives.byHand }
	for _, name := range byHand(all[0]).names {
		row("by hand: ", name, byHand)
	}
	stages := func(p presence) *samples { return p.lives.stages }
	for _, name := range stages(all[0]).names {
		row("", name, stages)
	}
	fmt.Println()
}

// grown returns by how many MB memory grew for each pod: it may be less than 0, by a garbage collection.
func grown(used, idle uint64, pods int) float64 {
	return (float64(used) - float64(idle)) / float64(pods) / megabyte
}
