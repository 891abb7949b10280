package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
)

// againstRuns is how often both builds are started and measured; their memory when they have been idle for idleTime.
const againstRuns = 5

// build is a podd of some commit.
type build struct {
	*server
	daemon *daemon.Daemon
	// memories are the PSS in bytes, ups the pod-up, of each run.
	memories []float64
	ups      []time.Duration
}

// against compares this podd with another build of it, in turn: its memory at rest, before it has a pod, and the time
// of pods, which have the node's network because the times of CNI plugins vary by more.
func (b *bench) against(ctx context.Context, handler string) (err error) {
	if b.other == "" {
		return errors.New("-against names no other podd")
	}
	dir, err := os.MkdirTemp("", "podd-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var builds []*build
	defer func() {
		for _, s := range builds {
			err = errors.Join(err, s.close())
		}
	}()
	for i, binary := range []string{b.other, filepath.Join("bin", "podd")} {
		private := filepath.Join(dir, strconv.Itoa(i))
		if err := copyProgram(binary, private); err != nil {
			return err
		}
		s, err := b.startBuild(ctx, private)
		if s != nil {
			builds = append(builds, s)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", binary, err)
		}
	}
	for range againstRuns {
		if err := b.takeTurns(ctx, handler, builds); err != nil {
			return err
		}
	}
	printAgainst(handler, b.rounds, builds[0], builds[1])
	return nil
}

// copyProgram copies a program to a file that no other daemon runs, which would share its memory. Both builds are
// copied, in the same way: how a file was written decides into how large pieces the kernel caches it, and so how much
// more of it than is used is mapped. Small writes make small pieces.
func copyProgram(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	const piece = 4 << 10
	_, err = io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{in}, make([]byte, piece))
	return err
}

func (b *bench) startBuild(ctx context.Context, binary string) (*build, error) {
	s, d, err := b.startPodd(ctx)
	if s == nil {
		return nil, err
	}
	s.kubelet.network = cri.NamespaceMode_NODE
	d.Use(binary)
	err = errors.Join(err, d.Restart(ctx, d.Stop))
	if err == nil {
		err = s.kubelet.pull(ctx, busybox)
	}
	return &build{server: s, daemon: d}, err
}

// takeTurns is one run: each build is started, rests, and has its turn in each round.
func (b *bench) takeTurns(ctx context.Context, handler string, builds []*build) error {
	for _, s := range builds {
		if err := s.daemon.Restart(ctx, s.daemon.Stop); err != nil {
			return err
		}
	}
	time.Sleep(idleTime)
	for _, s := range builds {
		used, err := s.memory()
		if err != nil {
			return err
		}
		s.memories = append(s.memories, float64(used.daemon))
	}
	took := make([]samples, len(builds))
	for round := range warmUp + b.rounds {
		if round == warmUp {
			took = make([]samples, len(builds))
		}
		for i := range builds {
			i = (i + round) % len(builds) // each is as often the first
			if err := builds[i].live(ctx, handler, &took[i]); err != nil {
				return err
			}
		}
	}
	for i, s := range builds {
		s.ups = append(s.ups, took[i].quantile(podUp, 0.5))
	}
	return nil
}

func printAgainst(handler string, rounds int, other, this *build) {
	fmt.Printf("### Two builds, %s, %d runs of %d rounds in turn\n\n| | the other | this | difference |\n"+
		"|---|---:|---:|---:|\n", handler, againstRuns, rounds)
	for i := range againstRuns {
		fmt.Printf("| pod-up, p50 in ms | %s | %s | %+.1f |\n", ms(other.ups[i]), ms(this.ups[i]),
			float64((this.ups[i]-other.ups[i]).Microseconds())/1000)
	}
	for i := range againstRuns {
		fmt.Printf("| daemon PSS at rest, MB | %.1f | %.1f | %+.1f |\n", other.memories[i]/1e6, this.memories[i]/1e6,
			(this.memories[i]-other.memories[i])/1e6)
	}
	fmt.Printf("\nMedians: pod-up %+.1f ms, PSS %+.1f MB\n\n",
		float64((median(this.ups)-median(other.ups)).Microseconds())/1000,
		(median(this.memories)-median(other.memories))/1e6)
}

func median[T time.Duration | float64](all []T) T {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}
