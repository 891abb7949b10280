package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// In a namespace with 600 services a container gets 4,200 variables of theirs, and starts.
func TestManyServices(t *testing.T) {
	k := parallel(t)
	const n = 600
	for i := range n {
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("service-%d", i)},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}
		_, err := c.Client.CoreV1().Services(k.ns).Create(k.Context(), s, metav1.CreateOptions{})
		k.ok("create a service", err)
	}
	attempt := 0
	k.eventually("a container has the variables of all services", func(context.Context) error {
		attempt++ // the kubelet learns of services a little later
		name := fmt.Sprintf("p%d", attempt)
		k.run(name, `containers: [{name: c, image: BUSYBOX, command: [sleep, "10000"]}]`)
		if got := k.sh(name, "env | grep -c 'SERVICE_[0-9]*_SERVICE_HOST='"); got != strconv.Itoa(n) {
			return fmt.Errorf("variables of %s services, want %d", got, n)
		}
		return nil
	})
}

// Every profile of kubectl debug starts its container, with the capabilities that the profile has.
func TestDebugProfiles(t *testing.T) {
	k := parallel(t)
	k.run("p", `
securityContext: {runAsUser: 1000}
containers: [{name: app, image: BUSYBOX, command: [sleep, "12345"]}]
`)
	const netAdmin, netRaw, sysPtrace, sysAdmin = 12, 13, 19, 21
	for profile, want := range map[string][]int{
		"general": {sysPtrace}, "baseline": {}, "restricted": {}, "netadmin": {netAdmin, netRaw}, "sysadmin": {sysAdmin},
	} {
		name := "dbg-" + profile
		k.kubectl("debug", "p", "--image="+busybox, "--target=app", "--container="+name, "--profile="+profile, "--",
			"grep", "CapBnd", "/proc/self/status")
		p := k.until("p", "has debugged with "+profile, func(p *corev1.Pod) bool {
			s := container(p, name)
			return s != nil && s.State.Terminated != nil
		})
		k.same("exit code with "+profile, container(p, name).State.Terminated.ExitCode, int32(0))
		_, text, _ := strings.Cut(strings.TrimSpace(k.logs("p", "-c", name)), "CapBnd:\t")
		caps, err := strconv.ParseUint(text, 16, 64)
		k.ok("parse the capabilities of "+profile, err)
		for _, c := range want {
			k.same(fmt.Sprintf("capability %d with %s", c, profile), caps>>c&1, uint64(1))
		}
		if profile == "restricted" {
			k.same("capabilities with "+profile, caps, uint64(0))
		}
	}
}

// A hostPath without a type whose path does not exist, as in the charts of flannel and others, becomes a directory.
func TestOldChart(t *testing.T) {
	k := parallel(t)
	made := c.Node(k.node).Path("chart", "run", "flannel")
	k.run("p", fmt.Sprintf(`
volumes: [{name: run, hostPath: {path: %q}}]
containers:
- name: c
  image: BUSYBOX
  command: [sh, -c, "echo FLANNEL_MTU=1450 > /run/flannel/subnet.env; sleep 10000"]
  volumeMounts: [{name: run, mountPath: /run/flannel}]
`, made))
	k.contains("the file of the daemon", k.sh("p", "while ! cat /run/flannel/subnet.env; do sleep 0.1; done"), "1450")
	info, err := os.Stat(made)
	k.ok("the host's directory", err)
	k.same("mode of the host's directory", info.Mode(), os.ModeDir|0o755)
}

// The stop signal of an image may be a real-time signal, as systemd's is.
func TestRealTimeStopSignal(t *testing.T) {
	k := parallel(t)
	k.run("p", `
terminationGracePeriodSeconds: 60
containers:
- name: c
  image: registry.k8s.io/podd/stopsignal:realtime
  command: [sh, -c, "trap 'echo got 37; exit 0' 37; trap 'echo got TERM; exit 1' TERM; echo armed;
    touch /armed; while true; do sleep 0.1; done"]
  readinessProbe: {exec: {command: [test, -e, /armed]}, periodSeconds: 1}
`)
	follow := k.follow("p", true)
	k.remove("p")
	k.same("the log", follow(), "armed\ngot 37\n")
}

// cadvisorOff: with podd's cadvisor.socket, the page of the kubelet's cAdvisor names every container, without the gate
// that has the kubelet ask podd for it.
func (k *scene) cadvisorOff() {
	k.useCadvisor()
	for i := range 3 {
		k.pod(fmt.Sprintf("p%d", i), `
containers:
- {name: a, image: BUSYBOX, command: [sleep, "10000"]}
- {name: b, image: NGINX}
`)
	}
	for i := range 3 {
		k.ready(fmt.Sprintf("p%d", i))
	}
	k.eventually("the page of cAdvisor names every container", func(ctx context.Context) error {
		var page string
		if err := k.fromKubelet(ctx, "metrics/cadvisor", &page); err != nil {
			return err
		}
		for i := range 3 {
			if err := cadvisorNames(page, k.ns, fmt.Sprintf("p%d", i)); err != nil {
				return err
			}
		}
		return nil
	})
}

// useCadvisor restarts the node's podd and kubelet with podd's cadvisor.socket and without the gates of kubelet.yaml,
// until the end of the scenario.
func (k *scene) useCadvisor() {
	n := c.Node(k.node)
	dropIn := n.Path("podd.toml.d", "cadvisor.toml")
	k.ok("configure podd", errors.Join(os.MkdirAll(n.Path("podd.toml.d"), 0o755),
		os.WriteFile(dropIn, []byte("[cadvisor]\nsocket = \"/var/run/crio/crio.sock\"\n"), 0o644)))
	restart := func(kubelet map[string]any) error { // also at the end of the test, when its context is over
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		return errors.Join(n.StopKubelet(), n.StopPodd(), n.Configure(kubelet), n.StartPodd(ctx), n.StartKubelet())
	}
	without := maps.Clone(n.Options.Kubelet)
	delete(without, "featureGates")
	k.ok("restart without the gates", restart(without))
	k.Cleanup(func() {
		k.ok("restart with the gates", errors.Join(os.Remove(dropIn), restart(n.Options.Kubelet)))
	})
}

// cadvisorNames returns an error for the first row that the page lacks for a pod of cadvisorOff.
func cadvisorNames(page, ns, pod string) error {
	type row struct{ metric, container, image string }
	var wanted []row
	for _, metric := range []string{
		"container_cpu_usage_seconds_total", "container_memory_working_set_bytes", "container_memory_rss",
		"container_fs_usage_bytes", "container_fs_limit_bytes", "container_fs_inodes_total",
	} {
		wanted = append(wanted, row{metric, "a", "busybox"}, row{metric, "b", "nginx"})
	}
	// container_fs_reads_* and others are from the cgroup's counters of input and output, which not all kernels have.
	wanted = append(wanted,
		row{"container_network_receive_bytes_total", "POD", ""}, row{"container_network_transmit_packets_total", "POD", ""})
	for _, w := range wanted {
		pattern := regexp.MustCompile(fmt.Sprintf(`(?m)^%s\{[^}]*container="%s"[^}]*image="[^"]*%s[^"]*"[^}]*`+
			`namespace="%s"[^}]*pod="%s"`, w.metric, w.container, w.image, ns, pod))
		if !pattern.MatchString(page) {
			return fmt.Errorf("no %s of container %s of %s/%s", w.metric, w.container, ns, pod)
		}
	}
	return nil
}
