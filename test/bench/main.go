package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/test/daemon"
)

// plan says what to measure.
type plan struct {
	handlers        []string
	sizes           []int
	rounds, callers int
	peers           string
	only            []string
	// scaleTime and probes are the duration and the exec probes a second of the measurement scale.
	scaleTime time.Duration
	probes    int
	// fileCount is the number of files of each layer of the measurement files.
	fileCount int
	// other is the podd that against compares this one with.
	other string
}

// measurements are in the order in which they run. Each removes its pods at its end. Those that are long run only if
// they are named.
var measurements = []struct {
	name string
	run  func(*bench, context.Context, string) error
	long bool
}{
	{"life", (*bench).life, false},
	{"churn", (*bench).churn, false},
	{"sizes", (*bench).sizesAndMemory, false},
	{"restart", (*bench).restart, false},
	{"pull", (*bench).pull, false},
	{"nri", (*bench).nri, false},
	{"files", (*bench).files, true},
	{"pool", (*bench).pool, true},
	{"scale", (*bench).scale, true},
	{"load", (*bench).load, true},
	{"against", (*bench).against, true},
}

func main() {
	p := plan{}
	handlers := flag.String("handlers", "runc,crun", "runtime handlers")
	sizes := flag.String("sizes", "20,200,1000", "numbers of containers for sizes, of pods for scale")
	only := flag.String("only", "", "measurements: life, churn, sizes, restart, pull, nri, files, pool, scale, load, "+
		"against; empty: all but the last five")
	flag.IntVar(&p.rounds, "rounds", 30, "rounds of life")
	flag.IntVar(&p.callers, "callers", 8, "concurrent callers of churn")
	flag.IntVar(&p.fileCount, "files", 20000, "files of each layer of the measurement files")
	flag.StringVar(&p.peers, "peers", "", "directory of containerd, CRI-O or both, from peers/build.sh; empty: none")
	flag.DurationVar(&p.scaleTime, "time", time.Minute, "duration of scale for each server and size")
	flag.IntVar(&p.probes, "probes", 5, "exec probes a second of scale")
	flag.StringVar(&p.other, "against", "", "another podd, for the measurement against")
	flag.Parse()
	p.handlers, p.only = strings.Split(*handlers, ","), strings.FieldsFunc(*only, func(r rune) bool { return r == ',' })
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	err := p.parseSizes(*sizes)
	if err == nil {
		err = run(ctx, p)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (p *plan) parseSizes(list string) error {
	for s := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return fmt.Errorf("-sizes: %q is not a number of containers", s)
		}
		p.sizes = append(p.sizes, n)
	}
	return nil
}

// bench is one run, with all servers started.
type bench struct {
	plan
	servers []*server
	floor   *floor
	images  *imageSource
	targets []target
}

func run(ctx context.Context, p plan) (err error) {
	repo, err := daemon.Repository()
	if err != nil {
		return err
	}
	setup := exec.CommandContext(ctx, filepath.Join(repo, "test/host/setup.sh"))
	if out, err := setup.CombinedOutput(); err != nil {
		return fmt.Errorf("set up the host: %w: %s", err, out)
	}
	b := &bench{plan: p}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.start(ctx, repo); err != nil {
		return err
	}
	printMachine(p)
	for _, m := range measurements {
		if named := slices.Contains(p.only, m.name); !named && (m.long || len(p.only) > 0) {
			continue
		}
		for _, h := range p.handlers {
			if err := m.run(b, ctx, h); err != nil {
				return fmt.Errorf("%s with %s: %w", m.name, h, err)
			}
		}
	}
	b.printTargets()
	return nil
}

// start starts the registry, podd, the peers and the floor, and pulls the image on every server.
func (b *bench) start(ctx context.Context, repo string) (err error) {
	if b.images, err = serveImages(ctx); err != nil {
		return err
	}
	podd, d, err := startPodd(ctx, b.images.registry)
	if podd != nil {
		b.servers = append(b.servers, podd)
	}
	if err != nil {
		return err
	}
	if b.peers != "" {
		host := peerHost{bin: b.peers, tools: filepath.Join(repo, "bin"), cni: d.Path("net.d"), registry: b.images.registry}
		for _, known := range []struct {
			program string
			start   func(context.Context, peerHost) (*server, error)
		}{{"containerd", startContainerd}, {"crio", startCRIO}} {
			if !exists(filepath.Join(b.peers, known.program)) {
				continue
			}
			s, err := known.start(ctx, host)
			if s != nil {
				b.servers = append(b.servers, s)
			}
			if err != nil {
				return err
			}
		}
	}
	for _, s := range b.servers {
		if err := s.kubelet.pull(ctx, busybox); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	b.floor, err = newFloor(repo, d)
	return err
}

func (b *bench) close() error {
	var errs []error
	if b.floor != nil {
		errs = append(errs, b.floor.close())
	}
	for _, s := range slices.Backward(b.servers) { // podd last: the network configuration is in its directory
		errs = append(errs, s.close())
	}
	if b.images != nil {
		errs = append(errs, b.images.close())
	}
	return errors.Join(errs...)
}
