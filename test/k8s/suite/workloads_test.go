package suite

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Deployment of web servers becomes ready; an update replaces its pods.
func TestDeployment(t *testing.T) {
	k := parallel(t)
	k.create(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {kubernetes.io/hostname: NODE}
      terminationGracePeriodSeconds: 5
      containers:
      - name: web
        image: NGINX
        ports: [{containerPort: 80}]
        readinessProbe: {httpGet: {path: /, port: 80}, periodSeconds: 1}
`)
	k.rolledOut("web", 1)
	first := k.names("app=web")
	patch := `{"spec":{"template":{"spec":{"containers":[{"name":"web","env":[{"name":"GENERATION","value":"2"}]}]}}}}`
	_, err := c.Client.AppsV1().Deployments(k.ns).Patch(k.Context(), "web", types.StrategicMergePatchType, []byte(patch),
		metav1.PatchOptions{})
	k.ok("update", err)
	k.rolledOut("web", 2)
	k.eventually("the old pods are gone", func(context.Context) error {
		now := k.names("app=web")
		for _, n := range first {
			if strings.Contains(strings.Join(now, " "), n) {
				return fmt.Errorf("pods = %v, want none of %v", now, first)
			}
		}
		return nil
	})
	for _, n := range k.names("app=web") {
		k.same("the updated pod's environment", k.sh(n, "echo $GENERATION"), "2")
	}
}

// rolledOut waits until all replicas are of that generation and available.
func (k *scene) rolledOut(name string, generation int64) {
	k.Helper()
	k.eventually("deployment "+name+" is rolled out", func(ctx context.Context) error {
		d, err := c.Client.AppsV1().Deployments(k.ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		s := d.Status
		if s.ObservedGeneration < generation || s.UpdatedReplicas != *d.Spec.Replicas ||
			s.AvailableReplicas != *d.Spec.Replicas || s.Replicas != *d.Spec.Replicas {
			return fmt.Errorf("updated %d, available %d, all %d", s.UpdatedReplicas, s.AvailableReplicas, s.Replicas)
		}
		return nil
	})
}

// names lists the pods with a label that are not being deleted.
func (k *scene) names(selector string) (names []string) {
	k.Helper()
	list, err := c.Client.CoreV1().Pods(k.ns).List(k.Context(), metav1.ListOptions{LabelSelector: selector})
	k.ok("list pods", err)
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			names = append(names, p.Name)
		}
	}
	return names
}

func TestJob(t *testing.T) {
	k := parallel(t)
	k.create(`
apiVersion: batch/v1
kind: Job
metadata: {name: sums}
spec:
  completions: 3
  parallelism: 2
  template:
    spec:
      nodeSelector: {kubernetes.io/hostname: NODE}
      restartPolicy: Never
      containers: [{name: sum, image: BUSYBOX, command: [sh, -c, "echo $((6 * 7))"]}]
`)
	k.eventually("the job is complete", func(ctx context.Context) error {
		j, err := c.Client.BatchV1().Jobs(k.ns).Get(ctx, "sums", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if j.Status.Succeeded != 3 || j.Status.CompletionTime == nil {
			return fmt.Errorf("%d succeeded, %d failed", j.Status.Succeeded, j.Status.Failed)
		}
		return nil
	})
	for _, n := range k.names("job-name=sums") {
		k.same("the log", k.logs(n), "42\n")
	}
}

// Init containers run one after the other; a sidecar starts before the containers and exits after them.
func TestInitAndSidecar(t *testing.T) {
	k := parallel(t)
	k.pod("p", `
restartPolicy: Never
terminationGracePeriodSeconds: 20
volumes: [{name: v, emptyDir: {}}]
initContainers:
- {name: one, image: BUSYBOX, command: [sh, -c, "echo one > /v/f"], volumeMounts: [{name: v, mountPath: /v}]}
- name: side
  image: BUSYBOX
  restartPolicy: Always
  command: [sh, -c, "trap 'echo SIGTERM; exit 0' TERM; sleep 1; touch /v/started; while true; do sleep 0.1; done"]
  startupProbe: {exec: {command: [test, -e, /v/started]}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 60}
  volumeMounts: [{name: v, mountPath: /v}]
- {name: two, image: BUSYBOX, command: [sh, -c, "test -e /v/started && echo two >> /v/f"],
   volumeMounts: [{name: v, mountPath: /v}]}
containers:
- {name: main, image: BUSYBOX, command: [sh, -c, "cat /v/f"], volumeMounts: [{name: v, mountPath: /v}]}
`)
	p := k.ended("p", corev1.PodSucceeded)
	k.same("the file of the init containers", k.logs("p", "-c", "main"), "one\ntwo\n")
	k.same("the sidecar's log", k.logs("p", "-c", "side"), "SIGTERM\n")
	side, main := container(p, "side").State.Terminated, container(p, "main").State.Terminated
	if side == nil || main == nil || side.FinishedAt.Before(&main.FinishedAt) {
		t.Errorf("the sidecar ended at %+v, want after the main container, %+v", side, main)
	}
	k.same("restarts of the sidecar", container(p, "side").RestartCount, int32(0))
}

// With shareProcessNamespace the containers see each other's processes, and process 1 is not a container's.
func TestSharedProcesses(t *testing.T) {
	k := parallel(t)
	k.run("p", `
shareProcessNamespace: true
containers:
- {name: a, image: BUSYBOX, command: [sleep, "12345"]}
- {name: b, image: BUSYBOX, command: [sleep, "54321"]}
`)
	all := k.sh("p", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
	k.contains("the processes", all, "sleep 12345", "sleep 54321")
	if strings.HasPrefix(k.sh("p", "cat /proc/1/cmdline"), "sleep") {
		t.Error("process 1 is a container's, want the pod's")
	}
}

// An ephemeral container joins the process namespace of the container that is debugged.
func TestDebug(t *testing.T) {
	k := parallel(t)
	k.run("p", `
containers:
- {name: app, image: BUSYBOX, command: [sleep, "12345"]}
- {name: other, image: BUSYBOX, command: [sleep, "54321"]}
`)
	k.kubectl("debug", "p", "--image="+busybox, "--target=app", "--container=dbg", "--profile=general", "--",
		"sh", "-c", "tr '\\0' ' ' < /proc/1/cmdline; ls /proc | grep -c '^[0-9]'")
	p := k.until("p", "has debugged", func(p *corev1.Pod) bool {
		s := container(p, "dbg")
		return s != nil && s.State.Terminated != nil
	})
	k.same("exit code", container(p, "dbg").State.Terminated.ExitCode, int32(0))
	out := k.logs("p", "-c", "dbg")
	k.contains("processes in the debug container", out, "sleep 12345")
	if strings.Contains(out, "54321") {
		t.Error("the debug container sees the processes of a container other than its target")
	}
	k.same("restarts of the app", container(p, "app").RestartCount, int32(0))
}

// 60 pods created at once all run, each with its own address.
func TestManyPods(t *testing.T) {
	k := parallel(t)
	const n = 60
	for i := range n {
		k.pod(fmt.Sprintf("p%d", i), `containers: [{name: c, image: BUSYBOX, command: [sleep, "10000"]}]`)
	}
	seen := map[string]string{}
	for i := range n {
		p := k.ready(fmt.Sprintf("p%d", i))
		if other, ok := seen[p.Status.PodIP]; ok || p.Status.PodIP == "" {
			t.Errorf("address of %s = %q, want one of its own; %s has the same", p.Name, p.Status.PodIP, other)
		}
		seen[p.Status.PodIP] = p.Name
		k.same("restarts of "+p.Name, p.Status.ContainerStatuses[0].RestartCount, int32(0))
	}
	err := c.Client.CoreV1().Pods(k.ns).DeleteCollection(k.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	k.ok("delete them all", err)
	k.eventually("all are gone", func(ctx context.Context) error {
		list, err := c.Client.CoreV1().Pods(k.ns).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d pods are left, want none", len(list.Items))
		}
		return err
	})
}
