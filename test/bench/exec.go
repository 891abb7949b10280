package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// execLimited is the name of an exec in a container with a CPU limit of 100m.
const execLimited = "ExecSync with cpu 100m"

// limitCPU sets the limit of 100m as a kubelet does.
func limitCPU(c *cri.ContainerConfig) {
	c.Linux.Resources.CpuPeriod, c.Linux.Resources.CpuQuota, c.Linux.Resources.CpuShares = 100_000, 10_000, 102
}

// execTurn is one container in which `true` is run: by hand, or of a server.
type execTurn struct {
	server *server // nil by hand
	name   string
	run    func() error
	took   samples
	times  processorTime
}

// execs measures `true` in containers with a CPU limit of 100m, as a probe: the part of the OCI runtime that works in
// the container's cgroup is under that limit. By hand it is the runtime's own exec. All take turns.
func (b *bench) execs(ctx context.Context, handler string) error {
	servers := b.able(ctx, handler)
	return b.withReference(ctx, handler, limitCPU, func() (err error) {
		p, err := b.floor.up(ctx, &timer{})
		if err != nil {
			return fmt.Errorf("by hand: %w", err)
		}
		defer func() { err = errors.Join(err, b.floor.down(context.WithoutCancel(ctx), p, &timer{})) }()
		turns := []*execTurn{{name: "by hand", run: func() error { return b.floor.exec(p) }}}
		for _, s := range servers {
			p, failed := s.kubelet.upWith(ctx, handler, &timer{}, limitCPU)
			if failed != nil {
				return fmt.Errorf("%s: %w", s.name, failed)
			}
			defer func() { err = errors.Join(err, s.kubelet.down(ctx, p, &timer{})) }()
			run := func() error { return s.kubelet.exec(ctx, p) }
			turns = append(turns, &execTurn{server: s, name: s.name, run: run})
		}
		problem, err := b.takeExecTurns(turns)
		if err != nil {
			return err
		}
		b.printExecs(handler, turns, problem)
		if len(servers) > 0 && servers[0] == b.servers[0] {
			b.judgeExec(handler, &turns[0].took, &turns[1].took)
		}
		return nil
	})
}

// takeExecTurns runs the command in each container in each round. problem is why there are no processor times.
func (b *bench) takeExecTurns(turns []*execTurn) (problem, err error) {
	for round := range warmUp + b.rounds {
		for _, t := range turns {
			if round == 0 || round == warmUp {
				t.took, t.times = samples{}, processorTime{}
			}
			meter, start := startMeter(t.server), time.Now()
			err := t.run()
			t.took.add(execLimited, time.Since(start))
			times, failed := meter.stop() // waits, so that the limit has no effect on the next command
			if err != nil {
				return nil, fmt.Errorf("%s: %w", t.name, err)
			}
			problem = errors.Join(problem, failed)
			for name, took := range times {
				t.times[name] += took
			}
		}
	}
	return problem, nil
}

func (b *bench) printExecs(handler string, turns []*execTurn, problem error) {
	fmt.Printf("### `true` in a container with a CPU limit of 100m, %s, p50 (p99) in ms of %d rounds\n\n|", handler,
		b.rounds)
	var values strings.Builder
	var columns []processorColumn
	for _, t := range turns {
		fmt.Printf(" %s |", t.name)
		fmt.Fprintf(&values, " %s (%s)", ms(t.took.quantile(execLimited, 0.5)), ms(t.took.quantile(execLimited, 0.99)))
		if t.server != nil {
			fmt.Fprintf(&values, ", %s x floor", ratio(&t.took, &turns[0].took, execLimited))
		}
		values.WriteString(" |")
		columns = append(columns, processorColumn{t.name, t.times, b.rounds})
	}
	fmt.Printf("\n|%s\n|%s\n\n", strings.Repeat("---:|", len(turns)), values.String())
	if problem != nil {
		fmt.Printf("No processor time by component: %v\n\n", problem)
		return
	}
	printProcessor("of these commands, "+handler, columns)
}
