package vm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podd-project/podd/test/k8s/cluster"
)

// node is the name of the virtual machine and of the Kubernetes node that it becomes.
const node = "vm1"

// lab is a control plane and the machine.
type lab struct {
	*testing.T
	c *cluster.Cluster
	m *cluster.Machine
}

// t runs a subtest. What follows needs it.
func (l lab) t(name string, f func(lab)) {
	if !l.Run(name, func(t *testing.T) { f(lab{t, l.c, l.m}) }) {
		l.FailNow()
	}
}

// start starts the control plane and boots the machine, which has the programs on its payload disk.
func start(t *testing.T, o cluster.Options, programs ...string) lab {
	t.Helper()
	bin, err := filepath.Abs("../../../bin")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "podd-k8s-vm-")
	if err != nil {
		t.Fatal(err)
	}
	o.Dir, o.Bin, o.Kubeadm = dir, bin, true
	c, err := cluster.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	l := lab{t, c, c.NewMachine(node, 1)}
	t.Cleanup(l.end)
	began := time.Now()
	system, err := exec.Command("../../vm/rootfs.sh").Output()
	if err != nil {
		t.Fatalf("build the machine: %v", err)
	}
	payload := filepath.Join(dir, "payload.img")
	l.local("./payload.sh", append([]string{payload, l.m.Images(), node, l.m.Addr, l.m.Gateway()}, programs...)...)
	script, err := filepath.Abs("../../vm/qemu.sh")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.m.Start(t.Context(), script, strings.TrimSpace(string(system)), payload); err != nil {
		t.Fatal(err)
	}
	t.Logf("machine up in %v: %s", time.Since(began).Round(time.Second), l.run(time.Minute, "uname -r"))
	return l
}

// end saves the logs of a test that failed, and removes everything.
func (l lab) end() {
	if l.Failed() {
		for _, unit := range []string{"podd", "kubelet", "node"} {
			out, err := l.m.Run("journalctl -u "+unit+" -o short-monotonic --no-hostname | tail -n 60", time.Minute)
			l.Logf("journal of %s: %v\n%s", unit, err, out)
		}
	}
	if err := l.c.Close(); err != nil {
		l.Errorf("Close() = %v", err)
	}
}

// prepare gives the machine what contrib/kubernetes expects: runc, CNI plugins, the kubelet and kubeadm, as their
// packages install them; and a registry, because it reaches no other.
func (l lab) prepare() {
	l.Helper()
	l.run(2*time.Minute, `set -e
ln -s /payload/bin/runc /payload/bin/crictl /usr/local/bin/
ln -s /payload/bin/kube /usr/local/bin/kubelet
ln -s /payload/bin/kube /usr/local/bin/kubeadm
mkdir -p /opt/cni /etc/containers /usr/local/lib/systemd/system
ln -s /payload/cni /opt/cni/bin
cp -r /payload/registry/* /etc/containers/
cp /payload/contrib/crictl.yaml /etc/
cp /payload/kubelet.service /usr/local/lib/systemd/system/
systemctl daemon-reload
systemctl enable kubelet`)
}

// run runs a command in the machine, which must succeed.
func (l lab) run(limit time.Duration, command string) string {
	l.Helper()
	out, err := l.m.Run(command, limit)
	if err != nil {
		l.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// local runs a command on this machine, which must succeed, and returns its output.
func (l lab) local(program string, args ...string) string {
	l.Helper()
	out, err := output(l.Context(), program, args...)
	if err != nil {
		l.Fatal(err)
	}
	return out
}

func output(ctx context.Context, program string, args ...string) (string, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %q: %w: %s%s", program, args, err, out.Bytes(), errs.Bytes())
	}
	return out.String(), nil
}

// kubectl runs kubectl, which must succeed, and returns its output.
func (l lab) kubectl(args ...string) string {
	l.Helper()
	out, err := l.try(args...)
	if err != nil {
		l.Fatal(err)
	}
	return out
}

// try runs kubectl, also while a test is cleaned up.
func (l lab) try(args ...string) (string, error) {
	return output(context.Background(), l.c.Kubectl(), append([]string{"--kubeconfig", l.c.Kubeconfig()}, args...)...)
}

// follow executes commands of contrib/kubernetes word by word, but for the dots in the command to join.
func (l lab) follow(commands []string) {
	l.Helper()
	for _, command := range commands {
		began := time.Now()
		run := l.run
		if strings.Contains(command, "kubeadm join ...") {
			print, err := l.c.JoinCommand()
			if err != nil {
				l.Fatal(err)
			}
			command, run = strings.Replace(command, "kubeadm join ...", print, 1), l.join
		}
		out := run(8*time.Minute, command)
		l.Logf("%v: %s\n%s", time.Since(began).Round(time.Second), command, out)
	}
}

// join runs kubeadm, again if its checks fail because podd does not answer within their two seconds, or runc not within
// those of podd. An emulated machine on a busy host can be that slow.
func (l lab) join(limit time.Duration, command string) string {
	l.Helper()
	const attempts = 5
	for i := 1; ; i++ {
		out, err := l.m.Run(command, limit)
		if err == nil {
			return strings.TrimSpace(out)
		}
		if i == attempts || !strings.Contains(out, "[ERROR CRI]") || !strings.Contains(out, "deadline exceeded") {
			l.Fatal(err)
		}
		l.Logf("attempt %d: %v", i, err)
		time.Sleep(10 * time.Second)
	}
}

// eventually repeats f until it returns "" or the limit has passed.
func (l lab) eventually(limit time.Duration, f func() string) {
	l.Helper()
	deadline := time.Now().Add(limit)
	for {
		wrong := f()
		if wrong == "" {
			return
		}
		if time.Now().After(deadline) {
			l.Fatalf("after %v: %s", limit, wrong)
		}
		time.Sleep(time.Second)
	}
}

// ready waits until the node is ready, and adds the routes to its pods.
func (l lab) ready() {
	began := time.Now()
	l.eventually(5*time.Minute, func() string {
		n, err := l.c.Client.CoreV1().Nodes().Get(l.Context(), node, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for _, condition := range n.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue && n.Spec.PodCIDR != "" {
				if err := l.m.Route(n.Spec.PodCIDR); err != nil {
					l.Fatal(err)
				}
				l.Logf("ready after %v: %+v", time.Since(began).Round(time.Second), n.Status.NodeInfo)
				return ""
			}
			if condition.Type == corev1.NodeReady {
				return condition.Message
			}
		}
		return "no condition Ready"
	})
}

// serviceAccount waits for the namespace's service account, without which no pod can be created.
func (l lab) serviceAccount() {
	l.Helper()
	l.eventually(time.Minute, func() string {
		_, err := l.c.Client.CoreV1().ServiceAccounts("default").Get(l.Context(), "default", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		return ""
	})
}
