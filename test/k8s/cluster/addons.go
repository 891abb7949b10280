package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type object = map[string]any

// proxyConfig is the configuration of a node's kube-proxy: Kubernetes' defaults, which are rules of iptables.
func (c *Cluster) proxyConfig(node, kubeconfig string) object {
	return object{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		"clientConnection": object{"kubeconfig": kubeconfig},
		"hostnameOverride": node, "clusterCIDR": c.Net.pods(),
	}
}

// startProxy starts the node's kube-proxy.
func (n *Node) startProxy() error {
	config := n.c.proxyConfig(n.Name, n.c.path("pki", "proxy.kubeconfig"))
	// Limits of the machine that a network namespace cannot set.
	config["conntrack"] = object{"maxPerCore": 0, "min": 0}
	if err := writeJSON(n.Path("kube-proxy.json"), config); err != nil {
		return err
	}
	_, err := n.start(n.Name+"-kube-proxy", n.c.program("kube-proxy"), "--config="+n.Path("kube-proxy.json"))
	return err
}

// dnsPatch keeps CoreDNS on one node: tests disturb others, and count their cores.
const dnsPatch = `{"spec": {"replicas": 1, "template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": %q}}}}}`

// AddDNS has kubeadm install CoreDNS on a node as in the clusters that it makes, and waits until it is ready.
func (c *Cluster) AddDNS(ctx context.Context, node string) error {
	patch := fmt.Appendf(nil, dnsPatch, node)
	if err := errors.Join(c.configureKubeadm(),
		os.WriteFile(c.path("kubeadm", "corednsdeployment+strategic.json"), patch, 0o600)); err != nil {
		return err
	}
	if err := c.init("addon", "coredns"); err != nil {
		return err
	}
	return c.wait(ctx, "CoreDNS", func(ctx context.Context) error {
		d, err := c.Client.AppsV1().Deployments("kube-system").Get(ctx, "coredns", metav1.GetOptions{})
		if err == nil && d.Status.AvailableReplicas == 0 {
			err = errors.New("its pod is not ready")
		}
		return err
	})
}

// admitKubeadm has kubeadm write what a node that joins reads.
func (c *Cluster) admitKubeadm() error {
	if err := c.configureKubeadm(); err != nil {
		return err
	}
	return errors.Join(c.init("upload-config", "all"), c.init("bootstrap-token"))
}

// JoinCommand returns what kubeadm prints for an administrator: the command by which a node joins.
func (c *Cluster) JoinCommand() (string, error) {
	out, err := c.Control.Run(c.program("kubeadm"), "token", "create", "--print-join-command", "--kubeconfig",
		c.Kubeconfig())
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1], err // after warnings
}

// init runs a phase of `kubeadm init`.
func (c *Cluster) init(phase ...string) error {
	args := append([]string{"init", "phase"}, phase...)
	_, err := c.Control.Run(c.program("kubeadm"), append(args, "--kubeconfig", c.Kubeconfig(),
		"--config", c.path("kubeadm", "config.yaml"))...)
	return err
}

// configureKubeadm writes the configuration of the phases.
func (c *Cluster) configureKubeadm() error {
	version, err := c.Client.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	config := fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: %q}
nodeRegistration: {criSocket: "unix:///none"}
patches: {directory: %q}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %q
networking: {serviceSubnet: %q, dnsDomain: cluster.local}
dns: {imageTag: podd}
`, c.Control.Addr, c.path("kubeadm"), version.GitVersion, c.Net.services())
	return errors.Join(os.MkdirAll(c.path("kubeadm"), 0o755),
		os.WriteFile(c.path("kubeadm", "config.yaml"), []byte(config), 0o600))
}

func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}
