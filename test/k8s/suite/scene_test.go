package suite

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// The images, as the manifests name them.
const (
	busybox = "registry.k8s.io/e2e-test-images/busybox:1.36.1-1"
	nginx   = "registry.k8s.io/e2e-test-images/nginx:1.27-0"
)

// limit is the longest wait for anything, much longer than it takes, for slow and busy machines.
const limit = 3 * time.Minute

// scene is one scenario, with a namespace of its own; its pods are removed at its end.
type scene struct {
	*testing.T
	ns, node string
}

var scenes atomic.Int64

// parallel starts a scenario on node1 that runs along with others.
func parallel(t *testing.T) *scene {
	t.Helper()
	t.Parallel()
	return begin(t, node1)
}

// begin creates the namespace, and removes it and its pods at the end of the test.
func begin(t *testing.T, node string) *scene {
	t.Helper()
	k := &scene{T: t, node: node, ns: fmt.Sprintf("s%d", scenes.Add(1))}
	_, err := c.Client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: k.ns}}, metav1.CreateOptions{})
	k.ok("make a namespace", err)
	k.eventually("the namespace has its service account and CA", func(ctx context.Context) error {
		if _, err := c.Client.CoreV1().ServiceAccounts(k.ns).Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return err
		}
		_, err := c.Client.CoreV1().ConfigMaps(k.ns).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err
	})
	t.Cleanup(k.end)
	return k
}

func (k *scene) end() {
	if k.Failed() {
		k.report()
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	namespaces := c.Client.CoreV1().Namespaces()
	if err := namespaces.Delete(ctx, k.ns, metav1.DeleteOptions{}); err != nil {
		k.Errorf("delete the namespace: %v", err)
	}
	// The namespace itself is removed some seconds later; no need to wait for that.
	k.poll(ctx, "the pods of the namespace are removed", func(ctx context.Context) error {
		list, err := c.Client.CoreV1().Pods(k.ns).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d pods are left, want none", len(list.Items))
		}
		return err
	})
}

// report logs the pods and events of a scenario that failed.
func (k *scene) report() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if pods, err := c.Client.CoreV1().Pods(k.ns).List(ctx, metav1.ListOptions{}); err == nil {
		for _, p := range pods.Items {
			status, _ := json.Marshal(p.Status)
			k.Logf("pod %s/%s: %s", k.ns, p.Name, status)
		}
	}
	if events, err := c.Client.CoreV1().Events(k.ns).List(ctx, metav1.ListOptions{}); err == nil {
		for _, e := range events.Items {
			k.Logf("event %s %s %s: %s", e.InvolvedObject.Name, e.Type, e.Reason, e.Message)
		}
	}
}

func (k *scene) ok(what string, err error) {
	k.Helper()
	if err != nil {
		k.Fatalf("%s: %v", what, err)
	}
}

// same fails the test when got is not want, but goes on.
func (k *scene) same(what string, got, want any) {
	k.Helper()
	if got != want {
		k.Errorf("%s = %v, want %v", what, got, want)
	}
}

// contains fails the test when one of wants is not in text, but goes on.
func (k *scene) contains(what, text string, wants ...string) {
	k.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			k.Errorf("%s: want a text with %q, got\n%s", what, want, text)
		}
	}
}

// eventually calls f until it returns nil. The test fails if that takes longer than limit.
func (k *scene) eventually(what string, f func(context.Context) error) {
	k.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if !k.poll(ctx, what, f) {
		k.FailNow()
	}
}

func (k *scene) poll(ctx context.Context, what string, f func(context.Context) error) bool {
	k.Helper()
	for {
		err := f(ctx)
		if err == nil {
			return true
		}
		select {
		case <-ctx.Done():
			k.Errorf("not within %v: %s: %v", limit, what, err)
			return false
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// --- objects

// fill replaces the placeholders of manifests: BUSYBOX, NGINX, NODE and AUTH.
func (k *scene) fill(manifest string) string {
	return strings.NewReplacer("BUSYBOX", busybox, "NGINX", nginx, "NODE", k.node, "AUTH",
		c.AuthRegistry).Replace(manifest)
}

// pod creates a pod from the spec, in YAML, on the scenario's node.
func (k *scene) pod(name, spec string, mods ...func(*corev1.Pod)) *corev1.Pod {
	k.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}}
	k.ok("parse the manifest", yaml.UnmarshalStrict([]byte(k.fill(spec)), &p.Spec))
	if p.Spec.NodeSelector == nil {
		p.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": k.node}
	}
	if p.Spec.TerminationGracePeriodSeconds == nil {
		p.Spec.TerminationGracePeriodSeconds = new(int64) // "sh" as process 1 ignores SIGTERM
		*p.Spec.TerminationGracePeriodSeconds = 1
	}
	for _, m := range mods {
		m(p)
	}
	p, err := c.Client.CoreV1().Pods(k.ns).Create(k.Context(), p, metav1.CreateOptions{})
	k.ok("create pod "+name, err)
	return p
}

// run creates a pod and waits until all its containers run and are ready.
func (k *scene) run(name, spec string, mods ...func(*corev1.Pod)) *corev1.Pod {
	k.Helper()
	k.pod(name, spec, mods...)
	return k.ready(name)
}

// create creates the objects of a manifest of several documents.
func (k *scene) create(manifest string) {
	k.Helper()
	for doc := range strings.SplitSeq(k.fill(manifest), "\n---\n") {
		obj, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(doc), nil, nil)
		k.ok("parse the manifest", err)
		k.ok("create", k.createOne(obj))
	}
}

// apply applies a manifest with kubectl, also with kinds that the suite does not know, in the namespaces that it names.
func (k *scene) apply(manifest string) {
	k.Helper()
	k.eventually("apply a manifest", func(context.Context) error {
		_, err := k.tryKubectl(manifest, "apply", "--namespace=", "-f", "-")
		if err != nil && !strings.Contains(err.Error(), "no matches for kind") { // its definition is new
			k.Fatalf("apply a manifest: %v", err)
		}
		return err
	})
}

// unapply deletes the objects of a manifest, and what they own.
func (k *scene) unapply(manifest string) error {
	_, err := k.tryKubectl(manifest, "delete", "--namespace=", "--ignore-not-found", "--cascade=foreground", "-f", "-")
	return err
}

func (k *scene) createOne(obj runtime.Object) (err error) {
	ctx, o := k.Context(), metav1.CreateOptions{FieldValidation: "Strict"}
	switch x := obj.(type) {
	case *corev1.ConfigMap:
		_, err = c.Client.CoreV1().ConfigMaps(k.ns).Create(ctx, x, o)
	case *corev1.Secret:
		_, err = c.Client.CoreV1().Secrets(k.ns).Create(ctx, x, o)
	case *appsv1.Deployment:
		_, err = c.Client.AppsV1().Deployments(k.ns).Create(ctx, x, o)
	case *batchv1.Job:
		_, err = c.Client.BatchV1().Jobs(k.ns).Create(ctx, x, o)
	case *nodev1.RuntimeClass:
		classes := c.Client.NodeV1().RuntimeClasses()
		if _, err = classes.Create(ctx, x, o); err == nil {
			k.Cleanup(func() { _ = classes.Delete(context.Background(), x.Name, metav1.DeleteOptions{}) })
		}
	default:
		return fmt.Errorf("no way to create a %T", obj)
	}
	return err
}

func (k *scene) get(name string) *corev1.Pod {
	k.Helper()
	p, err := c.Client.CoreV1().Pods(k.ns).Get(k.Context(), name, metav1.GetOptions{})
	k.ok("get pod "+name, err)
	return p
}

// until waits until cond is true for the pod.
func (k *scene) until(name, what string, cond func(*corev1.Pod) bool) *corev1.Pod {
	k.Helper()
	var last *corev1.Pod
	k.eventually("pod "+name+" "+what, func(ctx context.Context) error {
		p, err := c.Client.CoreV1().Pods(k.ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if last = p; !cond(p) {
			return fmt.Errorf("its phase is %s", p.Status.Phase)
		}
		return nil
	})
	return last
}

func (k *scene) ready(name string) *corev1.Pod {
	k.Helper()
	return k.until(name, "is ready", isReady)
}

func isReady(p *corev1.Pod) bool {
	for _, cond := range p.Status.Conditions {
		if cond.Type == corev1.PodReady {
			return cond.Status == corev1.ConditionTrue
		}
	}
	return false
}

// ended waits until the pod has ended, and checks its phase.
func (k *scene) ended(name string, phase corev1.PodPhase) *corev1.Pod {
	k.Helper()
	p := k.until(name, "has ended", func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	})
	if p.Status.Phase != phase {
		k.Fatalf("phase of pod %s = %s, want %s; its log: %s", name, p.Status.Phase, phase, k.logs(name))
	}
	return p
}

// container returns the status of a container of any kind, or nil.
func container(p *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses,
		p.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// event waits for an event of the pod with the reason and the words in its message.
func (k *scene) event(pod, reason, words string) {
	k.Helper()
	k.eventually(fmt.Sprintf("event %s of pod %s with %q", reason, pod, words), func(ctx context.Context) error {
		list, err := c.Client.CoreV1().Events(k.ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var seen []string
		for _, e := range list.Items {
			if e.InvolvedObject.Name == pod && e.Reason == reason && strings.Contains(e.Message, words) {
				return nil
			}
			seen = append(seen, e.Reason+": "+e.Message)
		}
		return fmt.Errorf("events = %q", seen)
	})
}

// remove deletes the pod with its own grace period, and waits until it is gone.
func (k *scene) remove(name string) {
	k.Helper()
	k.ok("delete "+name, c.Client.CoreV1().Pods(k.ns).Delete(k.Context(), name, metav1.DeleteOptions{}))
	k.gone(name)
}

func (k *scene) gone(name string) {
	k.Helper()
	k.eventually("pod "+name+" is gone", func(ctx context.Context) error {
		_, err := c.Client.CoreV1().Pods(k.ns).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it still exists: %v", err)
	})
}

// --- kubectl

// command returns a command of kubectl in the scenario's namespace.
func (k *scene) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.Kubectl(), append([]string{"--kubeconfig", c.Kubeconfig(), "-n", k.ns}, args...)...)
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = append(os.Environ(), "HOME="+k.TempDir())
	return cmd
}

// kubectl runs kubectl and returns its output.
func (k *scene) kubectl(args ...string) string {
	k.Helper()
	out, err := k.tryKubectl("", args...)
	if err != nil {
		k.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// tryKubectl runs kubectl with an input and returns its output and its error.
func (k *scene) tryKubectl(input string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := k.command(ctx, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// sh runs a shell command in the pod's first container and returns its output without trailing newlines.
func (k *scene) sh(pod, line string) string {
	k.Helper()
	return strings.TrimRight(k.kubectl("exec", pod, "--", "sh", "-c", line), "\n")
}

// logs returns the log of the pod's first container.
func (k *scene) logs(pod string, args ...string) string {
	k.Helper()
	out, err := k.tryKubectl("", append([]string{"logs", pod}, args...)...)
	if err != nil {
		k.Errorf("logs of %s: %v", pod, err)
	}
	return out
}
