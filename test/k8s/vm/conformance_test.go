package vm

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/podd-project/podd/test/k8s/cluster"
	"github.com/podd-project/podd/test/k8s/report"
)

var (
	resultsFile = flag.String("results", "", "`file` with the results of TestNodeConformance, which runs if it is set")
	limit       = flag.Duration("limit", 40*time.Minute, "time after which TestNodeConformance ends; the next run goes on")
	focus       = flag.String("focus", `\[NodeConformance\]`, "specs of TestNodeConformance, a regular expression")
	procs       = flag.Int("procs", 8, "`number` of specs of TestNodeConformance that run in parallel")
	skip        = flag.String("skip", `\[Flaky\]|\[Slow\]|\[Serial\]`, "specs that it leaves out, a regular expression")
)

// comment is at the start of the file of results.
const comment = `The specs of Kubernetes 1.37 labelled NodeConformance, without those labelled Flaky, Slow or Serial, on
the node of make test-k8s-vm: the day of the last run of each, the result, the duration in seconds on an
emulated machine. Made by make conformance-vm, which runs only specs that have not passed yet.`

// TestNodeConformance has Kubernetes' end-to-end tests use the machine as a node: those that every node must pass. The
// results of several runs are collected in a file, because the machine is emulated; what has passed does not run again.
func TestNodeConformance(t *testing.T) {
	if *resultsFile == "" {
		t.Skip("without the flag -results; make conformance-vm")
	}
	results, err := report.Load(*resultsFile)
	if err != nil {
		t.Fatal(err)
	}
	tests := conformance(t)
	join, _ := steps(t)
	l := start(t, cluster.Options{Agnhost: tests})
	wanted := names(l.specs(tests, "--dry-run"))
	l.prepare()
	l.follow(join)
	l.t("ready", lab.ready)
	if err := l.m.Proxy(); err != nil {
		t.Fatal(err)
	}
	if err := l.c.AddDNS(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	args := []string{"--procs=" + strconv.Itoa(*procs), "--timeout=" + limit.String()}
	if passed := results.Passed(); len(passed) > 0 {
		args = append(args, "--skip=(?:"+strings.Join(quoted(passed), "|")+")$")
	}
	results.Add(time.Now(), l.specs(tests, args...))
	if err := results.Save(*resultsFile, comment); err != nil {
		t.Fatal(err)
	}
	passed := results.Passed()
	left := slices.DeleteFunc(wanted, func(name string) bool { return slices.Contains(passed, name) })
	if len(left) > 0 {
		t.Errorf("%d specs have passed, these have not, a further run goes on with them:\n%s", len(passed),
			strings.Join(left, "\n"))
	}
}

// specs runs ginkgo with Kubernetes' tests on the host of the control plane, and returns their results. Specs that fail
// are no error.
func (l lab) specs(tests string, args ...string) []report.Spec {
	l.Helper()
	log, err := os.OpenFile(filepath.Join(l.c.Dir, "log", "e2e.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		l.Fatal(err)
	}
	defer log.Close()
	ctx, cancel := context.WithTimeout(l.Context(), *limit+10*time.Minute)
	defer cancel()
	const file = "report.json"
	args = append([]string{"--focus=" + *focus, "--skip=" + *skip, "--no-color", "--json-report=" + file,
		"--output-dir=" + l.c.Dir}, args...)
	failed := l.c.Control.Exec(ctx, log, l.c.Dir, filepath.Join(tests, "ginkgo"), append(args,
		filepath.Join(tests, "e2e.test"), "--", "--kubeconfig="+l.c.Kubeconfig(), "--provider=skeleton", "--num-nodes=1",
		"--node-os-distro=debian", "--disable-log-dump=true", "--dump-logs-on-failure=false")...)
	data, err := os.ReadFile(filepath.Join(l.c.Dir, file))
	if err != nil {
		l.Fatal(errors.Join(failed, err))
	}
	specs, err := report.Read(data)
	if err != nil {
		l.Fatal(fmt.Errorf("%w, %w", failed, err))
	}
	return specs
}

func names(specs []report.Spec) (list []string) {
	for _, s := range specs {
		list = append(list, s.Name())
	}
	return list
}

func quoted(texts []string) (list []string) {
	for _, t := range texts {
		list = append(list, regexp.QuoteMeta(t))
	}
	return list
}
