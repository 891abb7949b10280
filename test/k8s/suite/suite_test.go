// Package suite tests podd through Kubernetes. It starts a control plane and two kubelets, each with a podd of its own,
// and runs scenarios with client-go and kubectl.
//
// The scenarios on node1 run in parallel. node2 has feature gates and a static CPU manager; its scenarios, among them
// those that disturb a node, run one after the other in TestSecondNode.
package suite

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/podd-project/podd/test/k8s/cluster"
)

const (
	node1 = "node1"
	node2 = "node2"
)

// c is the cluster, started once for all tests.
var c *cluster.Cluster

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite failed:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if os.Geteuid() != 0 {
		return 1, errors.New("the Kubernetes tests run containers and need root")
	}
	bin, err := filepath.Abs("../../../bin")
	if err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("/tmp", "podd-k8s-")
	if err != nil {
		return 1, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // containers in a user namespace must be able to enter it
		return 1, err
	}
	before := filepath.Join(filepath.Dir(dir), filepath.Base(dir)+".before.json")
	defer os.Remove(before)
	if err := quiet(bin+"/leak", "take", before); err != nil {
		return 1, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	began := time.Now()
	o, err := options(dir, bin)
	if err != nil {
		return 1, err
	}
	if c, err = cluster.Start(ctx, o); err != nil {
		return 1, err
	}
	fmt.Printf("cluster up in %v, in %s\n", time.Since(began).Round(100*time.Millisecond), dir)
	for _, n := range c.Nodes {
		if _, err := n.Run(bin+"/leak", "take", n.Path("before.json")); err != nil {
			return 1, errors.Join(err, c.Close())
		}
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() { // on ^C the tests do not end by themselves
		<-ctx.Done()
		select {
		case <-ended: // and then stop has ended ctx
		default:
			_ = c.Close()
			os.Exit(1)
		}
	}()
	code = m.Run()
	if code != 0 && os.Getenv("PODD_KEEP") != "" {
		return code, fmt.Errorf("kept: KUBECONFIG=%s; remove it with: bin/k8s down %s", c.Kubeconfig(), dir)
	}
	if code != 0 {
		saveLogs(dir)
	}
	var errs []error
	if code == 0 { // a scenario that failed may have left its pods
		errs = append(errs, leftOnNodes(bin))
	}
	errs = append(errs, c.Close(), quiet(bin+"/leak", "diff", before, "-wait", "20s", "-only", dir, "-only", c.Net.Link,
		"-only", filepath.Base(dir)))
	return code, errors.Join(errs...)
}

// manifests is the directory of podd's files for Kubernetes.
const manifests = "../../../contrib/kubernetes/"

// options returns the options of the two nodes. The kubelet of node2 has the configuration that podd recommends, with
// additions.
func options(dir, bin string) (cluster.Options, error) {
	data, err := os.ReadFile(manifests + "kubelet.yaml")
	if err != nil {
		return cluster.Options{}, err
	}
	var kubelet map[string]any
	if err := yaml.UnmarshalStrict(data, &kubelet); err != nil {
		return cluster.Options{}, fmt.Errorf("kubelet.yaml: %w", err)
	}
	gates, ok := kubelet["featureGates"].(map[string]any)
	if !ok || kubelet["containerRuntimeEndpoint"] != "unix:///run/podd/podd.sock" {
		return cluster.Options{}, fmt.Errorf("kubelet.yaml lacks featureGates or podd's socket: %v", kubelet)
	}
	delete(kubelet, "containerRuntimeEndpoint") // the podd of a test has another socket
	gates["EventedPLEG"] = true
	kubelet["cpuManagerPolicy"], kubelet["reservedSystemCPUs"] = "static", "0"
	return cluster.Options{Dir: dir, Bin: bin, Nodes: []cluster.NodeOptions{
		{Name: node1},
		{Name: node2, Podd: "pinned_images = [\"" + nginx + "\"]\n", Kubelet: kubelet},
	}, Addons: []string{"multus", "kube-state-metrics", "prometheus", "metrics-server", "node-exporter",
		"local-path-provisioner"}}, nil
}

// leftOnNodes returns an error for what the pods left in the nodes' namespaces: mounts, links, packet filter rules,
// cgroups, addresses. All pods are deleted by then, except stopped sandboxes that a kubelet keeps for a while.
func leftOnNodes(bin string) error {
	var errs []error
	for _, n := range c.Nodes {
		errs = append(errs, n.Empty())
		out, err := n.Run(bin+"/leak", "diff", n.Path("before.json"), "-wait", "10s", "-only", n.Path(), "-only", "veth",
			"-only", "/run/netns/podd-", "-only", n.PodCIDR[:len(n.PodCIDR)-len("0/24")], "-only", "CNI-",
			"-only", n.Cgroup()+"/kubepods/pod", "-only", n.Cgroup()+"/kubepods/burstable/pod",
			"-only", n.Cgroup()+"/kubepods/besteffort/pod")
		if err == nil {
			continue
		}
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "left over:") && !standing(line) {
				errs = append(errs, fmt.Errorf("on %s: %s", n.Name, strings.TrimSpace(line)))
			}
		}
	}
	return errors.Join(errs...)
}

// standing reports whether a line is about something new that belongs to no pod: the CNI plugin's bridge, gVisor's
// empty network namespace for all its gofers, a podd that was restarted, the boot id of a node that was rebooted, and
// kube-proxy's rules, which disappear some time after their services.
func standing(line string) bool {
	for _, own := range []string{" cni0", "/run/runtimes/gvisor/null-netns ", "/bin/podd --config", "/random/boot_id",
		" -A KUBE-", " -N KUBE-"} {
		if strings.Contains(line, own) {
			return true
		}
	}
	return false
}

// saveLogs copies the components' logs, to find the cause of a failure.
func saveLogs(dir string) {
	to := filepath.Join(os.TempDir(), "podd-k8s-failed")
	if err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(filepath.Join(dir, "log")))); err != nil {
		fmt.Fprintln(os.Stderr, "failed to copy the logs:", err)
		return
	}
	fmt.Println("the logs of all components are in", to)
}

// quiet runs a command; its output is in the error if it fails.
func quiet(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(append([]string{filepath.Base(name)}, args...), " "), err,
			bytes.TrimSpace(out))
	}
	return nil
}
