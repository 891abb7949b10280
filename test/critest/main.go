// Command critest runs the CRI validation suite of Kubernetes (sigs.k8s.io/cri-tools) against a private podd and the
// test registry, once for each runtime handler, and then checks for leaks on the machine.
//
//	go run ./test/critest [-handlers runc,crun] [-rounds N] [-nodes N] [-focus REGEXP] [-sample N] [-seed N] [-out DIR] \
//		[-critest FILE] [-- critest flags]
//
// A round is all specs in random order, and then the streaming specs again over WebSocket; critest's default is SPDY.
// Ginkgo spreads the specs over processes that it calls nodes, and runs those marked as serial one after the other.
//
// The specs in skip.txt are skipped, those in skip-gvisor.txt with gVisor's handlers, and those in skip-vm.txt with
// that of virtual machines; the files have the reasons.
// Log and JUnit report of each run are in DIR (default bin/critest.d).
package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/podd-project/podd/test/daemon"
	"github.com/podd-project/podd/test/images"
	"github.com/podd-project/podd/test/leak"
	"github.com/podd-project/podd/test/sample"
)

//go:embed skip.txt
var skipFile string

//go:embed skip-gvisor.txt
var skipGVisor string

//go:embed skip-vm.txt
var skipVM string

// skips returns the names of the specs to skip with a handler, in the form of skip.txt.
func skips(handler string) string {
	if strings.HasPrefix(handler, "gvisor") {
		return skipFile + "\n" + skipGVisor
	}
	if strings.HasPrefix(handler, "vm") {
		return skipFile + "\n" + skipVM
	}
	return skipFile
}

// suite is one invocation of this program.
type suite struct {
	repo, out, focus, program string
	rounds, nodes, seed       int
	sample                    int // every how many-th spec runs
	args                      []string
	registry                  *images.Registry
}

func main() {
	handlers := flag.String("handlers", "runc,crun", "runtime handlers, each tested in a run of its own")
	rounds := flag.Int("rounds", 1, "number of rounds, each in another order")
	nodes := flag.Int("nodes", 4, "number of specs that run at the same time")
	focus := flag.String("focus", "", "specs to run, a regular expression; empty: all")
	every := flag.Int("sample", 1, "run every N-th spec, which ones depends on "+sample.Variable)
	seed := flag.Int("seed", 0, "seed for the order of the specs; 0: random")
	out := flag.String("out", "bin/critest.d", "directory for logs and reports")
	program := flag.String("critest", "bin/critest", "the program critest")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	s := &suite{
		focus: *focus, rounds: *rounds, nodes: *nodes, sample: *every, seed: *seed, out: *out, program: *program,
		args: flag.Args(),
	}
	if err := run(ctx, s, strings.Split(*handlers, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "critest:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s *suite, handlers []string) (err error) {
	if s.repo, err = daemon.Repository(); err != nil {
		return err
	}
	if s.out, err = filepath.Abs(s.out); err != nil {
		return err
	}
	if s.program, err = filepath.Abs(s.program); err != nil {
		return err
	}
	if err := os.MkdirAll(s.out, 0o755); err != nil {
		return err
	}
	setup := exec.CommandContext(ctx, filepath.Join(s.repo, "test/host/setup.sh"))
	setup.Stdout, setup.Stderr = os.Stdout, os.Stderr
	if err := setup.Run(); err != nil {
		return fmt.Errorf("set up the host: %w", err)
	}
	path, err := images.Build(ctx)
	if err != nil {
		return err
	}
	if s.registry, err = images.Listen(path, "127.0.0.1:0"); err != nil {
		return err
	}
	defer s.registry.Close()
	var errs []error
	for _, h := range handlers {
		errs = append(errs, s.handler(ctx, h))
	}
	return errors.Join(errs...)
}

// handler tests one runtime handler on a daemon of its own.
func (s *suite) handler(ctx context.Context, handler string) error {
	d, err := daemon.New(daemon.Options{Handler: handler, Registry: s.registry})
	if err != nil {
		return err
	}
	before, err := leak.Take(d.Leak())
	if err != nil {
		return err
	}
	if err := d.Start(ctx); err != nil {
		return errors.Join(err, d.Close())
	}
	var errs []error
	for _, p := range s.passes(handler) {
		begin := time.Now()
		failed := s.pass(ctx, d, p)
		fmt.Printf("critest with %s: %s in %v, log in %s\n", p.name, verdict(failed), time.Since(begin).Round(time.Second),
			s.log(p.name))
		errs = append(errs, failed)
	}
	errs = append(errs, keep(d.LogFile(), filepath.Join(s.out, handler+".podd.log")))
	for _, a := range d.Alarms() {
		errs = append(errs, fmt.Errorf("in podd's log:\n%s", a))
	}
	errs = append(errs, d.Close())
	left, err := before.Wait(context.WithoutCancel(ctx), d.Leak())
	for _, l := range left {
		errs = append(errs, fmt.Errorf("leak: %s", l))
	}
	return errors.Join(append(errs, err)...)
}

// pass runs the specs of a pass, or the sample of them.
func (s *suite) pass(ctx context.Context, d *daemon.Daemon, p pass) error {
	if s.sample == 1 {
		_, err := s.critest(ctx, d, p)
		return err
	}
	dry := p
	dry.name, dry.dry = p.name+"-list", true
	all, err := s.critest(ctx, d, dry)
	if err != nil {
		return err
	}
	names := sampled(all, s.sample, p.handler)
	p.focus = " (" + regexpOf(names) + ")$" // ginkgo puts the name of the suite before that of the spec
	ran, err := s.critest(ctx, d, p)
	if got := len(ran.selected()); err == nil && got != len(names) {
		err = fmt.Errorf("critest selected %d specs, want the %d of the sample", got, len(names))
	}
	return err
}

// pass is one invocation of critest.
type pass struct {
	handler, name, focus string
	dry                  bool // only list the specs
	args                 []string
}

// passes are the rounds of one handler.
func (s *suite) passes(handler string) []pass {
	var passes []pass
	for i := range s.rounds {
		name := fmt.Sprintf("%s-%d", handler, i+1)
		passes = append(passes, pass{handler: handler, name: name, focus: s.focus, args: s.args})
		if s.focus == "" && s.sample == 1 {
			passes = append(passes, pass{handler: handler, name: name + "-websocket", focus: "Streaming", args: append([]string{
				"-websocket-exec", "-websocket-attach", "-websocket-portforward",
			}, s.args...)})
		}
	}
	return passes
}

func verdict(err error) string {
	if err != nil {
		return "FAILED"
	}
	return "passed"
}

func (s *suite) report(pass string) string { return filepath.Join(s.out, pass+".xml") }

func (s *suite) log(pass string) string { return filepath.Join(s.out, pass+".log") }

// critest runs the suite, prints its summary and returns its report; the whole output goes to the log.
func (s *suite) critest(ctx context.Context, d *daemon.Daemon, p pass) (r report, err error) {
	conf := d.Path("crictl.yaml")
	if err := os.WriteFile(conf, []byte("runtime-endpoint: unix://"+d.Socket+"\nimage-endpoint: unix://"+d.Socket+"\n"),
		0o644); err != nil {
		return r, err
	}
	log, err := os.Create(s.log(p.name))
	if err != nil {
		return r, err
	}
	defer log.Close()
	var out bytes.Buffer
	binary, err := s.testBinary()
	if err != nil {
		return r, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.repo, "bin", "ginkgo"), slices.Concat(s.nodesOf(p), []string{
		"--no-color", "--focus", p.focus, "--skip", regexpOf(skipNames(skips(p.handler))), "--poll-progress-after", "2m",
		"--output-dir", s.out, "--junit-report", filepath.Base(s.report(p.name)),
	}, s.order(), []string{binary, "--",
		"--config", conf, "--runtime-endpoint", "unix://" + d.Socket, "--image-endpoint", "unix://" + d.Socket,
	}, s.nriSocket(ctx, d), p.args)...)
	cmd.Stdout = io.MultiWriter(log, &out)
	cmd.Stderr = cmd.Stdout
	failed := cmd.Run()
	if !p.dry || failed != nil {
		fmt.Print(summary(out.String()))
	}
	if r, err = readReport(s.report(p.name)); err != nil {
		return r, errors.Join(failed, err)
	}
	return r, errors.Join(failed, r.printSkipped(p.handler), r.checkSkips(skips(p.handler)))
}

// nodesOf are the flags for the processes of a pass. A list is made by one.
func (s *suite) nodesOf(p pass) []string {
	if p.dry {
		return []string{"--dry-run"}
	}
	nodes, timeout := s.limits(p.handler, runtime.NumCPU())
	return []string{"--nodes", fmt.Sprint(nodes), "--timeout", timeout.String()}
}

// limits returns how many specs of a handler run at the same time, and for how long all may run. An emulated machine
// uses a whole processor while it boots, which takes some ten times as long.
func (s *suite) limits(handler string, processors int) (nodes int, timeout time.Duration) {
	if handler == "vm-qemu" {
		return min(s.nodes, processors), 2 * time.Hour
	}
	return s.nodes, 30 * time.Minute
}

func (s *suite) order() []string {
	if s.seed == 0 {
		return nil
	}
	return []string{"--seed", fmt.Sprint(s.seed)}
}

// testBinary returns a name of critest that ends in .test: ginkgo takes other names for packages to compile.
func (s *suite) testBinary() (string, error) {
	name := filepath.Join(s.out, "critest.test")
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return name, os.Symlink(s.program, name)
}

// nriSocket is the flag for the specs of NRI, which critest skips without it. Releases until 1.36 have neither.
func (s *suite) nriSocket(ctx context.Context, d *daemon.Daemon) []string {
	usage, _ := exec.CommandContext(ctx, s.program, "--help").CombinedOutput() // whose exit code says nothing
	if !bytes.Contains(usage, []byte("-nri-socket")) {
		return nil
	}
	return []string{"--nri-socket", d.Path("run", "nri", "nri.sock")}
}

// regexpOf returns a regular expression for names of specs, or parts of them.
func regexpOf(names []string) string {
	quoted := make([]string, len(names))
	for i := range names {
		quoted[i] = regexp.QuoteMeta(names[i])
	}
	return strings.Join(quoted, "|")
}

// skipNames are the names of a skip file. Each line has a spec's name or part of it, and the reason after a #.
func skipNames(file string) (names []string) {
	for line := range strings.Lines(file) {
		name, _, _ := strings.Cut(line, "#")
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// summary returns the end of critest's output: the failures, if any, and the count.
func summary(out string) string {
	if i := strings.Index(out, "Summarizing "); i >= 0 {
		return out[i:]
	}
	if i := strings.Index(out, "\nRan "); i >= 0 {
		line, _, _ := strings.Cut(out[i+1:], "\n")
		rest := out[i+1+len(line):]
		count, _, _ := strings.Cut(strings.TrimLeft(rest, "\n"), "\n")
		return line + "\n" + count + "\n"
	}
	return out[max(0, len(out)-4000):]
}

// keep copies the daemon's log, whose directory is removed.
func keep(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}
