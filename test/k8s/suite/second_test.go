package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podd-project/podd/test/k8s/cluster"
)

// TestSecondNode runs, one after the other on node2, the scenarios that need two nodes or other settings, or that
// disturb a node. The scenarios on node1 run at the same time.
func TestSecondNode(t *testing.T) {
	t.Parallel()
	for _, s := range []struct {
		name string
		play func(*scene)
	}{
		{"statistics from the CRI", func(k *scene) { k.checkStats(true) }},
		{"statistics from cAdvisor", (*scene).cadvisorOff},
		{"Prometheus", (*scene).prometheus},
		{"Multus", (*scene).multus},
		{"events instead of lists", (*scene).quickDeath},
		{"an exclusive core", (*scene).exclusiveCore},
		{"huge pages", (*scene).hugepages},
		{"traffic between the nodes", (*scene).traffic},
		{"static pod", (*scene).staticPod},
		{"the kubelet is restarted", (*scene).kubeletRestart},
		{"podd is restarted", (*scene).poddRestart},
		{"podd is killed", (*scene).poddKilled},
		{"both are restarted", (*scene).bothRestart},
		{"a pod ends while podd is stopped", (*scene).endsUnseen},
		{"the node is rebooted", (*scene).reboot},
		{"disk pressure", (*scene).diskPressure},
		{"the node is drained", (*scene).drain},
	} {
		t.Run(s.name, func(t *testing.T) { s.play(begin(t, node2)) })
	}
}

// quickDeath: the kubelet learns of an exit by podd's events, and restarts the container.
func (k *scene) quickDeath() {
	k.run("p", `
containers:
- name: c
  image: BUSYBOX
  command: [sh, -c, "trap 'exit 9' USR1; touch /armed; while true; do sleep 0.1; done"]
`)
	k.sh("p", "while ! [ -e /armed ]; do sleep 0.1; done")
	_, _ = k.tryKubectl("", "exec", "p", "--", "kill", "-USR1", "1") // the kernel may kill it with its PID namespace
	p := k.until("p", "was restarted", func(p *corev1.Pod) bool {
		return container(p, "c").RestartCount == 1 && isReady(p)
	})
	k.same("exit code", container(p, "c").LastTerminationState.Terminated.ExitCode, int32(9))
	var metrics string
	k.ok("metrics", k.fromKubelet(k.Context(), "metrics", &metrics))
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "kubelet_evented_pleg_connection_success_count") && !strings.HasSuffix(line, " 0\n") {
			return
		}
	}
	k.Error("the kubelet gets no events from podd: kubelet_evented_pleg_connection_success_count is 0 or absent")
}

// exclusiveCore: with the static policy, a guaranteed pod with one CPU gets one of its own.
func (k *scene) exclusiveCore() {
	k.run("p", `
containers:
- {name: c, image: BUSYBOX, command: [sleep, "10000"], resources: {limits: {cpu: 1, memory: 32Mi}}}
`)
	k.run("shared", `containers: [{name: c, image: BUSYBOX, command: [sleep, "10000"]}]`)
	cpus := func(pod string) string {
		return strings.TrimSpace(strings.TrimPrefix(k.sh(pod, "grep Cpus_allowed_list /proc/1/status"), "Cpus_allowed_list:"))
	}
	own := cpus("p")
	if own == "0" || strings.ContainsAny(own, "-,") {
		k.Errorf("exclusive CPUs = %q, want one CPU, not the reserved 0", own)
	}
	// The kubelet updates the CPUs of the other containers every few seconds.
	k.eventually("the other containers do not run on that CPU", func(context.Context) error {
		if got := cpus("shared"); got == own || strings.HasSuffix(got, "-"+own) {
			return fmt.Errorf("the other pod may run on %s", got)
		}
		return nil
	})
}

// traffic: pods on different nodes reach each other, with their own addresses.
func (k *scene) traffic() {
	there := k.run("there", "nodeSelector: {kubernetes.io/hostname: "+node1+"}\ncontainers: [{name: c, image: NGINX}]")
	here := k.run("here", "containers: [{name: c, image: NGINX}]")
	k.contains("from here to there", k.sh("here", "wget -q -O - http://"+there.Status.PodIP), "nginx")
	k.contains("from there to here", k.sh("there", "wget -q -O - http://"+here.Status.PodIP), "nginx")
	k.contains("the client's address in the server's log", k.logs("there"), here.Status.PodIP)
	k.contains("from the host", k.fetch("http://"+here.Status.PodIP+"/"), "nginx")
	k.service("other", "there")
	k.wget("here", "http://other:8080/", "nginx")
}

// identity is what must not change when the daemons restart.
type identity struct{ ip, container, start, restarts string }

func identify(p *corev1.Pod) (ids []identity) {
	for _, s := range p.Status.ContainerStatuses {
		var start string
		if s.State.Running != nil {
			start = s.State.Running.StartedAt.String()
		}
		ids = append(ids, identity{p.Status.PodIP, s.ContainerID, start, fmt.Sprint(s.RestartCount)})
	}
	return ids
}

// counter is a pod that logs consecutive numbers, and whose probes notice interruptions.
const counter = `
containers:
- name: count
  image: BUSYBOX
  command: [sh, -c, "httpd -p 80 -h /etc; i=0; while true; do i=$((i+1)); echo $i; sleep 0.1; done"]
  livenessProbe: {exec: {command: ["true"]}, periodSeconds: 2, timeoutSeconds: 30, failureThreshold: 5}
  readinessProbe: {httpGet: {path: /hostname, port: 80}, periodSeconds: 1, timeoutSeconds: 30}
- {name: other, image: BUSYBOX, command: [sleep, "100000"]}
`

// survives runs pods, calls disturb, and checks that the pods are the same as before, without a gap in their logs.
func (k *scene) survives(disturb func()) {
	k.Helper()
	before := map[string][]identity{}
	for _, name := range []string{"a", "b", "c"} {
		spec := counter
		if name == "b" {
			spec = "shareProcessNamespace: true" + counter
		}
		k.pod(name, spec)
		before[name] = nil
	}
	for name := range before {
		before[name] = identify(k.ready(name))
	}
	disturb()
	k.eventually("the node is ready and new pods run", func(ctx context.Context) error {
		n, err := c.Client.CoreV1().Nodes().Get(ctx, k.node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, cond := range n.Status.Conditions {
			if cond.Type == corev1.NodeReady && cond.Status != corev1.ConditionTrue {
				return errors.New(cond.Message)
			}
		}
		return nil
	})
	k.run("new", `containers: [{name: c, image: BUSYBOX, command: [sleep, "10000"]}]`)
	for name, ids := range before {
		p := k.ready(name)
		if now := identify(p); fmt.Sprint(now) != fmt.Sprint(ids) {
			k.Errorf("pod %s = %v, want %v as before", name, now, ids)
		}
		k.same("exec in "+name, k.sh(name, "echo works"), "works")
		for i, line := range strings.Split(strings.TrimSpace(k.logs(name)), "\n") {
			if line != fmt.Sprint(i+1) {
				k.Errorf("line %d of %s's log = %q, want %d", i+1, name, line, i+1)
				break
			}
		}
		k.contains("the page at the address of "+name, k.fetch("http://"+p.Status.PodIP+"/hostname"), name)
	}
}

// n is the scenario's node.
func (k *scene) n() *cluster.Node { return c.Node(k.node) }

func (k *scene) kubeletRestart() {
	k.survives(func() { k.ok("restart the kubelet", errors.Join(k.n().StopKubelet(), k.n().StartKubelet())) })
}

func (k *scene) poddRestart() {
	k.survives(func() { k.ok("restart podd", errors.Join(k.n().StopPodd(), k.n().StartPodd(k.Context()))) })
}

func (k *scene) poddKilled() {
	k.survives(func() { k.ok("kill podd", errors.Join(k.n().KillPodd(), k.n().StartPodd(k.Context()))) })
}

func (k *scene) bothRestart() {
	k.survives(func() {
		k.ok("restart both", errors.Join(k.n().StopKubelet(), k.n().KillPodd(), k.n().StartPodd(k.Context()),
			k.n().StartKubelet()))
	})
}

// endsUnseen: podd reports the exit code of a container that exited while podd was stopped.
func (k *scene) endsUnseen() {
	n := k.n()
	before := k.run("p", "restartPolicy: Never\nvolumes: [{name: v, hostPath: {path: "+n.Path()+`}}]
containers:
- name: c
  image: BUSYBOX
  command: [sh, -c, "while ! [ -e /v/end-now ]; do sleep 0.1; done; echo bye; exit 6"]
  volumeMounts: [{name: v, mountPath: /v}]
`)
	k.ok("kill podd", n.KillPodd())
	k.ok("let the container exit", os.WriteFile(n.Path("end-now"), nil, 0o644))
	k.eventually("its last line is in the log", func(context.Context) error {
		data, err := os.ReadFile(n.Path("pods", fmt.Sprintf("%s_p_%s", k.ns, before.UID), "c", "0.log"))
		if err == nil && !strings.Contains(string(data), "bye") {
			err = fmt.Errorf("log = %q, want one with bye", data)
		}
		return err
	})
	k.ok("start podd", k.n().StartPodd(k.Context()))
	p := k.ended("p", corev1.PodFailed)
	k.same("exit code", container(p, "c").State.Terminated.ExitCode, int32(6))
	k.same("log", k.logs("p"), "bye\n")
}

// staticPod: the kubelet runs the pods of its manifest directory.
func (k *scene) staticPod() {
	n := c.Node(k.node)
	manifest := k.fill("apiVersion: v1\nkind: Pod\nmetadata: {name: static, namespace: " + k.ns +
		"}\nspec:\n  terminationGracePeriodSeconds: 1\n" +
		"  containers: [{name: c, image: BUSYBOX, command: [sleep, '10000']}]\n")
	k.ok("write the manifest", os.WriteFile(n.Path("manifests", "static.yaml"), []byte(manifest), 0o644))
	k.ready("static-" + k.node)
	k.ok("remove the manifest", os.Remove(n.Path("manifests", "static.yaml")))
	k.gone("static-" + k.node)
}

// reboot: after a power cut the pods run again, with new containers and networks, and the old ones are removed.
func (k *scene) reboot() {
	spec := `
volumes: [{name: v, emptyDir: {}}]
containers:
- name: c
  image: BUSYBOX
  command: [sh, -c, "echo x >> /v/runs; exec sleep 10000"]
  volumeMounts: [{name: v, mountPath: /v}]
`
	before := k.run("p", spec)
	k.run("q", spec)
	k.ok("reboot", c.Node(k.node).Reboot(k.Context()))
	for _, name := range []string{"p", "q"} {
		p := k.until(name, "runs again", func(p *corev1.Pod) bool {
			s := container(p, "c")
			return isReady(p) && s.RestartCount == 1 && s.ContainerID != container(before, "c").ContainerID
		})
		k.same("the file on the volume of "+name, k.sh(name, "cat /v/runs"), "x\nx")
		k.contains("the address in "+name, k.sh(name, "hostname -i"), p.Status.PodIP)
	}
}

// diskPressure: when its disk is too full, the kubelet removes an unused image, but not a pinned one, and evicts pods.
// When the disk has space again, the node accepts new pods.
func (k *scene) diskPressure() {
	const unused = "registry.k8s.io/podd/workdir:latest"
	for name, image := range map[string]string{"unused": unused, "pinned": nginx} {
		k.pod(name, "restartPolicy: Never\ncontainers: [{name: c, image: '"+image+"', command: ['true']}]")
		k.ended(name, corev1.PodSucceeded)
		k.remove(name)
	}
	k.run("victim", "containers: [{name: c, image: BUSYBOX, command: [sleep, '10000']}]")
	n := k.n()
	full := map[string]any{"imageMinimumGCAge": "1s", "evictionPressureTransitionPeriod": "1s",
		"evictionHard": map[string]string{"nodefs.available": "99%", "imagefs.available": "99%"}}
	maps.Copy(full, n.Options.Kubelet)
	k.ok("set thresholds that the disk exceeds", errors.Join(n.StopKubelet(), n.Configure(full), n.StartKubelet()))
	p := k.until("victim", "was evicted", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	k.same("reason", p.Status.Reason, "Evicted")
	k.eventually("the unused image is gone", func(context.Context) error {
		out, err := n.Crictl("images")
		if err == nil && strings.Contains(out, "podd/workdir") {
			err = errors.New(out)
		}
		return err
	})
	out, err := n.Crictl("images")
	k.ok("crictl images", err)
	k.contains("the images", out, "e2e-test-images/nginx")
	k.ok("restore the thresholds", errors.Join(n.StopKubelet(), n.Configure(n.Options.Kubelet), n.StartKubelet()))
	k.run("new", "containers: [{name: c, image: BUSYBOX, command: [sleep, '10000']}]")
}

// drain: the pods of a drained node are created again on the other.
func (k *scene) drain() {
	k.create(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: work}
spec:
  replicas: 4
  selector: {matchLabels: {app: work}}
  template:
    metadata: {labels: {app: work}}
    spec:
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: ScheduleAnyway
        labelSelector: {matchLabels: {app: work}}
      containers: [{name: c, image: BUSYBOX, command: [sleep, "10000"]}]
`)
	k.rolledOut("work", 1)
	if on := k.nodes("app=work"); on[node1] == 0 || on[node2] == 0 {
		k.Errorf("pods by node = %v, want some on both", on)
	}
	k.kubectl("drain", k.node, "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--timeout=120s",
		"--pod-selector=app=work")
	k.rolledOut("work", 1)
	k.same("pods on the other node", k.nodes("app=work")[node1], 4)
	k.kubectl("uncordon", k.node)
	k.run("p", `containers: [{name: c, image: BUSYBOX, command: [sleep, "10000"]}]`)
}

// nodes counts the pods with a label on each node.
func (k *scene) nodes(selector string) map[string]int {
	k.Helper()
	on := map[string]int{}
	list, err := c.Client.CoreV1().Pods(k.ns).List(k.Context(), metav1.ListOptions{LabelSelector: selector})
	k.ok("list pods", err)
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			on[p.Spec.NodeName]++
		}
	}
	return on
}
