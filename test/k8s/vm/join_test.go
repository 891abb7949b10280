package vm

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podd-project/podd/test/k8s/cluster"
)

// TestJoin executes contrib/kubernetes' steps to join a cluster, runs a pod, and executes the steps to leave.
func TestJoin(t *testing.T) {
	join, leave := steps(t)
	l := start(t, cluster.Options{})
	l.prepare()
	l.run(time.Minute, "/payload/bin/leak take /run/before.json")
	l.follow(join)
	l.t("ready", lab.ready)
	l.t("default configuration", lab.defaults)
	l.t("pod", lab.pod)
	l.t("cAdvisor", lab.cadvisor)
	l.kubectl("delete", "node", node)
	l.follow(leave)
	l.t("nothing is left", lab.left)
}

// defaults checks that this is the machine that the test is for, and that nothing was configured to suit it.
func (l lab) defaults() {
	for command, want := range map[string]string{
		"stat -fc %T /sys/fs/cgroup":                                "cgroup2fs",
		"cat /sys/module/apparmor/parameters/enabled":               "Y",
		"systemctl is-active podd kubelet":                          "active\nactive",
		"systemctl list-units --failed --plain --no-legend":         "",
		"grep -c failCgroupV1 /var/lib/kubelet/config.yaml || true": "0",
	} {
		if got := l.run(time.Minute, command); got != want {
			l.Errorf("%s: %q, want %q", command, got, want)
		}
	}
	config := l.kubectl("get", "--raw", "/api/v1/nodes/"+node+"/proxy/configz")
	for _, want := range []string{`"cgroupDriver":"systemd"`, `"failCgroupV1":true`,
		`"containerRuntimeEndpoint":"unix:///run/podd/podd.sock"`} {
		if !strings.Contains(config, want) {
			l.Errorf("the kubelet's configuration is %s, want %s", config, want)
		}
	}
}

// manifest is a pod with all kinds of what the kubelet asks of a runtime while it runs.
const manifest = `apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: true
  containers:
  - name: web
    image: %s
    command: [sh, -c, 'echo started; mkdir /tmp/up; while :; do sleep 1; done']
    resources: {requests: {cpu: 50m, memory: 20Mi}, limits: {cpu: 500m, memory: 64Mi}}
    readinessProbe: {exec: {command: [test, -d, /tmp/up]}, periodSeconds: 2, timeoutSeconds: 10}
    livenessProbe: {exec: {command: [test, -d, /tmp/up]}, periodSeconds: 5, timeoutSeconds: 20}
`

// image is in the test registry, which stands in for registry.k8s.io.
const image = "registry.k8s.io/e2e-test-images/busybox:1.29-2"

// pod runs a pod: probes, logs, exec, limits in the kernel, deletion.
func (l lab) pod() {
	file := filepath.Join(l.c.Dir, "pod.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, manifest, image), 0o600); err != nil {
		l.Fatal(err)
	}
	l.serviceAccount()
	began := time.Now()
	l.kubectl("apply", "-f", file)
	l.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=5m")
	l.Logf("pod ready after %v", time.Since(began).Round(time.Second))
	if got := l.kubectl("logs", "web"); got != "started\n" {
		l.Errorf("logs = %q, want started", got)
	}
	if got := l.kubectl("exec", "web", "--", "cat", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/cpu.max"); got !=
		"67108864\n50000 100000\n" {
		l.Errorf("limits in the container = %q, want 64 MiB and half a CPU", got)
	}
	if got := l.kubectl("exec", "web", "--", "cat", "/proc/1/attr/current"); !strings.Contains(got, "(enforce)") {
		l.Errorf("AppArmor profile = %q, want one that is enforced", got)
	}
	scope := l.run(time.Minute, "systemctl list-units --plain --no-legend --state=running 'crio-*.scope' | wc -l")
	if scope != "1" {
		l.Errorf("%s scopes of systemd run, want the container's", scope)
	}
	time.Sleep(15 * time.Second) // for a few probes
	pod, err := l.c.Client.CoreV1().Pods("default").Get(l.Context(), "web", metav1.GetOptions{})
	if err != nil {
		l.Fatal(err)
	}
	if n := pod.Status.ContainerStatuses[0].RestartCount; n != 0 {
		l.Errorf("%d restarts, want none", n)
	}
	l.kubectl("delete", "pod", "web", "--timeout=2m")
}

// cadvisor: with podd's cadvisor.socket the page of the kubelet's own cAdvisor names the container by its scope.
func (l lab) cadvisor() {
	const conf = "/etc/podd/podd.toml.d/60-cadvisor.toml"
	l.run(2*time.Minute, `set -e
printf '[cadvisor]\nsocket = "/var/run/crio/crio.sock"\n' >`+conf+`
systemctl restart podd kubelet`)
	l.kubectl("apply", "-f", filepath.Join(l.c.Dir, "pod.yaml"))
	l.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=5m")
	row := regexp.MustCompile(`(?m)^container_(\w+)\{container="(web|POD)",[^}]*namespace="default",pod="web"`)
	want := map[string]bool{"cpu_usage_seconds_total web": true, "memory_working_set_bytes web": true,
		"fs_usage_bytes web": true, "network_receive_bytes_total POD": true}
	l.eventually(3*time.Minute, func() string {
		for _, r := range row.FindAllStringSubmatch(l.kubectl("get", "--raw", "/api/v1/nodes/"+node+
			"/proxy/metrics/cadvisor"), -1) {
			delete(want, r[1]+" "+r[2])
		}
		if len(want) > 0 {
			return fmt.Sprintf("/metrics/cadvisor has no rows for %v", slices.Collect(maps.Keys(want)))
		}
		return ""
	})
	l.kubectl("delete", "pod", "web", "--timeout=2m")
	l.run(2*time.Minute, "rm "+conf+" && systemctl restart podd kubelet")
}

// kept is what stays on the machine, and is not podd's: the mount of the directory of network namespaces, which ip(8)
// and others use; the bridge of the CNI plugin; the kubelet's slices and packet filter rules, as kubeadm reset says.
var kept = []string{"tmpfs tmpfs /netns", "cni0", "kubepods", "KUBE-"}

// left compares the machine with what it was before podd was installed.
func (l lab) left() {
	if pods := l.run(time.Minute, "find /sys/fs/cgroup/kubepods.slice -mindepth 2 -type d"); pods != "" {
		l.Errorf("cgroups of pods are left: %s", pods)
	}
	diff := "/payload/bin/leak diff /run/before.json -all -wait 15s"
	for _, text := range kept {
		diff += " -ignore '" + text + "'"
	}
	if out, err := l.m.Run(diff, 2*time.Minute); err != nil {
		l.Errorf("left on the machine: %s", out)
	}
	for _, dir := range []string{"/run/podd", "/var/lib/podd"} {
		if _, err := l.m.Run("test ! -e "+dir, time.Minute); err != nil {
			l.Errorf("%s exists, want it removed", dir)
		}
	}
}
