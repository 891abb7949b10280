package vm

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podd-project/podd/test/k8s/cluster"
)

// TestUserNamespace plays the gate KubeletInUserNamespace: podd and a kubelet of an ordinary user, in a user namespace
// with the user's subordinate ids, join the cluster and run a pod.
func TestUserNamespace(t *testing.T) {
	join, _ := steps(t)
	l := start(t, cluster.Options{})
	l.prepare()
	l.run(time.Minute, "/payload/bin/leak take /run/before.json")
	l.unprivileged()
	for _, command := range join {
		if strings.HasPrefix(command, "kubeadm join ...") {
			l.follow([]string{strings.Replace(command, "kubeadm", inside+" kubeadm", 1)})
		}
	}
	l.t("ready", lab.ready)
	l.t("pod", lab.rootlessPod)
	l.kubectl("delete", "node", node)
	l.t("nothing is left", lab.userLeft)
}

// inside runs a command in the namespaces of podd and the kubelet, and in their cgroup.
const inside = "env HOME=/home/node nsenter --target $(systemctl show -P MainPID node) --user --mount --net --cgroup " +
	"--ipc --join-cgroup --setuid 0 --setgid 0"

// unprivileged makes a user with subordinate ids, whom systemd delegates the cgroup of a unit, and starts podd in that
// unit. The user's network namespace gets the machine's network device, in place of a program that forwards packets.
func (l lab) unprivileged() {
	l.Helper()
	l.run(3*time.Minute, `set -e
. /payload/env
useradd --create-home node
grep -q ^node: /etc/subuid /etc/subgid
install /payload/bin/podd /usr/local/bin/
install -D -m 644 /payload/contrib/kubernetes/podd-cni.template /etc/podd/podd-cni.template
mkdir -p /etc/podd/podd.toml.d /etc/cni /etc/kubernetes
printf '[network]\nconf_template = "/etc/podd/podd-cni.template"\n' >/etc/podd/podd.toml.d/50-network.toml
systemd-run --quiet --unit=node --property=User=node --property=Delegate=yes --property=TasksMax=infinity \
	--property=LimitNOFILE=1048576 \
	unshare --user --map-root-user --map-auto --mount --net --cgroup --ipc /payload/userns.sh
until systemctl status node | grep -q 'podd serve'; do sleep 1; done
ip link set eth0 netns $(systemctl show -P MainPID node)
`+inside+` sh -c "ip addr add $address/24 dev eth0 && ip link set eth0 up && ip route add default via $gateway"
until `+inside+` podd status; do sleep 1; done`)
}

// rootlessPod runs a pod: probes by the network and by exec, logs, exec, limits in the kernel, deletion. The changes of
// the root filesystem need attributes of the overlay that only the user's own are.
func (l lab) rootlessPod() {
	n, err := l.c.Client.CoreV1().Nodes().Get(l.Context(), node, metav1.GetOptions{})
	if err != nil {
		l.Fatal(err)
	}
	if in := n.Status.NodeInfo.RunningInUserNamespace; in == nil || !*in {
		l.Errorf("the node's status says that the kubelet runs in a user namespace: %v, want true", in)
	}
	l.play("rootless", `containers:
- name: c
  image: IMAGE
  command: [sh, -c, 'echo started; rm -r /usr && mkdir /usr && exec httpd -f -p 8080 -h /etc']
  resources: {requests: {cpu: 50m, memory: 20Mi}, limits: {cpu: 500m, memory: 64Mi}}
  readinessProbe: {httpGet: {path: /hostname, port: 8080}, periodSeconds: 2, timeoutSeconds: 10}
  livenessProbe: {exec: {command: [test, -d, /usr]}, periodSeconds: 2, timeoutSeconds: 20}`)
	l.same("logs", l.kubectl("logs", "rootless"), "started\n")
	l.same("limits and ids in the container",
		l.in("rootless", "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/cpu.max; echo $(cat /proc/self/uid_map)"),
		"67108864\n50000 100000\n0 1000 1 1 100000 65535")
	time.Sleep(6 * time.Second) // for a few probes
	l.same("restarts", l.field("pod/rootless", ".status.containerStatuses[0].restartCount"), "0")
	owner := "ps -o user= $(pgrep -x httpd)"
	l.same("owner of the process on the node", l.run(time.Minute, owner), "node")
	l.kubectl("delete", "pod", "rootless", "--timeout=2m")
}

// userLeft stops podd and the kubelet, and compares the machine with what it was.
func (l lab) userLeft() {
	l.run(2*time.Minute, "systemctl stop node")
	if out, err := l.m.Run("/payload/bin/leak diff /run/before.json -all -wait 15s",
		2*time.Minute); err != nil {
		l.Errorf("left on the machine: %s", out)
	}
}
