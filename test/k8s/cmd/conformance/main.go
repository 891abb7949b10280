// Command conformance runs Kubernetes' own node tests on podd. The tests start their own kubelet and API server.
//
//	conformance [-focus RE] [-skip RE] [-procs N] [-report FILE] BIN TESTS
//
// BIN is the repository's bin/, TESTS the directory of build.sh with e2e_node.test, ginkgo and agnhost. The report has
// one line for each spec, and the messages of those that failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/podd-project/podd/test/k8s/cluster"
	"github.com/podd-project/podd/test/k8s/report"
)

type options struct {
	focus, skip, report, bin, tests string
	procs                           int
}

func main() {
	o := options{}
	flag.StringVar(&o.focus, "focus", `\[NodeConformance\]`, "specs to run, a regular expression")
	flag.StringVar(&o.skip, "skip", `\[Flaky\]|\[Slow\]|\[Serial\]`, "specs to skip, a regular expression")
	flag.StringVar(&o.report, "report", "", "file for the report; empty: standard output")
	flag.IntVar(&o.procs, "procs", 4, "number of specs that run in parallel")
	flag.Parse()
	o.bin, o.tests = flag.Arg(0), flag.Arg(1)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if flag.NArg() != 2 {
		return errors.New("usage: conformance [flags] BIN TESTS")
	}
	dir, err := os.MkdirTemp("/tmp", "podd-k8s-")
	if err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // containers in a user namespace must be able to enter it
		return err
	}
	c, err := cluster.StartBare(ctx, cluster.Options{Dir: dir, Bin: o.bin, Agnhost: o.tests,
		Nodes: []cluster.NodeOptions{{Name: "node1", Kubelet: kubelet, Podd: handler}}})
	if err != nil {
		return err
	}
	specs, err := play(ctx, c, o)
	if err == nil {
		err = report.Write(specs, o.report)
	}
	if err != nil {
		to := filepath.Join(os.TempDir(), "podd-k8s-failed")
		err = errors.Join(err, os.RemoveAll(to), os.CopyFS(to, os.DirFS(filepath.Join(dir, "log"))),
			fmt.Errorf("the logs are in %s", to))
	}
	return errors.Join(err, c.Close())
}

// handler is the handler that the node tests expect to be configured.
const handler = "\n[runtime.handlers.test-handler]\npath = \"runc\"\n"

// gates are the feature gates that podd recommends (contrib/kubernetes/kubelet.yaml).
const gates = "PodAndContainerStatsFromCRI=true"

// kubelet has the keys for which the node tests expect the defaults of Kubernetes, or which they set themselves.
var kubelet = map[string]any{
	"address": "0.0.0.0", "tlsCertFile": "", "tlsPrivateKeyFile": "", "podLogsDir": "", "podPidsLimit": -1,
	"containerLogMaxSize": "10Mi", "containerLogMaxFiles": 5, "containerLogMonitorInterval": "10s",
	"volumeStatsAggPeriod": "10s", "clusterDomain": "",
	"authentication": map[string]any{"webhook": map[string]any{"enabled": false}},
}

// play runs the specs and returns their results. A failed spec is not an error.
func play(ctx context.Context, c *cluster.Cluster, o options) ([]report.Spec, error) {
	n := c.Nodes[0]
	work := n.Path("tests")
	if err := os.Mkdir(work, 0o755); err != nil {
		return nil, err
	}
	program := filepath.Join(work, "e2e_node.test")
	if err := errors.Join(os.Symlink(filepath.Join(o.tests, "e2e_node.test"), program),
		// The tests look for the kubelet in the directory of their program.
		os.Symlink(filepath.Join(o.bin, "kube", "kubelet"), filepath.Join(work, "kubelet"))); err != nil {
		return nil, err
	}
	out, err := os.Create(filepath.Join(c.Dir, "log", "tests.log"))
	if err != nil {
		return nil, err
	}
	defer out.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Hour)
	defer cancel()
	failed := n.Exec(ctx, io.MultiWriter(out, &progress{}), work, filepath.Join(o.tests, "ginkgo"),
		"--procs="+fmt.Sprint(o.procs), "--focus="+o.focus, "--skip="+o.skip, "--no-color", "--timeout=2h",
		"--json-report=report.json", "--output-dir="+work, program, "--",
		"--feature-gates="+gates, "--node-name="+n.Name, "--prepull-images=false",
		"--container-runtime-endpoint=unix://"+n.Socket(), "--container-runtime-process-name=podd",
		"--kubelet-config-file="+n.Path("kubelet.json"), "--report-dir="+filepath.Join(c.Dir, "log"),
		// Empty, because the defaults would move all processes of the machine into another cgroup.
		"--kubelet-flags=--kubelet-cgroups= --system-cgroups= --runtime-cgroups= --node-ip="+n.Addr)
	data, err := os.ReadFile(filepath.Join(work, "report.json"))
	if err != nil {
		return nil, errors.Join(failed, err)
	}
	return report.Read(data)
}
