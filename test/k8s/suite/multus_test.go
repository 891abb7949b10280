package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/podd-project/podd/test/k8s/cluster"
)

// second is a network for further interfaces of pods.
const second = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: second, namespace: %s}
spec:
  config: '{"cniVersion": "1.0.0", "name": "second", "type": "bridge", "bridge": "second",
    "ipam": {"type": "host-local", "subnet": "192.0.2.0/24"}}'
`

// first is the network for the pods' eth0, with one verb, the node's range. It is a single plugin: of a list Multus
// 4.3.0 keeps only the common keys for DEL, so no address is released (fixed by multus-cni's pull request 1521).
const first = `{"cniVersion": "1.0.0", "name": "podd", "type": "bridge", "bridge": "cni0", "isGateway": true,
"hairpinMode": true, "ipam": {"type": "host-local", "subnet": %q, "routes": [{"dst": "0.0.0.0/0"}]}}
`

// attached gives a pod an interface in the second network.
func attached(p *corev1.Pod) {
	p.Annotations = map[string]string{"k8s.v1.cni.cncf.io/networks": "second"}
}

// multus: Multus' thick daemon, installed by its own manifest, gives pods an interface in a second network. Of the
// node's network namespaces the daemon has only the directory /run/netns. Nothing is left of deleted pods, also if podd
// was killed while one ran or while Multus set one up.
func (k *scene) multus() {
	n := c.Node(k.node)
	k.withoutEvents(n)
	k.installMultus(n)
	k.apply(fmt.Sprintf(second, k.ns))
	server := k.run("server", "containers: [{name: c, image: NGINX}]", attached)
	k.run("client", `containers: [{name: c, image: BUSYBOX, command: [sleep, "10000"]}]`, attached)
	k.contains("over the second network", k.sh("client", "wget -q -O - http://"+secondAddress(k, server)), "nginx")
	k.contains("net1 in the client", k.sh("client", "ip addr show dev net1"),
		"inet "+secondAddress(k, k.get("client"))+"/24")
	both := len(multusTraces(k, n))
	k.remove("server")
	if one := len(multusTraces(k, n)); one == 0 || 2*one != both {
		k.Errorf("traces of one pod = %d and of both %d, want some, and half as many", one, both)
	}
	k.ok("kill podd", errors.Join(n.KillPodd(), n.StartPodd(k.Context())))
	k.remove("client")
	k.noTraces(n, "a pod that was deleted after podd was killed")

	k.pod("torn", `containers: [{name: c, image: BUSYBOX, command: [sleep, "10000"]}]`, attached)
	k.eventually("Multus has begun with the pod", func(context.Context) error {
		if len(multusTraces(k, n)) == 0 {
			return errors.New("no lease and no link")
		}
		return nil
	})
	k.ok("kill podd", errors.Join(n.KillPodd(), n.StartPodd(k.Context())))
	p := k.ready("torn")
	k.contains("net1 of the pod", k.sh("torn", "ip addr show dev net1"), "inet "+secondAddress(k, p)+"/24")
	k.remove("torn")
	k.noTraces(n, "a pod during whose creation podd was killed")
}

// withoutEvents disables EventedPLEG until the end of the scenario: with it and a runtime that sends
// PodSandboxStatusResponse.timestamp, the kubelet of 1.37.2 forgets init containers and starts them again and again.
func (k *scene) withoutEvents(n *cluster.Node) {
	restart := func(config map[string]any) error {
		return errors.Join(n.StopKubelet(), n.Configure(config), n.StartKubelet())
	}
	config := maps.Clone(n.Options.Kubelet)
	config["featureGates"] = map[string]any{"PodAndContainerStatsFromCRI": true}
	k.ok("restart the kubelet without EventedPLEG", restart(config))
	k.Cleanup(func() { k.ok("restart the kubelet", restart(n.Options.Kubelet)) })
}

// installMultus applies the manifest that Multus publishes, with the node's directory of CNI configurations.
func (k *scene) installMultus(n *cluster.Node) {
	text := k.published("multus.yaml", map[string]string{
		"path: /etc/cni/net.d\n":        "path: " + n.Path("net.d") + "\n",
		"path: /etc/cni/multus/net.d\n": "path: " + n.Path("multus.d") + "\n",
		"      hostPID: true\n": "      hostPID: true\n      nodeSelector: {kubernetes.io/hostname: " + n.Name +
			"}\n",
	})
	single := n.Path("net.d", "05-pods.conf")
	k.ok("write the configuration of the first network", os.WriteFile(single, fmt.Appendf(nil, first, n.PodCIDR), 0o644))
	k.apply(text)
	k.Cleanup(func() {
		if k.Failed() {
			logs, err := k.tryKubectl("", "logs", "--namespace=kube-system", "--tail=100", "daemonset/kube-multus-ds")
			k.Logf("the log of Multus: %v\n%s", err, logs)
		}
		_, pods := k.tryKubectl("", "delete", "pods", "--all") // Multus must still run then
		k.ok("remove Multus", errors.Join(pods, k.unapply(text), os.RemoveAll(n.Path("net.d", "00-multus.conf")),
			os.Remove(single)))
		_, err := n.Run("ip", "link", "del", "second")
		k.ok("remove the bridge of the second network", err)
	})
	k.eventually("podd uses Multus", func(context.Context) error {
		out, err := n.Crictl("info")
		if err != nil || strings.Contains(out, "multus-shim") {
			return err
		}
		return errors.New("its network configuration is another")
	})
}

// secondAddress returns the address that Multus wrote to the pod's status for net1.
func secondAddress(k *scene, p *corev1.Pod) string {
	k.Helper()
	var status []struct {
		Name, Interface string
		IPs             []string
	}
	text := k.get(p.Name).Annotations["k8s.v1.cni.cncf.io/network-status"]
	k.ok("parse "+text, json.Unmarshal([]byte(text), &status))
	for _, s := range status {
		if s.Name == k.ns+"/second" && s.Interface == "net1" && len(s.IPs) == 1 {
			return s.IPs[0]
		}
	}
	k.Fatalf("networks of %s = %s, want one of net1 with an address", p.Name, text)
	return ""
}

// multusTraces lists what an attached pod has on the node: a lease, a link of the bridge, and Multus' record.
func multusTraces(k *scene, n *cluster.Node) []string {
	k.Helper()
	out, err := n.Run("sh", "-c", `{ find /var/lib/cni/networks/second -name '192.*'; find /var/lib/cni/multus -type f
ip -br link show master second; } 2>/dev/null; true`)
	k.ok("look for traces of Multus", err)
	return slices.Collect(strings.Lines(out))
}

func (k *scene) noTraces(n *cluster.Node, of string) {
	k.Helper()
	k.eventually("nothing is left of "+of, func(context.Context) error {
		if left := multusTraces(k, n); len(left) > 0 {
			return fmt.Errorf("left: %v", left)
		}
		return nil
	})
}
