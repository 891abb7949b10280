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
	networks        []string // see networks.go
	sizes           []int
	others          []int // numbers of other pods of the measurement present
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

// measurement is a part of a run. It removes its pods at its end.
type measurement struct {
	name string
	run  func(*bench, context.Context, string) error
	// networked ones run with each network, others with the first only; long ones only if they are named.
	networked, long bool
}

// measurements are in the order in which they run.
var measurements = []measurement{
	{name: "life", run: (*bench).life, networked: true},
	{name: "churn", run: (*bench).churn, networked: true},
	{name: "exec", run: (*bench).execs},
	{name: "sizes", run: (*bench).sizesAndMemory},
	{name: "restart", run: (*bench).restart},
	{name: "pull", run: (*bench).pull},
	{name: "nri", run: (*bench).nri},
	{name: "files", run: (*bench).files, long: true},
	{name: "present", run: (*bench).present, networked: true, long: true},
	{name: "scale", run: (*bench).scale, long: true},
	{name: "load", run: (*bench).load, long: true},
	{name: "against", run: (*bench).against, long: true},
	{name: "handlers", run: (*bench).compareHandlers, long: true},
}

// names returns those of the measurements that are long, or of those that are not.
func names(long bool) string {
	var list []string
	for _, m := range measurements {
		if m.long == long {
			list = append(list, m.name)
		}
	}
	return strings.Join(list, ", ")
}

func main() {
	p := plan{}
	handlers := flag.String("handlers", "runc,crun", "runtime handlers")
	networks := flag.String("network", masquerade+","+plain, "networks of life, churn and present; the others "+
		"have the first")
	sizes := flag.String("sizes", "20,200,1000", "numbers of containers for sizes, of pods for scale")
	others := flag.String("present", "0,200,1000", "numbers of other pods for the measurement present")
	only := flag.String("only", "", "measurements; empty: "+names(false)+"; the others are "+names(true))
	flag.IntVar(&p.rounds, "rounds", 30, "rounds of life")
	flag.IntVar(&p.callers, "callers", 8, "concurrent callers of churn")
	flag.IntVar(&p.fileCount, "files", 20000, "files of each layer of the measurement files")
	flag.StringVar(&p.peers, "peers", "", "directory of containerd, CRI-O or both, from peers/build.sh; empty: none")
	flag.DurationVar(&p.scaleTime, "time", time.Minute, "duration of scale for each server and size")
	flag.IntVar(&p.probes, "probes", 5, "exec probes a second of scale")
	flag.StringVar(&p.other, "against", "", "another podd, for the measurement against")
	flag.Parse()
	p.handlers, p.only = strings.Split(*handlers, ","), split(*only)
	// When the reader of the report ends early, writes fail. The signal's default would leave servers and pods behind. It
	// does not end the run: it also comes from the connection to a server that is being restarted.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	err := errors.Join(p.parseOnly(), p.parseNetworks(*networks), parseNumbers("-sizes", *sizes, 1, &p.sizes),
		parseNumbers("-present", *others, 0, &p.others))
	if err == nil {
		err = run(ctx, p)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// split splits a list at its commas.
func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

func (p *plan) parseOnly() error {
	for _, name := range p.only {
		if !slices.ContainsFunc(measurements, func(m measurement) bool { return m.name == name }) {
			return fmt.Errorf("-only: %q is none of %s, %s", name, names(false), names(true))
		}
	}
	return nil
}

// parseNumbers adds the numbers of a flag's list.
func parseNumbers(name, list string, least int, into *[]int) error {
	for s := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < least {
			return fmt.Errorf("%s: %q is not a number of %d or more", name, s, least)
		}
		*into = append(*into, n)
	}
	return nil
}

// bench is one run, with all servers started.
type bench struct {
	plan
	network string         // that of new pods
	daemon  *daemon.Daemon // of the first server, podd
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
	b := &bench{plan: p, network: p.networks[0]}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.start(ctx, repo); err != nil {
		return err
	}
	printMachine(p, peerHost{tools: filepath.Join(repo, "bin")})
	for _, m := range measurements {
		if named := slices.Contains(p.only, m.name); !named && (m.long || len(p.only) > 0) {
			continue
		}
		if err := b.measure(ctx, m); err != nil {
			return err
		}
	}
	b.printTargets()
	return nil
}

// measure runs a measurement with each handler, and with each network if that matters.
func (b *bench) measure(ctx context.Context, m measurement) error {
	networks := b.networks
	if !m.networked {
		networks = networks[:1]
	}
	for _, network := range networks {
		if err := b.use(ctx, network); err != nil {
			return fmt.Errorf("use the network %s: %w", network, err)
		}
		for _, h := range b.handlers {
			if err := m.run(b, ctx, h); err != nil {
				return fmt.Errorf("%s with %s, %s: %w", m.name, h, network, err)
			}
		}
	}
	return nil
}

// start starts the registry, podd, the peers and the floor, and pulls the image on every server.
func (b *bench) start(ctx context.Context, repo string) (err error) {
	if b.images, err = serveImages(ctx); err != nil {
		return err
	}
	podd, d, err := b.startPodd(ctx)
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
	b.daemon = d
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
