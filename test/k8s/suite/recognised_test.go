package suite

import (
	"context"
	"fmt"
	"os"
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
