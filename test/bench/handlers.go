package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// handlerPods pods of each handler rest together, handlerRuns times, for their memory.
	handlerPods, handlerRuns = 5, 3
	// outputBytes are printed by the command execOutput.
	outputBytes = 8 << 20
	execOutput  = "ExecSync of 8 MiB of output"
)

// handlerTurn has the measurements of one handler.
type handlerTurn struct {
	name string
	took samples
	// cpu is the CPU time of an up and a down, bytes the PSS of one of handlerPods pods at rest.
	cpu   []time.Duration
	bytes []float64
}

// compareHandlers compares all handlers of the run on podd, in turn. The floor cannot make their pods by hand.
func (b *bench) compareHandlers(ctx context.Context, handler string) (err error) {
	if handler != b.handlers[0] {
		return nil // the first call has compared all
	}
	podd, turns := b.servers[0], make([]handlerTurn, len(b.handlers))
	meter, err := newHandlerMeter(podd)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, meter.close()) }()
	for round := range warmUp + b.rounds {
		for i := range turns {
			t := &turns[(i+round)%len(turns)] // each is as often the first
			if round <= warmUp {
				*t = handlerTurn{name: b.handlers[(i+round)%len(turns)]}
			}
			if err := t.live(ctx, podd, meter); err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
		}
	}
	for range handlerRuns {
		for i := range turns {
			if err := turns[i].rest(ctx, b); err != nil {
				return fmt.Errorf("%s: %w", turns[i].name, err)
			}
		}
	}
	printHandlers(b.rounds, turns)
	return nil
}

// live is the life of one pod.
func (t *handlerTurn) live(ctx context.Context, s *server, meter *handlerMeter) error {
	var up, down timer
	before := meter.read()
	p, err := s.kubelet.up(ctx, t.name, &up)
	if err != nil {
		return err
	}
	used := meter.read() - before
	if err := measureExec(&t.took, func() error { return s.kubelet.exec(ctx, p) }); err != nil {
		return err
	}
	start := time.Now()
	r, err := s.kubelet.runtime.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: p.container, Timeout: 60,
		Cmd: []string{"head", "-c", strconv.Itoa(outputBytes), "/dev/zero"}})
	if err != nil || len(r.Stdout) != outputBytes {
		return fmt.Errorf("output of %d bytes, want %d: %w", len(r.GetStdout()), outputBytes, err)
	}
	t.took.add(execOutput, time.Since(start))
	time.Sleep(settled) // for what ends after the commands
	before = meter.read()
	if err := s.kubelet.down(ctx, p, &down); err != nil {
		return err
	}
	time.Sleep(settled) // for what ends after the pod
	t.cpu = append(t.cpu, used+meter.read()-before)
	t.took.addAll(&up, podUp)
	t.took.addAll(&down, podDown)
	return nil
}

// rest measures the memory of pods that have been idle.
func (t *handlerTurn) rest(ctx context.Context, b *bench) (err error) {
	podd := b.servers[0]
	var pods []criPod
	defer func() { err = errors.Join(err, b.downAll(ctx, podd, pods)) }()
	for range handlerPods {
		p, err := podd.kubelet.up(ctx, t.name, &timer{})
		if err != nil {
			return err
		}
		pods = append(pods, p)
	}
	time.Sleep(idleTime)
	used, err := podd.memory()
	t.bytes = append(t.bytes, float64(used.others)/handlerPods)
	return err
}

func printHandlers(rounds int, turns []handlerTurn) {
	fmt.Printf("### Handlers in turn, p50 of %d rounds; memory of %d runs with %d pods; the last against the first\n\n| |",
		rounds, handlerRuns, handlerPods)
	for i := range turns {
		fmt.Printf(" %s |", turns[i].name)
	}
	fmt.Print(" ratio |\n|---|" + strings.Repeat("---:|", len(turns)+1) + "\n")
	row := func(name string, of func(*handlerTurn) float64) {
		fmt.Printf("| %s |", name)
		for i := range turns {
			fmt.Printf(" %.1f |", of(&turns[i]))
		}
		fmt.Printf(" %.2f |\n", of(&turns[len(turns)-1])/of(&turns[0]))
	}
	for _, name := range turns[0].took.names {
		row(name+", ms", func(t *handlerTurn) float64 { return milliseconds(t.took.quantile(name, 0.5)) })
	}
	row("CPU time of up and down, ms", func(t *handlerTurn) float64 { return milliseconds(median(t.cpu)) })
	row("PSS of all processes of a pod, MB", func(t *handlerTurn) float64 { return median(t.bytes) / 1e6 })
	fmt.Println()
}

// handlerMeter reads the CPU time of a server with its programs and pods from two cgroups, because others work on the
// machine. It moves the daemon into one of them.
type handlerMeter struct{ daemon, pods string }

func newHandlerMeter(s *server) (*handlerMeter, error) {
	root := "/sys/fs/cgroup"
	if exists(filepath.Join(root, "cpuacct")) {
		root = filepath.Join(root, "cpuacct")
	}
	pods := filepath.Join(root, s.kubelet.cgroupParent)
	m := &handlerMeter{daemon: pods + "-daemon", pods: pods}
	return m, errors.Join(os.Mkdir(m.daemon, 0o755), moveTo(m.daemon, strconv.Itoa(s.process.Pid())))
}

// moveTo moves a process into a cgroup.
func moveTo(cgroup, pid string) error {
	return os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte(pid), 0)
}

func (m *handlerMeter) read() (total time.Duration) {
	for _, dir := range []string{m.daemon, m.pods} {
		var ns, us time.Duration
		v1, _ := os.ReadFile(filepath.Join(dir, "cpuacct.usage"))
		v2, _ := os.ReadFile(filepath.Join(dir, "cpu.stat"))
		_, _ = fmt.Sscan(string(v1), (*int64)(&ns))
		_, _ = fmt.Sscanf(string(v2), "usage_usec %d", (*int64)(&us))
		total += ns + us*1000
	}
	return total
}

// close moves all of the cgroup out of it and removes it.
func (m *handlerMeter) close() error {
	list, err := os.ReadFile(filepath.Join(m.daemon, "cgroup.procs"))
	for pid := range strings.FieldsSeq(string(list)) {
		_ = moveTo(filepath.Dir(m.daemon), pid) // it may have ended
	}
	return errors.Join(err, os.Remove(m.daemon))
}
